"""JSON values and calls of functions compared by value, calls by the rules of the Berkeley leaderboard.

The names are equal ('.' may be '_'); every parameter has one of the values that are allowed for it, one that may be
left out has "" among them, and there is no other; an integer passes for a float; texts are compared without spaces and
``,./-_*^``, in lower case, with ' as "; objects and lists element by element. Several calls may come in any order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import LeapSerializationError
from ..schemas.json_values import is_number

SHOWN = 80
"""Characters of a value that a difference shows."""


def first_difference(expected: Any, actual: Any, *, ignore_order: bool = False, tolerance: float = 0.0) -> str | None:
    """Where two values differ first, as a JSON pointer, and how; None where they are equal. ``ignore_order``: lists are
    equal in any order. ``tolerance``: numbers may differ by this."""
    return _json_difference(expected, actual, "", ignore_order, tolerance)


def _json_difference(expected: Any, actual: Any, place: str, ignore_order: bool, tolerance: float) -> str | None:
    if isinstance(expected, dict) and isinstance(actual, dict):
        return _of_objects(expected, actual, place, ignore_order, tolerance)
    if isinstance(expected, list) and isinstance(actual, list):
        return _of_lists(expected, actual, place, ignore_order, tolerance)
    if is_number(expected) and is_number(actual):
        same = expected == actual or abs(expected - actual) <= tolerance
    else:
        same = type(expected) is type(actual) and expected == actual
    return None if same else f"{place or 'the document'}: {_shown(actual)} instead of {_shown(expected)}"


def _of_objects(expected: Any, actual: Any, place: str, ignore_order: bool, tolerance: float) -> str | None:
    for name in expected:
        here = f"{place}/{_escaped(name)}"
        if name not in actual:
            return f"{here}: missing"
        found = _json_difference(expected[name], actual[name], here, ignore_order, tolerance)
        if found is not None:
            return found
    further = next((name for name in actual if name not in expected), None)
    return None if further is None else f"{place}/{_escaped(further)}: not expected"


def _of_lists(
    expected: Sequence[Any], actual: Sequence[Any], place: str, ignore_order: bool, tolerance: float
) -> str | None:
    if ignore_order and len(expected) == len(actual):
        rest = list(actual)
        for n, value in enumerate(expected):
            equal = (m for m, each in enumerate(rest) if not _json_difference(value, each, "", True, tolerance))
            match = next(equal, None)
            if match is None:
                return f"{place}/{n}: no {_shown(value)} in the list"
            del rest[match]
        return None
    for n, (one, other) in enumerate(zip(expected, actual, strict=False)):
        found = _json_difference(one, other, f"{place}/{n}", ignore_order, tolerance)
        if found is not None:
            return found
    if len(expected) == len(actual):
        return None
    return f"{place or 'the document'}: {len(actual)} items instead of {len(expected)}"


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


Allowed = dict[str, list[Any]]
LEFT_OUT = ""
"""Among the values of a parameter: it may be missing."""
IGNORED = re.compile(r"[ ,./\-_*^]")


def read_calls(value: Any, path: str) -> list[tuple[str, Allowed]]:
    """Expected calls: ``{"name": …, "arguments": {…}}`` with the one value of each argument (``"optional": ["b"]`` may
    be left out), or as the leaderboard writes them, ``{name: {parameter: [allowed, …]}}``. Raises
    LeapSerializationError."""
    calls = value if isinstance(value, list) else [value]
    return [_read_call(each, f"{path}[{n}]" if isinstance(value, list) else path) for n, each in enumerate(calls)]


def difference_of_calls(
    expected: Sequence[tuple[str, Allowed]],
    actual: Sequence[tuple[str, Mapping[str, Any]]],
    types: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    ordered: bool = False,
) -> str | None:
    """What is wrong with the calls of an answer; None where nothing is. ``types``: the declared JSON types of each
    function's parameters, where a float is no integer. ``ordered``: the order of the calls counts."""
    if len(expected) != len(actual):
        return f"{_count(len(actual))} ({_listed(actual)}) instead of {len(expected)}"
    problems = [
        [_difference(name, allowed, call, (types or {}).get(_plain(name), {})) for call in actual]
        for name, allowed in expected
    ]
    if ordered or len(expected) == 1:
        return next((problem for n, row in enumerate(problems) if (problem := row[n]) is not None), None)
    if _matched(problems):
        return None
    for n, row in enumerate(problems):
        if None not in row:
            nearest = next((problem for problem in row if problem and not problem.startswith("called")), row[0])
            return f"no call of {expected[n][0]} as expected: {nearest}"
    return "one call answers to several that were expected"


def _read_call(value: Any, path: str) -> tuple[str, Allowed]:
    if not isinstance(value, Mapping):
        raise LeapSerializationError("expected an object with name and arguments", path=path)
    if "name" in value:
        arguments, optional = value.get("arguments", {}), value.get("optional", [])
        unknown = next((name for name in value if name not in ("name", "arguments", "optional")), None)
        if unknown is not None:
            raise LeapSerializationError("a call has a name, arguments, and optional ones", path=f"{path}.{unknown}")
        if not isinstance(arguments, Mapping):
            raise LeapSerializationError("expected an object", path=f"{path}.arguments")
        if not isinstance(optional, list):
            raise LeapSerializationError("expected a list of names", path=f"{path}.optional")
        allowed = {
            name: [_as_allowed(each), *([LEFT_OUT] if name in optional else [])] for name, each in arguments.items()
        }
        return str(value["name"]), allowed
    if len(value) != 1:
        raise LeapSerializationError("expected name and arguments, or one function's name", path=path)
    ((name, parameters),) = value.items()
    if not isinstance(parameters, Mapping) or not all(isinstance(each, list) for each in parameters.values()):
        raise LeapSerializationError("expected a list of allowed values for each parameter", path=f"{path}.{name}")
    return str(name), {parameter: list(each) for parameter, each in parameters.items()}


def _as_allowed(value: Any) -> Any:
    """One exact value in the leaderboard's form, in which an object's fields have lists of values."""
    if isinstance(value, Mapping):
        return {name: [_as_allowed(each)] for name, each in value.items()}
    return [_as_allowed(each) for each in value] if isinstance(value, list) else value


def _difference(
    name: str, allowed: Allowed, call: tuple[str, Mapping[str, Any]], types: Mapping[str, Any]
) -> str | None:
    called, arguments = call
    if _plain(called) != _plain(name):
        return f"called {called} instead of {name}"
    for parameter, values in allowed.items():
        if parameter not in arguments:
            if LEFT_OUT not in values:
                return f"{name}: {parameter} is missing"
        elif types.get(parameter) == "integer" and isinstance(arguments[parameter], float):
            return f"{name}: {parameter} is {arguments[parameter]!r}, and an integer was declared"
        elif not _is_allowed(values, arguments[parameter]):
            expected = " or ".join(repr(each) for each in values if each != LEFT_OUT)
            return f"{name}: {parameter} is {arguments[parameter]!r} instead of {expected}"
    further = next((parameter for parameter in arguments if parameter not in allowed), None)
    return None if further is None else f"{name}: {further} was not expected"


def _is_allowed(values: Sequence[Any], value: Any) -> bool:
    return any(_equal(each, value) or _is_itself(each, value) for each in values)


def _is_itself(expected: Any, value: Any) -> bool:
    """Whether an object is equal as it is: below its first level the leaderboard writes plain values."""
    return isinstance(expected, Mapping) and first_difference(expected, value) is None


def _equal(expected: Any, value: Any) -> bool:
    if isinstance(expected, str) and isinstance(value, str):
        return _normal(expected) == _normal(value)
    if isinstance(expected, Mapping) and isinstance(value, Mapping):
        expected = {name: each if isinstance(each, list) else [each] for name, each in expected.items()}
        wrong = [name for name in value if name not in expected]
        missing = [name for name, values in expected.items() if name not in value and LEFT_OUT not in values]
        return not wrong and not missing and all(_is_allowed(expected[name], value[name]) for name in value)
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(_equal, expected, value))
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    return bool(expected == value)


def _normal(text: str) -> str:
    return IGNORED.sub("", text).lower().replace("'", '"')


def _plain(name: str) -> str:
    return name.replace(".", "_")


def _matched(problems: Sequence[Sequence[str | None]]) -> bool:
    """Whether each expected call has a call of its own: a matching of the two sides."""
    owner: dict[int, int] = {}

    def place(n: int, seen: set[int]) -> bool:
        for m, problem in enumerate(problems[n]):
            if problem is None and m not in seen:
                seen.add(m)
                if m not in owner or place(owner[m], seen):
                    owner[m] = n
                    return True
        return False

    return all(place(n, set()) for n in range(len(problems)))


def _count(number: int) -> str:
    return "1 call" if number == 1 else f"{number} calls"


def _listed(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    return ", ".join(name for name, _ in calls) or "none"
