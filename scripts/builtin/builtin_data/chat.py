"""Small talk, and questions about leap itself: one answer for each intent, many ways to ask."""

from __future__ import annotations

from builtin_data.dialogue import Dialogue, ask
from builtin_data.manners import say
from builtin_data.phrases import sections
from builtin_data.phrasing import expand
from builtin_data.values import Values


def _table(file: str) -> list[tuple[list[str], str]]:
    return [(questions, answer) for answer, questions in sections(file).items()]


_SMALL_TALK, _LEAP = _table("small_talk"), _table("leap")
LEAD = "[||||||||||hi, |hey, |ok, |so, |please, |hello! |and |one question: |tell me: ]"
TAIL = "[||||||||||| please| now| then| exactly]"


def make(values: Values) -> Dialogue:
    leap = values.chance(0.55)
    questions, answer = values.pick(_LEAP if leap else _SMALL_TALK)
    template = values.pick(questions)
    if leap:
        mark = "?" if template.endswith("?") else ""
        template = expand(values.rng, LEAD + template.rstrip("?") + TAIL) + mark
        if values.chance(0.05):
            template += values.pick(["?", "??", "!", " :)"])
    elif values.chance(0.25) and template[-1].isalpha():
        template += values.pick([".", "!", "?", "!!", " :)", ", assistant", ", friend", " leap"])
    template = template.replace(
        "how do I", values.pick(["how do I", "how do I", "how can I", "how do you", "how would I"])
    )
    if values.chance(0.5):
        template = template[0].upper() + template[1:]
    return ask("chat", say(values, template), answer)
