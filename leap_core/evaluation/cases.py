"""Cases: what is put to models, what is expected of the answers, and cases made of answers that were good.

A case is a line of a batch (``prompt``, ``messages``, ``task`` with its fields, ``image``, ``audio``, ``tools``,
``schema``, parameters) with ``expect``, and perhaps ``id``, ``group``, ``weight`` and ``vars``, the values of a
template's variables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ..batch.input.small_files import read_rows
from ..conversation.messages import ChatMessage, ChatMessageRole
from ..conversation.prompt_log import Entry
from ..conversation.sessions import RATINGS, Mark
from ..errors import LeapError, LeapSerializationError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .expectations import KINDS, Expectation, read_expectations
from .formats import as_cases

OWN_FIELDS = ("id", "custom_id", "expect", "group", "weight", "vars")
"""Fields that are no part of what a model is asked."""
MEANT_EXPECT = ("expected", "expected_output", "ideal", "target", "answer", "output", "reference")
"""What other programs call ``expect``."""
_, BAD = RATINGS


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
        meant = next((name for name in MEANT_EXPECT if name in {**variables, **record}), None)
        hint = None if meant is None else f"did you mean expect, in the place of {meant}?"
        raise LeapSerializationError("missing: what is expected of the answer", path="expect", hint=hint)
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


def cases_of_conversation(
    name: str, history: Sequence[ChatMessage], marks: Sequence[Mark] = ()
) -> Iterator[JsonObject]:
    """A case for each reply of a conversation that is not rated bad, asked with all that came before it."""
    for n, message in enumerate(history):
        is_bad = n < len(marks) and marks[n].rating == BAD
        if message.role is ChatMessageRole.ASSISTANT and n > 0 and not is_bad:
            calls = [{"name": call.name, "arguments": call.arguments} for call in message.function_calls or ()]
            expect = expected(message.text, calls)
            if expect is not None:
                messages = [each.to_json() for each in history[:n]]
                yield {"id": f"{name}-{n}", "messages": messages, "expect": expect}


def case_of_entry(entry: Entry) -> JsonObject | None:
    """A case of a logged prompt; None for one that failed or is rated bad, that belongs to a longer conversation, that
    had pictures or sound, which the log does not keep, or that leap asked to measure something."""
    calls = []
    for each in entry.calls:
        arguments = each.get("arguments")
        calls.append({**each, "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments})
    expect = expected(entry.answer, calls)
    if entry.error is not None or entry.rating == BAD or entry.turns or expect is None or calls or entry.is_trial:
        return None  # the declarations of the functions are not in the log
    case: JsonObject = {"id": f"log-{entry.id}", "prompt": entry.prompt, "expect": expect}
    if entry.system:
        case["system"] = entry.system
    if entry.schema is not None:
        case["schema"] = json.loads(entry.schema)
    return case


def cases_of_batch(lines: Mapping[str, JsonObject], results: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """A case for each line of a batch that was answered; ``lines`` by their ids."""
    for result in results:
        name = str(result.get("custom_id"))
        if name not in lines or result.get("error"):
            continue
        answer = _answer(result)
        expect = expected(*answer)
        if expect is None:
            continue
        line = lines[name]
        asked = line["body"] if isinstance(line.get("body"), dict) else line
        request = {key: value for key, value in asked.items() if key not in ("id", "custom_id", "model")}
        yield {"id": name, **request, "expect": expect}


def expected(text: str, calls: Sequence[JsonObject]) -> JsonObject | None:
    """What is expected where this was a good answer: the same calls, an equal document, or the same text."""
    if calls:
        return {"calls": [{"name": each["name"], "arguments": each["arguments"]} for each in calls]}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, (dict, list)):
        return {"json": value}
    return {"equals": text.strip()} if text.strip() else None


def _answer(result: JsonObject) -> tuple[str, list[JsonObject]]:
    if result.get("response"):
        message = result["response"]["body"]["choices"][0]["message"]
        text, calls = message.get("content") or "", message.get("tool_calls") or []
    else:
        text, calls = str(result.get("answer", result.get("text", ""))), result.get("tool_calls") or []
    functions = [each["function"] for each in calls]
    return text, [{"name": each["name"], "arguments": json.loads(each["arguments"])} for each in functions]
