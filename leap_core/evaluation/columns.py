"""Columns: what the cases are put to, one way to be asked each, and the lines of the batch that asks a column."""

from __future__ import annotations

from ..json_fields import JsonObject
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..batch.input.line_template import LineTemplate
from ..errors import LeapOptionsError
from .cases import Case, CaseFile
from .expectations.kinds import options_of

REPEAT, OPTION = "#", "?"
"""Between the id of a case and the number of its repeat, and before that of an option which is scored."""
SEED = 1
UNSAFE = re.compile(r"[^\w.+=-]+")


@dataclass(frozen=True)
class Column:
    """``name``: the heading. ``options``: a GenerationOptions as JSON. ``loading``: fields of ModelLoadingOptions.
    ``template``: a prompt with ``{name}`` for the variables of cases, and ``{input}`` for their prompt."""

    name: str
    model: str
    options: JsonObject = field(default_factory=dict)
    loading: JsonObject = field(default_factory=dict)
    system: str | None = None
    template: str | None = None

    @property
    def file_name(self) -> str:
        """The name as part of a file's."""
        return UNSAFE.sub("_", self.name)


def lines_of(file: CaseFile, column: Column, repeats: int) -> Iterator[JsonObject]:
    """What the column is asked, as lines of a batch. A case is asked once for each repeat, with a seed of its own; the
    options of a choice are scored instead, a line each. Raises LeapOptionsError for a case without a prompt."""
    template = None if column.template is None else LineTemplate(column.template, {})
    seed = column.options.get("rng_seed", SEED)
    for case in file.cases:
        request = _request(case, template)
        if any(each.kind != "choice" for each in case.expectations):
            for n in range(repeats):
                seeded = {} if "seed" in request else {"seed": seed + n}
                yield {"custom_id": f"{case.id}{REPEAT}{n}", **request, **seeded}
        for number, each in enumerate(case.expectations):
            if each.kind == "choice":
                for m, option in enumerate(options_of(each)):
                    yield {"custom_id": f"{case.id}{OPTION}{number}.{m}", **request, "leap": {"options": _held(option)}}


def without_prompt(cases: Sequence[Case]) -> list[Case]:
    """Those cases that are variables of a template and nothing else."""
    return [
        case
        for case in cases
        if not any(name in case.request for name in ("prompt", "messages", "task", "image", "audio"))
    ]


def _held(option: str) -> JsonObject:
    """The options of an answer that is this one, with the probability of each token."""
    held: JsonObject = {"choices_constraint": [option], "logprobs": True, "forced_logprobs": True}
    return held | {"temperature": 0.0, "repetition_penalty": 1.0}


def _request(case: Case, template: LineTemplate | None) -> JsonObject:
    if template is None or "messages" in case.request or "task" in case.request:
        if without_prompt([case]):
            raise LeapOptionsError(
                "pattern", f"the case {case.id} has variables and no prompt: give a template for them"
            )
        return case.request
    return {**case.request, "prompt": template.fill({**case.variables, **_input(case)})}


def _input(case: Case) -> JsonObject:
    return {"prompt": case.request["prompt"]} if "prompt" in case.request else {}
