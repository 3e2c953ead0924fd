"""Equations of docx and pptx, and readings of words (ruby), in a line of text."""

from __future__ import annotations

from collections.abc import Callable

from .builder import Builder

ARGUMENTS = {"sup": "^", "sub": "_", "num": "", "den": "/", "deg": "", "lim": "_"}
"""What an argument begins with. One of several characters is put in parentheses."""
AROUND = {"rad": ("√(", ")"), "d": ("(", ")"), "m": ("", ""), "mr": ("", "; "), "e": ("", "")}
BEGINNINGS = ARGUMENTS | {tag: begin for tag, (begin, _) in AROUND.items()}
OPERATORS = ("nary", "chr", "begChr", "endChr")
ELEMENTS = {"oMath", "rt", "rubyBase", *OPERATORS, *BEGINNINGS}


class Equations:
    """Writes the equations of a part into its paragraphs. ``_open``: arguments: the element, where it begins in the
    paragraph, what ends it."""

    def __init__(self, builder: Builder, words: Callable[[str], None]) -> None:
        self._builder, self._words = builder, words
        self._depth = 0
        self._open: list[tuple[str, int, str]] = []
        self._reading = ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Begin one of ``ELEMENTS``."""
        if tag == "oMath":
            self._depth += 1
        elif self._depth and tag in OPERATORS:
            self._operator(tag, attributes.get("val", ""))
        elif self._depth and tag in BEGINNINGS:
            self._words(BEGINNINGS[tag])
            self._open.append((tag, len(self._builder.parts), AROUND.get(tag, ("", ""))[1]))
        elif tag == "rt":
            self._open.append((tag, len(self._builder.parts), ""))

    def end(self, tag: str) -> None:
        """End one of ``ELEMENTS``."""
        if tag == "oMath":
            self._depth -= 1
        elif tag == "rt" and self._open:
            self._reading = self._cut()
        elif tag == "rubyBase" and self._reading:
            self._words(f"({self._reading})")
            self._reading = ""
        elif self._depth and self._open and tag in BEGINNINGS:
            end = self._open[-1][2]
            argument = self._cut().removesuffix("; ").removesuffix(", ")
            is_long = tag in ARGUMENTS and len(argument) > 1
            self._builder.words(f"({argument})" if is_long else argument)
            self._builder.words(", " if tag == "e" and self._open and self._open[-1][0] == "mr" else end)

    def _operator(self, tag: str, sign: str) -> None:
        """The sign of an integral or sum, or a parenthesis, which may be another one than is written at first."""
        if tag == "endChr":
            self._open[-1:] = [(*each[:2], sign) for each in self._open[-1:]]
        elif self._builder.parts[-1:] == [{"begChr": "(", "chr": "∫"}.get(tag)]:
            self._builder.parts[-1] = sign
        else:
            self._words("∫" if tag == "nary" else sign)

    def _cut(self) -> str:
        position = self._open.pop()[1]
        text = "".join(self._builder.parts[position:])
        del self._builder.parts[position:]
        return text
