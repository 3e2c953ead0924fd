"""Checks of single options: is it a number, is it in its range, is there such an option."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import Any, TypeVar

from ..errors import LeapOptionsError

LARGEST = 2**64 - 1
"""The largest whole number of an option."""
CLOSED_TO_EXTRAS = {"extras", "cache_options", "logit_bias", "function_call_parser", "adapters"}
"""Options that ``extras`` cannot give."""


def plain_number(value: object) -> object:
    """A number of Python for one of numpy's, which no JSON can hold; anything else as it is."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()  # type: ignore[attr-defined]
    return value


def suggestion(name: str, names: Iterable[str]) -> str:
    """ "; did you mean 'x'?" where a name is like one of ``names``, else nothing."""
    from difflib import get_close_matches

    near = get_close_matches(name, names, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


Kind = TypeVar("Kind")


def refusing_unknown(kind: type[Kind]) -> type[Kind]:
    """A dataclass of options whose constructor raises LeapOptionsError for a name that is none of them."""
    fill: Callable[..., None] = kind.__init__
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]

    @wraps(fill)
    def checked(self: Kind, *values: object, **options: object) -> None:
        for name in options:
            if name not in names:
                raise LeapOptionsError(name, f"there is no such option{suggestion(name, names)}")
        fill(self, *values, **options)

    kind.__init__ = checked  # type: ignore[assignment]
    return kind


def is_number(value: object) -> bool:
    """Whether this is a number; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """Whether a float can hold it."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer larger than any float
        return False


def are_texts(value: object) -> bool:
    """Whether this is a list of texts, none of them empty."""
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(text, str) and text for text in value)


def check_number(name: str, value: object, low: float, high: float) -> None:
    """Raises LeapOptionsError unless the value is None or a finite number from ``low`` to ``high``."""
    if value is None:
        return
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not is_finite(value):
        raise LeapOptionsError(name, f"{value!r} is not a finite number")
    if not low <= value <= high:
        limits = f"{low:g} or more" if high == math.inf else f"between {low:g} and {high:g}"
        raise LeapOptionsError(name, f"{value!r} must be {limits}")


def check_integer(name: str, value: object, low: int) -> None:
    """Raises LeapOptionsError unless the value is None or a whole number from ``low`` on."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise LeapOptionsError(name, f"{value!r} is not a whole number")
    if value < low:
        raise LeapOptionsError(name, f"{value} must be {low} or more")
    if value > LARGEST:
        raise LeapOptionsError(name, f"{value} must be {LARGEST} or less")


def read_extras(names: Collection[str], text: str) -> dict[str, Any]:
    """The plain options of these ``names`` in an ``extras`` text; what is no number, text, list or boolean cannot be
    given there. Raises LeapOptionsError."""
    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LeapOptionsError("extras", f"not JSON: {error}") from None
    if not isinstance(options, dict):
        raise LeapOptionsError("extras", "must be a JSON object")
    for name in options:
        if name not in names or name in CLOSED_TO_EXTRAS:
            raise LeapOptionsError(f"extras.{name}", "there is no such option")
    return options
