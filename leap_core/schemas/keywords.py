"""Keywords that are checked otherwise than jsonschema does: exactly, as ECMA-262 says, and in linear time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from .grammar_matcher import GrammarError, byte_tokenizer
from .patterns import python_pattern

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

REPEATED_GROUP = re.compile(r"\)[+*{]")
LONG = 16
"""Characters from which on a repeated group may take Python's ``re``, which goes back and tries again, too long."""
LINE_BREAKS = dict.fromkeys(map(ord, "\n\r\t"))


@cache
def with_own_keywords(draft: type[Validator]) -> type[Validator]:
    """The draft with ``pattern`` and ``multipleOf`` as they are checked here."""
    from jsonschema import validators

    own: dict[str, Any] = {"pattern": _pattern}
    own["divisibleBy" if "divisibleBy" in draft.VALIDATORS else "multipleOf"] = _multiple_of
    return validators.extend(draft, own)  # type: ignore[no-any-return,no-untyped-call]


def matches(pattern: str, text: str) -> bool:
    """Whether an expression of JSON Schema matches somewhere in the text."""
    if len(text) >= LONG and REPEATED_GROUP.search(pattern) and text.translate(LINE_BREAKS).isprintable():
        found = _matches_in_linear_time(pattern, text)
        if found is not None:
            return found
    return re.search(_translated(pattern), text) is not None


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(value, "string") and not matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _multiple_of(validator: Any, factor: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """On decimal fractions: 1.13 is a multiple of 0.01."""
    from jsonschema.exceptions import ValidationError

    if validator.is_type(value, "number") and Fraction(str(value)) % Fraction(str(factor)):
        yield ValidationError(f"{value!r} is not a multiple of {factor}")


def _matches_in_linear_time(pattern: str, text: str) -> bool | None:
    """By llguidance's expressions, which never go back; None where they cannot say the pattern."""
    from llguidance import LLMatcher

    grammar = LLMatcher.grammar_from_json_schema(json.dumps({"type": "string", "pattern": pattern}))
    try:
        matcher = byte_tokenizer().matcher(grammar)
    except GrammarError:
        return None
    tokens = list(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


@cache
def _translated(pattern: str) -> str:
    return python_pattern(pattern)
