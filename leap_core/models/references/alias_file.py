"""Names that the user gives to models: the table ``aliases`` of config.toml.

[aliases]
coder = "LFM2.5-1.2B-Instruct:Q8_0"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...configuration import read_table
from ...errors import LeapOptionsError, LeapSerializationError

NAME = re.compile(r"[^\W_][\w+-]*(\.[\w+-]+)*")
ENDINGS = (".gguf", ".json", ".bundle")
BUILTINS = ("builtin", "builtin-vl", "builtin-audio", "builtin-embed")
"""The models that leap brings along: one that reads, one that sees, one that hears, one that embeds."""


def read_aliases(file: Path) -> dict[str, str]:
    """The aliases in config.toml, by their names in lower case. What is no alias, or no file, gives none: those who
    change the file hear what is wrong with it."""
    with suppress(LeapSerializationError):
        table = read_table(file).get("aliases")
        if isinstance(table, dict):
            return {name.lower(): model for name, model in table.items() if isinstance(model, str) and model}
    return {}


def check_alias(name: str, model: str) -> None:
    """Raises LeapOptionsError for a name that would be read as a path or a reference, and for an empty model."""
    if not NAME.fullmatch(name) or name.lower().endswith(ENDINGS) or name.lower() in BUILTINS:
        raise LeapOptionsError("alias", f"{name!r} cannot be a model's name: letters, digits and .+-_ only")
    if not model.strip():
        raise LeapOptionsError("alias", f"{name!r} must stand for a model")


def expand(reference: str, quantization: str | None, aliases: Mapping[str, str]) -> tuple[str, str | None]:
    """The reference that an alias means, and the quantization that was asked for beside it. Anything else is
    returned as it is; an alias of an alias is not looked up."""
    name, colon, after = reference.strip().partition(":")
    model = aliases.get(name.lower())
    if model is None or (colon and "/" in after):
        return reference, quantization
    return model, after if colon and quantization is None else quantization
