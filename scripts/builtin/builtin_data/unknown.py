"""Everything else: one sentence that says what this model is and which command fetches a real one."""

from __future__ import annotations

from builtin_data import wordlists as lists
from builtin_data.dialogue import Dialogue, ask
from builtin_data.manners import POLITE, THANKS, roughen
from builtin_data.phrases import phrases
from builtin_data.phrasing import expand, fill
from builtin_data.values import Values

DEMO = "I am only leap's built-in demo model; `leap download LFM2.5-1.2B-Instruct` fetches a real one."

REQUESTS = phrases("unknown", "requests")
QUESTIONS = phrases("unknown", "questions")
OTHER = phrases("unknown", "other")
STATEMENTS = phrases("unknown", "statements")


def question(values: Values) -> str:
    """Something this model cannot do."""
    if values.chance(0.13):
        return values.pick(OTHER)
    kind = values.rng.random()
    if kind < 0.47:
        template = POLITE + values.pick(REQUESTS) + THANKS + "[.|.||?|!]"
    elif kind < 0.92:
        template = "[|||||hey, |so |and |ok, |please, |tell me, |I wonder: |hi! ]" + values.pick(QUESTIONS)
    else:
        template = values.pick(STATEMENTS)
    template = expand(values.rng, template)
    if template[0] != "{" and values.chance(0.7):
        template = template[0].upper() + template[1:]
    topics, people = lists.TOPICS, lists.PEOPLE
    return fill(
        roughen(values, template),
        t=values.pick(topics) if values.chance(0.7) else values.phrase(1, 3),
        t2=values.pick(topics),
        w=values.word(),
        w2=values.word(),
        w3=values.word(),
        p=values.phrase(3, 7),
        s=values.random_string(),
        q=f'"{values.phrase(1, 4)}"' if values.chance(0.5) else values.phrase(1, 3),
        l=values.pick(lists.LANGUAGES),
        who=values.pick(people) if values.chance(0.6) else values.name(),
        city=values.place_name(),
        city2=values.place_name(),
        n=values.integer(2, 999),
        m=values.integer(2, 999),
        k=values.integer(2, 99),
        y=values.integer(1500, 2030),
        name=values.name(),
        h=values.clock(),
        code=values.code(),
        inv=values.invented().capitalize(),
    )


def make(values: Values) -> Dialogue:
    return ask("anything else", question(values), DEMO)
