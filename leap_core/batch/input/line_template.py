"""Prompts with holes: ``Translate: {text}``. Only plain names stand in the braces; ``{{`` and ``}}`` are braces."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Container, Mapping
from typing import Any

from ...errors import LeapSerializationError

NAME = re.compile(r"[^\W\d][\w -]*")
"""A column or field is named by words, with spaces and hyphens as headers of tables have them."""


INPUT, PROMPT = "input", "prompt"
"""``{input}`` is a line's own input or, where it has none, its prompt."""


class LineTemplate:
    """A template and the names of its variables. A malformed one raises LeapSerializationError.

    ``defaults``: values of variables that a line does not have, of a saved prompt; such a template may have no
    variable, and a line's input follows it where it has no place for that.
    """

    def __init__(self, text: str, defaults: Mapping[str, str] | None = None) -> None:
        self._defaults = defaults or {}
        self._pieces: list[tuple[str, str | None]] = []
        try:
            for literal, name, specification, conversion in string.Formatter().parse(text):
                if name is not None and (not NAME.fullmatch(name) or specification or conversion):
                    raise ValueError(f"{{{name}}} is not a plain name")
                self._pieces.append((literal, name))
        except ValueError as error:
            raise LeapSerializationError(
                f"{error} in {text!r}", path="template", hint="write {name} for a variable and {{ for a brace"
            ) from None
        self.names = frozenset(name for _, name in self._pieces if name is not None)
        self._is_followed = defaults is not None and INPUT not in self.names
        if not self.names and defaults is None:
            raise LeapSerializationError(
                f"{text!r} has no variable, so every line would ask the same", path="template", hint="write {name}"
            )

    def fill(self, variables: Mapping[str, Any]) -> str:
        """The prompt; values that are no strings are written as JSON. A missing one raises LeapSerializationError."""
        missing = self.missing(variables)
        if missing:
            raise LeapSerializationError(f"the template needs {', '.join(missing)}")
        values = {INPUT: variables.get(PROMPT), **self._defaults, **variables}
        text = "".join(literal + ("" if name is None else _text(values[name])) for literal, name in self._pieces)
        question = _text(values[INPUT]) if self._is_followed and values[INPUT] is not None else ""
        return f"{text}\n\n{question}" if question else text

    def missing(self, names: Container[str]) -> list[str]:
        """The variables that have no value where a line has these names."""
        input_is_there = INPUT in names or PROMPT in names
        missing = [name for name in self.names if name not in names and name not in self._defaults]
        return sorted(name for name in missing if not (name == INPUT and input_is_there))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
