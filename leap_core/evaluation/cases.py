"""Cases: what is put to models, and what is expected of the answers.

A case is a line of a batch (``prompt``, ``messages``, ``task`` with its fields, ``image``, ``audio``, ``tools``,
``schema``, parameters) with ``expect``, and perhaps ``id``, ``group``, ``weight`` and ``vars``, the values of a
template's variables.
"""

from __future__ import annotations

from ..json_fields import JsonObject
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import LeapError, LeapSerializationError
from .expectations.expectation import Expectation, read_expectations
from .expectations.kinds import KINDS
from .formats.case_origin import as_cases
from .formats.rows import read_rows

OWN_FIELDS = ("id", "custom_id", "expect", "group", "weight", "vars")
"""Fields that are no part of what a model is asked."""


@dataclass(frozen=True)
class Case:
    """``request``: the line of a batch, without its id. ``variables``: of a template. Cases of a ``group`` are counted
    together too. ``weight``: how much the case counts."""

    id: str
    request: JsonObject
    expectations: tuple[Expectation, ...]
    group: str | None = None
    weight: float = 1.0
    variables: JsonObject = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """What was asked, for people and for models that judge."""
        messages = self.request.get("messages")
        if isinstance(messages, list) and messages:
            content = messages[-1].get("content") if isinstance(messages[-1], Mapping) else None
            if isinstance(content, list):
                return " ".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping)).strip()
            return str(content or "")
        for name in ("prompt", "text"):
            if isinstance(self.request.get(name), str):
                return str(self.request[name])
        return ", ".join(f"{name}: {value}" for name, value in self.variables.items())


@dataclass(frozen=True)
class CaseFile:
    """Cases in the order of their file. ``templates``: prompts with ``{name}`` for variables, that the file brings.
    ``unsupported``: what the file says and leap does not do, a line each. ``directory``: where names begin."""

    cases: tuple[Case, ...]
    templates: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    directory: Path = Path()

    @property
    def runs_programs(self) -> bool:
        """Whether an expectation names a function in a file."""
        return any(each.kind == "python" for case in self.cases for each in case.expectations)


def read_cases(path: Path) -> CaseFile:
    """Read a file of leap's cases, promptfoo's tests, OpenAI's evals, inspect_ai's records or the Berkeley Function
    Calling Leaderboard's questions: JSONL, JSON, YAML, CSV or TSV. Raises LeapSerializationError."""
    document, rows = read_rows(path)
    shaped = as_cases(document, rows, path)
    cases: list[Case] = []
    places: dict[str, str] = {}
    for place, record in shaped.records:
        try:
            case = _read(record, f"case-{len(cases) + 1}")
        except LeapError as error:
            raise LeapSerializationError(f"{path.name}, {place}: {error.message}", hint=error.hint) from None
        if case.id in places:
            raise LeapSerializationError(f"{path.name}, {place}: the id {case.id!r} is already at {places[case.id]}")
        places[case.id] = place
        cases.append(case)
    if not cases:
        raise LeapSerializationError(f"{path.name} has no cases")
    return CaseFile(tuple(cases), tuple(shaped.templates), tuple(shaped.unsupported), path.parent)


def _read(record: Any, name: str) -> Case:
    if not isinstance(record, dict):
        raise LeapSerializationError("expected an object with expect")
    identifier = record.get("id", record.get("custom_id"))
    if identifier is not None and (not isinstance(identifier, (str, int)) or isinstance(identifier, bool)):
        raise LeapSerializationError("expected a text", path="id")
    weight, variables, group = record.get("weight", 1.0), record.get("vars", {}), record.get("group")
    if not isinstance(weight, (int, float)) or isinstance(weight, bool) or not 0 < weight < float("inf"):
        raise LeapSerializationError("expected a number above 0", path="weight")
    if not isinstance(variables, dict):
        raise LeapSerializationError("expected an object", path="vars")
    if group is not None and not isinstance(group, str):
        raise LeapSerializationError("expected a text", path="group")
    if "expect" not in record:
        raise LeapSerializationError("missing: what is expected of the answer", path="expect")
    request = {key: value for key, value in record.items() if key not in OWN_FIELDS}
    if not request and not variables:
        raise LeapSerializationError("asks nothing: give prompt, messages, task, or vars for a template")
    expectations = read_expectations(record["expect"], "expect", KINDS)
    return Case(
        str(identifier) if identifier not in (None, "") else name,
        request,
        expectations,
        group,
        float(weight),
        variables,
    )


def to_json(case: Mapping[str, Any]) -> str:
    """A case as a line of a file."""
    return json.dumps(case, ensure_ascii=False)


def groups_of(cases: Sequence[Case]) -> list[str]:
    """The groups in the order in which they come."""
    return list(dict.fromkeys(case.group for case in cases if case.group is not None))
