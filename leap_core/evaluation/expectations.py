"""What a case expects of an answer, by kind, and what came of it."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import LeapSerializationError
from ..schemas.expressions import CheckTakesTooLong, compiled, matches
from ..schemas.json_schema import check_schema
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .equality import difference_of_calls, first_difference, read_calls

NOT = "not_"
SETTINGS: Mapping[str, type | tuple[type, ...]] = {
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
class JudgedAnswer:
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
    check: Callable[[Expectation, JudgedAnswer, int], Verdict]


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
        if not isinstance(each, expected) or (isinstance(each, bool) and expected is not bool):
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


def verdict_on(expectation: Expectation, answer: JudgedAnswer, number: int, kinds: Mapping[str, Kind]) -> Verdict:
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


def read_program(value: Any, _settings: JsonObject, path: str) -> tuple[str, str]:
    """The file and the function's name. Raises LeapSerializationError."""
    file, colon, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise LeapSerializationError("expected file.py:function", path=path)
    return file, name


def check_program(expectation: Expectation, answer: JudgedAnswer, _number: int) -> Verdict:
    """What the function says of the answer's text: it is called with that and an object of what else is known, and
    gives true or false, a number from 0 to 1, or an object with ``pass``, ``score`` and ``reason``. What it raises is
    a failure."""
    file, name = expectation.value
    about = {
        "prompt": answer.prompt,
        "vars": dict(answer.variables),
        "calls": [{"name": each, "arguments": dict(arguments)} for each, arguments in answer.calls],
        "finish_reason": answer.finish,
        "tokens": answer.tokens,
    }
    try:
        said = _function(answer.directory / file, name)(answer.text, about)
    except Exception as error:  # it is the user's code, and says that the answer cannot be used
        return Verdict(False, 0.0, f"{file}:{name}: {type(error).__name__}: {error}")
    threshold = float(expectation.settings.get("threshold", 0.5))
    if isinstance(said, bool):
        return Verdict.of(None if said else f"{name} says no")
    if isinstance(said, (int, float)):
        return Verdict(said >= threshold, _share(said), "" if said >= threshold else f"{name} gives {said:g}", True)
    if isinstance(said, dict) and "pass" in said:
        passed = bool(said["pass"])
        score = _share(said.get("score", float(passed)))
        return Verdict(passed, score, "" if passed else str(said.get("reason", f"{name} says no")), "score" in said)
    return Verdict(False, 0.0, f"{file}:{name} gives {said!r}: expected a truth, a number, or an object with pass")


def _share(value: float) -> float:
    return min(1.0, max(0.0, float(value)))


@lru_cache(maxsize=64)
def _function(path: Path, name: str) -> Callable[[str, JsonObject], Any]:
    spec = importlib.util.spec_from_file_location(f"leap_evaluation_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[str, JsonObject], Any] = getattr(module, name)
    return function


FINISHES = ("stop", "length", "tool_calls")
ANY = "any"
SHOWN = 60


def _text(value: Any, _settings: JsonObject, path: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise LeapSerializationError("expected a text", path=path)
    return value


def _texts(value: Any, settings: JsonObject, path: str) -> list[str]:
    if not isinstance(value, list):
        return [_text(value, settings, path)]
    if not value:
        raise LeapSerializationError("expected a text or some", path=path)
    return [_text(each, settings, f"{path}[{n}]") for n, each in enumerate(value)]


def _as_it_is(value: Any, _settings: JsonObject, _path: str) -> Any:
    return value


def _expression(value: Any, settings: JsonObject, path: str) -> str:
    text = _text(value, settings, path)
    text = f"(?i){text}" if settings.get("ignore_case") else text
    try:
        compiled(text)
    except ValueError as error:
        raise LeapSerializationError(str(error), path=path) from None
    return text


def _schema(value: Any, _settings: JsonObject, path: str) -> Any:
    if not isinstance(value, (dict, bool)):
        raise LeapSerializationError("expected a JSON schema", path=path)
    return check_schema(value)


def _calls(value: Any, _settings: JsonObject, path: str) -> Any:
    return ANY if value == ANY else read_calls(value, path)


def _number(value: Any, _settings: JsonObject, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LeapSerializationError("expected a number from 1 on", path=path)
    return value


def _finish(value: Any, settings: JsonObject, path: str) -> str:
    if value not in FINISHES:
        raise LeapSerializationError(f"expected one of {', '.join(FINISHES)}", path=path)
    return str(value)


def _choice(value: Any, settings: JsonObject, path: str) -> str:
    options = settings.get("of", settings.get("choices"))
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(each, str) and each for each in options):
        raise LeapSerializationError('expected the options beside it, such as "of": ["A", "B"]', path=path)
    if value not in options or len(set(options)) < len(options):
        raise LeapSerializationError("expected one of the options, which differ", path=path)
    return str(value)


def options_of(expectation: Expectation) -> list[str]:
    """The options of a choice."""
    return list(expectation.settings.get("of") or expectation.settings.get("choices") or ())


def _by_text(compare: Callable[[str, str], bool], says: str, *, every: bool) -> Callable[..., Verdict]:
    """A check of the answer's text against texts, of which every one must do, or any."""

    def check(expectation: Expectation, answer: JudgedAnswer, _number: int) -> Verdict:
        def plain(text: str) -> str:
            return text.casefold() if expectation.settings.get("ignore_case") else text

        text = plain(answer.text.strip() if expectation.settings.get("trim", True) else answer.text)
        missed = [each for each in expectation.value if not compare(text, plain(each))]
        wrong = missed if every else missed[:1] if len(missed) == len(expectation.value) else []
        return Verdict.of(f"the answer {says} {_shown(wrong[0])}" if wrong else None)

    return check


def _regex(expectation: Expectation, answer: JudgedAnswer, _number: int) -> Verdict:
    try:
        found = matches(expectation.value, answer.text)
    except CheckTakesTooLong as error:
        return Verdict.of(str(error))
    return Verdict.of(None if found else f"nothing in the answer matches {_shown(expectation.value)}")


def _parsed(text: str) -> Any:
    """The JSON value of an answer, which may be in a fenced block. Raises ValueError."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        stripped = stripped.strip("`").partition("\n")[2]
    return json.loads(stripped)


def _json(expectation: Expectation, answer: JudgedAnswer, _number: int) -> Verdict:
    settings = {
        name: expectation.settings[name] for name in ("ignore_order", "tolerance") if name in expectation.settings
    }
    try:
        return Verdict.of(first_difference(expectation.value, _parsed(answer.text), **settings))
    except (ValueError, RecursionError) as error:
        return Verdict.of(f"not JSON: {error}")


def _is_json(expectation: Expectation, answer: JudgedAnswer, _number: int) -> Verdict:
    try:
        _parsed(answer.text)
    except (ValueError, RecursionError) as error:
        return Verdict.of(f"not JSON: {error}")
    return Verdict.of(None)


def _fits_schema(expectation: Expectation, answer: JudgedAnswer, _number: int) -> Verdict:
    try:
        problems = expectation.value.problems_of(_parsed(answer.text))
    except (ValueError, RecursionError) as error:
        return Verdict.of(f"not JSON: {error}")
    return Verdict.of(problems[0] if problems else None)


def _called(expectation: Expectation, answer: JudgedAnswer, _number: int) -> Verdict:
    if expectation.value == ANY:
        return Verdict.of(None if answer.calls else "no function was called")
    ordered = expectation.settings.get("ordered", False)
    return Verdict.of(difference_of_calls(expectation.value, answer.calls, _types(answer.tools), ordered=ordered))


def _types(tools: Any) -> Mapping[str, Mapping[str, Any]]:
    types = {}
    for tool in tools:
        function = tool.get("function", tool)
        properties = (function.get("parameters") or {}).get("properties") or {}
        names = {name: each.get("type") for name, each in properties.items() if isinstance(each, Mapping)}
        types[str(function.get("name", "")).replace(".", "_")] = names
    return types


def _chosen(expectation: Expectation, answer: JudgedAnswer, number: int) -> Verdict:
    shares = answer.shares.get(number)
    if shares is None:
        return Verdict.of("the options were not scored")
    best = max(shares, key=lambda option: shares[option])
    right = best == expectation.value
    share = shares[expectation.value]
    return Verdict.of(None if right else f"{_shown(best)} is likelier; {_shown(expectation.value)} has {share:.2f}")


def _short(expectation: Expectation, answer: JudgedAnswer, _number: int) -> Verdict:
    more = answer.tokens > expectation.value
    return Verdict.of(f"{answer.tokens} tokens, more than {expectation.value}" if more else None)


def _finished(expectation: Expectation, answer: JudgedAnswer, _number: int) -> Verdict:
    same = answer.finish == expectation.value
    return Verdict.of(None if same else f"ended by {answer.finish} instead of {expectation.value}")


def _by_number(default: float, what: str) -> Callable[..., Verdict]:
    def check(expectation: Expectation, answer: JudgedAnswer, number: int) -> Verdict:
        value = answer.asked.get(number)
        if value is None:
            return Verdict.of(f"the {what} is not known")
        threshold = float(expectation.settings.get("threshold", default))
        return Verdict.of(None if value >= threshold else f"{what} {value:.3f}, below {threshold:g}")

    return check


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")


KINDS: dict[str, Kind] = {
    "equals": Kind(_texts, _by_text(lambda text, each: text == each.strip(), "is not", every=False)),
    "contains": Kind(_texts, _by_text(lambda text, each: each in text, "has no", every=True)),
    "contains_any": Kind(
        _texts, _by_text(lambda text, each: each in text, "has none of the texts, not even", every=False)
    ),
    "starts_with": Kind(_texts, _by_text(lambda text, each: text.startswith(each), "does not begin with", every=False)),
    "regex": Kind(_expression, _regex),
    "json": Kind(_as_it_is, _json),
    "is_json": Kind(_as_it_is, _is_json),
    "schema": Kind(_schema, _fits_schema),
    "calls": Kind(_calls, _called),
    "no_calls": Kind(_as_it_is, _called),
    "choice": Kind(_choice, _chosen),
    "max_tokens": Kind(_number, _short),
    "finish": Kind(_finish, _finished),
    "similar": Kind(_text, _by_number(0.75, "similarity")),
    "judge": Kind(_text, _by_number(0.5, "probability of yes")),
    "python": Kind(read_program, check_program),
}
