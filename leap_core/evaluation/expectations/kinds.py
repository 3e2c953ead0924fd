"""The kinds of expectations, by name."""

from __future__ import annotations

from ...json_fields import JsonObject
import json
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import LeapSerializationError
from ...schemas.bounded_matching import CheckTakesTooLong, compiled, matches
from ...schemas.json_schema import check_schema
from .call_equality import difference_of_calls, read_calls
from .expectation import Answer, Expectation, Kind, Verdict
from .json_equality import first_difference
from .program import check_program, read_program

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

    def check(expectation: Expectation, answer: Answer, _number: int) -> Verdict:
        def plain(text: str) -> str:
            return text.casefold() if expectation.settings.get("ignore_case") else text

        text = plain(answer.text.strip() if expectation.settings.get("trim", True) else answer.text)
        missed = [each for each in expectation.value if not compare(text, plain(each))]
        wrong = missed if every else missed[:1] if len(missed) == len(expectation.value) else []
        return Verdict.of(f"the answer {says} {_shown(wrong[0])}" if wrong else None)

    return check


def _regex(expectation: Expectation, answer: Answer, _number: int) -> Verdict:
    try:
        found = matches(expectation.value, answer.text)
    except CheckTakesTooLong as error:
        return Verdict.of(str(error))
    return Verdict.of(None if found else f"nothing in the answer matches {_shown(expectation.value)}")


def _parsed(text: str) -> Any:
    """The JSON value of an answer, which may stand in a fenced block. Raises ValueError."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        stripped = stripped.strip("`").partition("\n")[2]
    return json.loads(stripped)


def _json(expectation: Expectation, answer: Answer, _number: int) -> Verdict:
    settings = {
        name: expectation.settings[name] for name in ("ignore_order", "tolerance") if name in expectation.settings
    }
    try:
        return Verdict.of(first_difference(expectation.value, _parsed(answer.text), **settings))
    except (ValueError, RecursionError) as error:
        return Verdict.of(f"not JSON: {error}")


def _is_json(expectation: Expectation, answer: Answer, _number: int) -> Verdict:
    try:
        _parsed(answer.text)
    except (ValueError, RecursionError) as error:
        return Verdict.of(f"not JSON: {error}")
    return Verdict.of(None)


def _fits_schema(expectation: Expectation, answer: Answer, _number: int) -> Verdict:
    try:
        problems = expectation.value.problems_of(_parsed(answer.text))
    except (ValueError, RecursionError) as error:
        return Verdict.of(f"not JSON: {error}")
    return Verdict.of(problems[0] if problems else None)


def _called(expectation: Expectation, answer: Answer, _number: int) -> Verdict:
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


def _chosen(expectation: Expectation, answer: Answer, number: int) -> Verdict:
    shares = answer.shares.get(number)
    if shares is None:
        return Verdict.of("the options were not scored")
    best = max(shares, key=lambda option: shares[option])
    right = best == expectation.value
    share = shares[expectation.value]
    return Verdict.of(None if right else f"{_shown(best)} is likelier; {_shown(expectation.value)} has {share:.2f}")


def _short(expectation: Expectation, answer: Answer, _number: int) -> Verdict:
    more = answer.tokens > expectation.value
    return Verdict.of(f"{answer.tokens} tokens, more than {expectation.value}" if more else None)


def _finished(expectation: Expectation, answer: Answer, _number: int) -> Verdict:
    same = answer.finish == expectation.value
    return Verdict.of(None if same else f"ended by {answer.finish} instead of {expectation.value}")


def _by_number(default: float, what: str) -> Callable[..., Verdict]:
    def check(expectation: Expectation, answer: Answer, number: int) -> Verdict:
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
