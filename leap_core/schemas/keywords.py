"""Keywords that are checked otherwise than jsonschema does: exactly, as ECMA-262 says, and in bounded time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from .bounded_matching import check_time, matches
from .evaluated_properties import accepts, evaluated_properties

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

MOST_DIGITS = 1000
"""A number whose divisibility is checked has at most these."""

Keyword = Callable[[Any, Any, Any, Any], "Iterator[ValidationError] | None"]


@cache
def with_own_keywords(draft: type[Validator]) -> type[Validator]:
    """The draft with the keywords that are checked here, and a look at the clock in every keyword, because references
    and alternatives within each other may be followed exponentially often."""
    from jsonschema import validators

    own: dict[str, Any] = {"pattern": _pattern, "patternProperties": _pattern_properties}
    own["additionalProperties"] = _additional_properties
    own |= {name: check for name, check in (("anyOf", _any_of), ("oneOf", _one_of)) if name in draft.VALIDATORS}
    own["divisibleBy" if "divisibleBy" in draft.VALIDATORS else "multipleOf"] = _multiple_of
    if "unevaluatedProperties" in draft.VALIDATORS:
        own["unevaluatedProperties"] = _unevaluated_properties
    every: dict[str, Any] = {name: _timed(own.get(name, check)) for name, check in draft.VALIDATORS.items()}
    return validators.extend(draft, every)  # type: ignore[no-any-return,no-untyped-call]


def _timed(check: Any) -> Keyword:
    def timed(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
        check_time()
        errors: Iterator[ValidationError] | None = check(validator, value, instance, schema)
        return errors

    return timed


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(value, "string") and not matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    for pattern, schema in patterns.items():
        for name, item in value.items():
            if matches(pattern, name):
                yield from validator.descend(item, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(value, "object"):
        return
    listed, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = [n for n in value if n not in listed and not any(matches(pattern, n) for pattern in patterns)]
    if validator.is_type(allowed, "object"):
        for name in others:
            yield from validator.descend(value[name], allowed, path=name)
    elif not allowed and others:
        names = ", ".join(map(repr, sorted(others)))
        verb = "was" if len(others) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({names} {verb} unexpected)")


def _unevaluated_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(value, "object"):
        return
    evaluated = evaluated_properties(validator, value, schema)
    others = [name for name in value if name not in evaluated]
    wrong = [name for name in others if any(True for _ in validator.descend(value[name], allowed, path=name))]
    if wrong:
        names = ", ".join(map(repr, sorted(wrong)))
        verb = "was" if len(wrong) == 1 else "were"
        yield ValidationError(f"Unevaluated properties are not allowed ({names} {verb} unexpected)")


def _any_of(validator: Any, schemas: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """Without collecting the errors of every alternative, of which there may be exponentially many."""
    from jsonschema.exceptions import ValidationError

    if not any(accepts(validator, value, schema) for schema in schemas):
        yield ValidationError(f"{value!r} is not valid under any of the given schemas")


def _one_of(validator: Any, schemas: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    count = sum(accepts(validator, value, schema) for schema in schemas)
    if count == 0:
        yield ValidationError(f"{value!r} is not valid under any of the given schemas")
    elif count > 1:
        yield ValidationError(f"{value!r} is valid under {count} of the given schemas, and only one may fit")


def _multiple_of(validator: Any, factor: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """On decimal fractions: 1.13 is a multiple of 0.01."""
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(value, "number"):
        return
    if isinstance(value, int) and abs(value).bit_length() > 4 * MOST_DIGITS:
        yield ValidationError(f"a number of more than {MOST_DIGITS} digits cannot be checked for its factors")
    elif Fraction(str(value)) % Fraction(str(factor)):
        yield ValidationError(f"{value!r} is not a multiple of {factor}")
