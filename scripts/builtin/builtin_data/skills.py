"""The skills by name, and the conversations that mix them."""

from __future__ import annotations

import random
from collections.abc import Callable

from builtin_data import calls, capitals, chat, counting, extraction, generic_records, memory, repeat, sums, unknown
from builtin_data.dialogue import Dialogue, Turn
from builtin_data.systems import system_prompt
from builtin_data.values import Values

Maker = Callable[[Values], Dialogue]


def _small(values: Values) -> list[Turn]:
    """One exchange of another skill, to stand between others."""
    maker = values.rng.choices([chat.make, capitals.make, unknown.make, sums.make, repeat.make], [5, 2, 3, 1, 1])[0]
    return maker(values).turns


SKILLS: dict[str, Maker] = {
    "chat": chat.make,
    "capitals": capitals.make,
    "extraction": extraction.make,
    "calls": calls.make_call,
    "tool answers": calls.make_answer,
    "sums": sums.make,
    "memory": lambda values: memory.make(values, _small),
    "repeat": repeat.make,
    "counting": counting.make,
    "anything else": unknown.make,
    "lists by a schema": extraction.make_list,
    "records of any kind": generic_records.make,
    "calls among five or six": calls.make_many,
    "counting to hundreds": counting.make_hundreds,
}
HARDER = {"lists by a schema", "records of any kind", "calls among five or six", "counting to hundreds"}
"""More than the model is meant for, told apart in its figures."""
WEIGHTS = {
    "chat": 8,
    "capitals": 6,
    "extraction": 60,
    "lists by a schema": 6,
    "records of any kind": 6,
    "calls": 44,
    "calls among five or six": 2,
    "tool answers": 7,
    "sums": 3,
    "memory": 6,
    "repeat": 14,
    "counting": 3,
    "anything else": 8,
}
ALONE = {"extraction", "calls", "tool answers", "memory"} | HARDER - {"counting to hundreds"}
LONG_SHARE = 0.008


def example(skill: str, split: str, seed: int) -> Dialogue:
    """One example of a skill, the same for the same seed; its last turn is the answer to be given."""
    values = Values(random.Random(f"{skill}/{split}/{seed}"), split)
    dialogue = SKILLS[skill](values)
    if skill not in ALONE:
        dialogue.system = system_prompt(values)
    return dialogue


def conversation(values: Values) -> Dialogue:
    """A training conversation: one skill, or several one after the other under one system prompt."""
    if values.chance(LONG_SHARE):
        return counting.make_long(values)
    name = values.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    dialogue = SKILLS[name](values)
    if name in ALONE:
        if not dialogue.tools and name == "extraction" and "JSON schema" not in dialogue.system and values.chance(0.4):
            dialogue = _continue(values, dialogue)
        return dialogue
    dialogue.system = system_prompt(values, 0.55)
    if values.chance(0.6):
        dialogue = _continue(values, dialogue)
    return dialogue


def _continue(values: Values, dialogue: Dialogue) -> Dialogue:
    """More exchanges after, each of any skill that needs no system prompt of its own."""
    turns = list(dialogue.turns)
    while values.chance(0.6) and len(turns) < 10:
        kind = values.rng.random()
        if kind < 0.2:
            more = extraction.make_plain(values).turns
        elif kind < 0.26:
            more = (
                memory.make(values, lambda _: []).turns
                if not any("Nice to meet you, " in t.content for t in turns)
                else chat.make(values).turns
            )
        else:
            more = values.pick([chat.make, capitals.make, repeat.make, sums.make, counting.make, unknown.make])(
                values
            ).turns
        if turns[-1].content.startswith("The capital of ") and values.chance(0.4):
            turns += capitals.follow_up(values).turns
            continue
        turns = more + turns if values.chance(0.3) and more[0].content else turns + more
    return Dialogue(dialogue.skill, turns, dialogue.system, dialogue.tools)
