"""Texts with places in them: ``{input}`` for what is asked, ``{name}`` for variables.

Only names that have a value are places; all other braces, such as those of JSON, stand as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

INPUT = "{input}"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLACE = re.compile(rf"\{{({NAME.pattern})\}}")


@dataclass(frozen=True)
class Pattern:
    """``text`` and the values of its variables, by name."""

    text: str = INPUT
    values: Mapping[str, str] = field(default_factory=dict)

    def fill(self, question: str) -> str:
        """The text with ``question`` in the place of ``{input}``, or after it where it has none; empty where the place
        has no text. What a value says is not looked at again."""
        if INPUT in self.text:
            return self._filled({**self.values, "input": question}) if question else ""
        text = self._filled(self.values)
        return f"{text}\n\n{question}" if question else text

    def fill_variables(self) -> str:
        """The text with its variables filled in; ``{input}`` stays as it is."""
        return self._filled(self.values)

    def escaped(self, names: Iterable[str]) -> str:
        """The text as patterns of lines are written: places of ``{input}``, of the values and of these names stay, all
        other braces are doubled."""
        places = {*self.values, *names, "input"}
        pieces, at = [], 0
        for place in PLACE.finditer(self.text):
            if place[1] in places:
                pieces += [_doubled(self.text[at : place.start()]), place[0]]
                at = place.end()
        return "".join([*pieces, _doubled(self.text[at:])])

    def _filled(self, values: Mapping[str, str]) -> str:
        return PLACE.sub(lambda place: values.get(place[1], place[0]), self.text)


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def names_in(*texts: str | None) -> tuple[str, ...]:
    """The names that stand in braces in these texts, each once, without ``input``."""
    names = (place[1] for text in texts for place in PLACE.finditer(text or ""))
    return tuple(dict.fromkeys(name for name in names if name != "input"))
