"""Prompts with holes: ``Translate: {text}``. Only plain names stand in the braces; ``{{`` and ``}}`` are braces."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping
from typing import Any

from ..errors import LeapSerializationError

NAME = re.compile(r"[^\W\d][\w -]*")
"""Of a column or field: words, with spaces and hyphens as headers of tables have them."""


class LineTemplate:
    """A template and the names of its variables. A malformed one raises LeapSerializationError."""

    def __init__(self, text: str) -> None:
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
        if not self.names:
            raise LeapSerializationError(
                f"{text!r} has no variable, so every line would ask the same", path="template", hint="write {name}"
            )

    def fill(self, variables: Mapping[str, Any]) -> str:
        """The prompt; values that are no strings are written as JSON. A missing one raises LeapSerializationError."""
        missing = sorted(self.names - variables.keys())
        if missing:
            raise LeapSerializationError(f"the template needs {', '.join(missing)}")
        return "".join(literal + ("" if name is None else _text(variables[name])) for literal, name in self._pieces)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
