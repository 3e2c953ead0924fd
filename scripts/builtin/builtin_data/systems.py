"""System prompts: usually none or a plain one, sometimes one made up on the spot."""

from __future__ import annotations

from builtin_data import wordlists as lists
from builtin_data.values import Values


def system_prompt(values: Values, none: float = 0.5) -> str:
    if values.chance(none):
        return ""
    if values.chance(0.75):
        return values.pick(lists.SYSTEM_PROMPTS)
    role = values.pick(lists.JOBS + ["assistant", "bot", "robot", "guide", "expert"])
    return values.pick(
        [
            f"You are {values.first_name()}, a {role}.",
            f"You are a {values.word()} {role}. {values.pick(lists.SYSTEM_PROMPTS)}",
            f"You are the assistant of {values.name()}. Be {values.pick(lists.ADJECTIVES)}.",
            f"Context: {values.phrase(3, 8)}.",
            f"Rules: {values.phrase(2, 4)}; {values.phrase(2, 4)}.",
            f"{values.pick(lists.SYSTEM_PROMPTS)} {values.pick(lists.SYSTEM_PROMPTS)}",
            f"You know everything about {values.pick(lists.TOPICS)}.",
        ]
    )
