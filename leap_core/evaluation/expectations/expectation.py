"""What a case expects of an answer, read from the case's file, and what came of it."""

from __future__ import annotations

from ...json_fields import JsonObject
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import LeapSerializationError

NOT = "not_"
SETTINGS = {
    "ignore_case": bool,
    "ignore_order": bool,
    "ordered": bool,
    "tolerance": (int, float),
    "threshold": (int, float),
    "weight": (int, float),
    "model": str,
    "of": list,
    "choices": list,
    "trim": bool,
}
"""Fields beside an expectation that say how it is checked."""


@dataclass(frozen=True)
class Expectation:
    """``kind``: its name in KINDS. ``value``: what is expected, as ``read`` made it. ``negated``: it must not be so."""

    kind: str
    value: Any
    negated: bool = False
    settings: JsonObject = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As the case has it."""
        return f"{NOT}{self.kind}" if self.negated else self.kind

    @property
    def weight(self) -> float:
        return float(self.settings.get("weight", 1.0))


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is as expected. ``score``: 0 to 1; ``graded``: it is more than yes or no. ``message``: why
    not."""

    passed: bool
    score: float
    message: str = ""
    graded: bool = False

    @staticmethod
    def of(problem: str | None) -> Verdict:
        """Passed without a problem."""
        return Verdict(problem is None, float(problem is None), problem or "")

    def negated(self, what: str) -> Verdict:
        """The verdict of the contrary. ``what``: the expectation, for the message."""
        return Verdict(not self.passed, 1.0 - self.score, f"{what}, and should not" if self.passed else "", self.graded)


@dataclass(frozen=True)
class Answer:
    """What a model made of a case. ``calls``: names and arguments; ``shares``: the probabilities of the choices of each
    expectation that has some, by its number; ``asked``: the numbers that other models gave, in the same way;
    ``tools``: what the case declared; ``variables``: the case's own; ``directory``: where the names of files begin."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    finish: str = "stop"
    tokens: int = 0
    shares: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    asked: Mapping[int, float] = field(default_factory=dict)
    tools: Sequence[JsonObject] = ()
    prompt: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    directory: Path = Path()


@dataclass(frozen=True)
class Kind:
    """A kind of expectation. ``read``: the value of a case, checked; raises LeapSerializationError. ``check``: the
    verdict on the answer of an expectation, which has this number in its case."""

    read: Callable[[Any, JsonObject, str], Any]
    check: Callable[[Expectation, Answer, int], Verdict]


def read_expectations(value: Any, path: str, kinds: Mapping[str, Kind]) -> tuple[Expectation, ...]:
    """The expectations of a case: a text that the answer equals, an object of expectations by kind with settings beside
    them, or a list of those. ``{"not": {...}}`` and ``not_KIND`` are the contrary. Raises LeapSerializationError."""
    if isinstance(value, list):
        parts = [read_expectations(each, f"{path}[{n}]", kinds) for n, each in enumerate(value)]
        return tuple(expectation for part in parts for expectation in part)
    if isinstance(value, str):
        return (_read_one("equals", value, {}, path, kinds),)
    if not isinstance(value, dict):
        raise LeapSerializationError("expected a text, an object, or a list of them", path=path)
    settings = {name: each for name, each in value.items() if name in SETTINGS}
    for name, each in settings.items():
        expected = SETTINGS[name]
        if not isinstance(each, expected) or (isinstance(each, bool) and expected is not bool):  # type: ignore[arg-type]
            raise LeapSerializationError(f"{each!r} cannot be used", path=f"{path}.{name}")
    found: list[Expectation] = []
    for name, each in value.items():
        if name in settings:
            continue
        if name == "not":
            found += [_contrary(inner) for inner in read_expectations(each, f"{path}.not", kinds)]
        else:
            found.append(_read_one(name, each, settings, f"{path}.{name}", kinds))
    if not found:
        raise LeapSerializationError(f"expects nothing; known are {', '.join(kinds)}", path=path)
    return tuple(found)


def verdict_on(expectation: Expectation, answer: Answer, number: int, kinds: Mapping[str, Kind]) -> Verdict:
    """Whether the answer is as expected; ``number``: the expectation's place in its case."""
    verdict = kinds[expectation.kind].check(expectation, answer, number)
    return verdict.negated(expectation.kind) if expectation.negated else verdict


def _read_one(name: str, value: Any, settings: JsonObject, path: str, kinds: Mapping[str, Kind]) -> Expectation:
    kind, negated = (name, False) if name in kinds else (name.removeprefix(NOT), name.startswith(NOT))
    if kind == "no_calls":
        kind, value, negated = "calls", [] if value is not False else "any", negated
    if kind not in kinds:
        raise LeapSerializationError(f"there is no such expectation; known are {', '.join(kinds)}", path=path)
    return Expectation(kind, kinds[kind].read(value, settings, path), negated, settings)


def _contrary(expectation: Expectation) -> Expectation:
    return Expectation(expectation.kind, expectation.value, not expectation.negated, expectation.settings)
