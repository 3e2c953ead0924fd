"""Text as man(7) takes it: escaped, so that whatever is in it is shown and nothing in it is obeyed."""

from __future__ import annotations

import re

SPECIAL = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", '"': r"\(dq", "^": r"\(ha", "~": r"\(ti"}
"""Characters that roff would obey, or turn into their typographic siblings."""
_CODE = re.compile(r"`([^`]+)`")


def escaped(text: str) -> str:
    """One line of text. Characters beyond ASCII become the escapes that every roff knows."""
    line = "".join(
        SPECIAL.get(char, char if char.isascii() and char.isprintable() else f"\\[u{ord(char):04X}]") for char in text
    )
    return rf"\&{line}" if line.startswith(".") else line


def prose(text: str) -> str:
    """A paragraph on one line, what is in backticks bold."""
    parts = _CODE.split(" ".join(text.split()))
    line = "".join(bold(part) if number % 2 else escaped(part).removeprefix(r"\&") for number, part in enumerate(parts))
    return rf"\&{line}" if line.startswith((".", "'")) else line


def bold(text: str) -> str:
    """What is typed as it is."""
    return rf"\fB{escaped(text)}\fR"


def italic(text: str) -> str:
    """What represents something else."""
    return rf"\fI{escaped(text)}\fR"


def quoted(text: str) -> str:
    """An argument of a request such as ``.SH``."""
    return f'"{escaped(text)}"'


def code(lines: tuple[str, ...]) -> list[str]:
    """Lines as they stand, indented."""
    return [".PP", ".RS 4", ".EX", *(escaped(line) for line in lines), ".EE", ".RE"]
