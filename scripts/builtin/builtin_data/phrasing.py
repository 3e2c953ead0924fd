"""A small language for phrasings: `[hello|hi]` chooses and `{name}` is filled in."""

from __future__ import annotations

import random
import re

CHOICE = re.compile(r"\[([^\[\]]*)\]")
SLOT = re.compile(r"\{(\w+)\}")


def expand(rng: random.Random, template: str) -> str:
    """Resolve every `[a|b|]`, innermost first."""
    while match := CHOICE.search(template):
        choice = rng.choice(match.group(1).split("|"))
        template = template[: match.start()] + choice + template[match.end() :]
    return re.sub(r"  +", " ", template).strip(" ")


def alternatives(pattern: str) -> list[str]:
    """Split at the bars that are outside brackets."""
    parts, depth = [""], 0
    for char in pattern:
        depth += (char == "[") - (char == "]")
        if char == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def fill(template: str, **slots: object) -> str:
    """Put the values into their slots in one pass, so that braces inside a value are safe."""
    return SLOT.sub(lambda m: str(slots[m.group(1)]) if m.group(1) in slots else m.group(0), template)
