"""How cases are split into parts that share no question.

Cases that ask the same are one question: they are in the same part, and a test counts them as one observation. A case
that also expects the same as an earlier one is a repeat and is left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from ..conversation.options import CONSTRAINTS, GenerationOptions
from ..errors import LeapSerializationError
from ..inference.template.chat_template import deeply
from .cases import Case
from .expectations import ANY, Expectation

PARTS = {"train": 0.3, "choose": 0.35, "held": 0.35}
FEWEST = 20
WHOLE_ANSWERS = ("equals", "json", "calls", "choice")
"""Expectations that name the answer: two that differ cannot both hold."""
MOST_LISTED = 20


HOW = frozenset(GenerationOptions.__dataclass_fields__) - {*CONSTRAINTS, "tool_choice", "decision"}
HOW |= {"model", "seed", "max_completion_tokens", "repeat_penalty", "reasoning_effort", "n", "stream"}
"""Fields of a request that do not change what is asked, but how it is answered."""


def question_of(case: Case) -> str:
    """What a case asks, as a text. It is equal for cases that differ in white space, in whether they write a prompt or
    messages, or in options of sampling alone."""
    request = {name: value for name, value in case.request.items() if name not in HOW}
    if "task" not in request and isinstance(request.get("prompt"), str):
        said = [("system", request.pop("system", None)), ("user", request.pop("prompt"))]
        messages = [{"role": role, "content": text} for role, text in said if text is not None]
        request["messages"] = [*messages[:-1], *request.get("messages", ()), messages[-1]]
    elif isinstance(request.get("messages"), list):
        request["messages"] = [_plain(each) for each in request["messages"]]
    asked = deeply({"request": request, "vars": case.variables}, lambda text: " ".join(text.split()))
    return json.dumps(asked, sort_keys=True, ensure_ascii=False)


def _plain(message: object) -> object:
    """The message with its text in place of the one part that is it."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(content, list) or len(content) != 1:
        return message
    part = content[0]
    return {**message, "content": part["text"]} if isinstance(part, dict) and set(part) == {"type", "text"} else message


def questions_of(cases: Sequence[Case]) -> list[list[Case]]:
    """The cases by question, without repeats, in the order of the first of each."""
    questions: dict[str, dict[str, Case]] = {}
    for case in cases:
        questions.setdefault(question_of(case), {}).setdefault(repr(case.expectations), case)
    return [list(same.values()) for same in questions.values()]


def split(cases: Sequence[Case], seed: int) -> dict[str, list[Case]]:
    """The parts, by the seed. Raises LeapSerializationError for too few questions."""
    questions = questions_of(cases)
    count = len(questions)
    if count < FEWEST:
        different = f" ask {count} different questions, which" if count < len(cases) else ""
        raise LeapSerializationError(
            f"{len(cases)} cases{different} are too few to be split and tested: {FEWEST} are the fewest"
        )
    ordered = sorted(questions, key=lambda same: hashlib.sha256(f"{seed} {same[0].id}".encode()).digest())
    first = round(count * PARTS["train"])
    second = first + round(count * PARTS["choose"])
    parts = {"train": ordered[:first], "choose": ordered[first:second], "held": ordered[second:]}
    place = {case.id: n for n, case in enumerate(cases)}
    return {
        name: sorted((case for same in part for case in same), key=lambda case: place[case.id])
        for name, part in parts.items()
    }


def doubts_about(cases: Sequence[Case]) -> list[str]:
    """What a person should know of the cases: how many repeat another, and which contradict each other."""
    questions = questions_of(cases)
    repeats = len(cases) - sum(map(len, questions))
    doubts = [] if not repeats else [f"{repeats} of {len(cases)} cases repeat another and count once"]
    found = [
        f"{one.id} and {other.id} ask the same and expect different answers"
        for same in questions
        for n, one in enumerate(same)
        for other in same[n + 1 :]
        if any(_contradict(a, b) for a in one.expectations for b in other.expectations)
    ]
    more = [f"{len(found) - MOST_LISTED} more pairs contradict each other"] if len(found) > MOST_LISTED else []
    return [*doubts, *found[:MOST_LISTED], *more]


def _contradict(one: Expectation, other: Expectation) -> bool:
    if one.kind != other.kind:
        return False
    if one.negated or other.negated:
        return one.negated != other.negated and one.value == other.value
    if one.kind == "equals":
        return not _texts(one) & _texts(other)
    return one.kind in WHOLE_ANSWERS and one.value != other.value and ANY not in (one.value, other.value)


def _texts(expectation: Expectation) -> set[str]:
    texts = (text.strip() for text in expectation.value)
    return {text.casefold() for text in texts} if expectation.settings.get("ignore_case") else set(texts)
