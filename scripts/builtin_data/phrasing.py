"""A small language for phrasings: `[hello|hi]` chooses, `{name}` is filled in, and people type carelessly."""

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


def roughen(rng: random.Random, template: str) -> str:
    """Lower case, shouting, a missing or changed full stop: applied to the wording, never to the slots."""
    if rng.random() < 0.35:
        template = template.rstrip("?.!")
    style = rng.random()
    if style < 0.3:
        return SLOT.sub(lambda m: m.group(0), template.lower())
    if style < 0.34:
        return re.sub(r"\{\w+\}|[^{}]+", lambda m: m.group(0) if m.group(0)[0] == "{" else m.group(0).upper(), template)
    return template


def fill(template: str, **slots: object) -> str:
    """Put the values into their slots in one pass, so that braces inside a value are safe."""
    return SLOT.sub(lambda m: str(slots[m.group(1)]) if m.group(1) in slots else m.group(0), template)


def say(rng: random.Random, template: str, **slots: object) -> str:
    """One careless wording of a template."""
    return fill(roughen(rng, expand(rng, template)), **slots)


POLITE = "[||||||please |hey, |hi, |ok, |could you |can you |can you please |I need you to |now ]"
THANKS = "[|||||| please|, please| for me| now|, thanks]"
