"""Pairs of a query and the passage that answers it, made from the passages themselves."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache
from typing import NamedTuple

from builtin_data.passages import WORD, Passage, invented_passage, passages, plain
from builtin_data.phrases import phrases

INVENTED = 0.2
FREQUENT = 90
"""So many of the commonest words say little, and are seldom taken into a query."""


class Pair(NamedTuple):
    """``key`` is the same for all pairs of one passage: none of them is a wrong answer to another."""

    query: str
    passage: str
    key: int


@cache
def synonyms() -> dict[str, tuple[str, ...]]:
    """Each word or phrase with those that may stand for it."""
    table: dict[str, list[str]] = {}
    for line in phrases("synonyms", "groups"):
        group = [word.strip() for word in line.split(",")]
        for word in group:
            table.setdefault(word, []).extend(other for other in group if other != word)
    return {word: tuple(dict.fromkeys(others)) for word, others in table.items()}


@cache
def frequent_words() -> frozenset[str]:
    counted = Counter(word.lower() for passage in passages() for word in WORD.findall(passage.text))
    return frozenset(word for word, _ in counted.most_common(FREQUENT))


def _replaced(text: str, rng: random.Random, part: float) -> str:
    """Some words as others would say them; plurals and endings aside."""
    table = synonyms()

    def other(match: re.Match[str]) -> str:
        word = match[0].lower()
        for stem, ending in ((word, ""), (word.removesuffix("s"), "s"), (word.removesuffix("ed"), "ed")):
            if stem in table and rng.random() < part:
                return rng.choice(table[stem]) + ("s" if ending == "s" else "")
        return match[0]

    return WORD.sub(other, text)


def _cased(text: str, rng: random.Random) -> str:
    chance = rng.random()
    if chance < 0.5:
        return text.lower()
    return text[:1].upper() + text[1:] if chance < 0.9 else text


def _keywords(text: str, rng: random.Random) -> str:
    """A few of the telling words, mostly in order."""
    words = [word for word in WORD.findall(text) if word.lower() not in frequent_words() or rng.random() < 0.15]
    if not words:
        return text
    chosen = sorted(rng.sample(range(len(words)), min(len(words), rng.randint(2, 6))))
    if rng.random() < 0.3:
        rng.shuffle(chosen)
    return " ".join(words[index] for index in chosen)


def _sentence(text: str, rng: random.Random) -> tuple[str, str]:
    """One sentence and, mostly, the text without it."""
    parts = [part for part in re.split(r"(?<=[.:;!?])\s+|\n", text) if len(part.split()) > 3]
    if len(parts) < 2:
        return text, text
    chosen = rng.choice(parts)
    rest = " ".join(part for part in parts if part is not chosen)
    return chosen, rest if rng.random() < 0.6 and len(rest.split()) > 7 else text


def _window(text: str, rng: random.Random) -> str:
    """The text, or a part of it: passages are cut in other places when they are searched."""
    words = text.split(" ")
    if rng.random() < 0.5 or len(words) < 40:
        return text
    first = rng.randrange(len(words) // 3)
    return " ".join(words[first : first + rng.randint(30, len(words))])


def make_pair(rng: random.Random) -> Pair:
    if rng.random() < INVENTED:
        return _pair_of(invented_passage(rng), rng.getrandbits(48) + 10**6, rng)
    index = rng.randrange(len(passages()))
    return _pair_of(passages()[index], index, rng)


def _pair_of(passage: Passage, key: int, rng: random.Random) -> Pair:
    text = plain(passage.text) if rng.random() < 0.4 else passage.text
    chance = rng.random()
    if chance < 0.3:
        query = passage.heading if rng.random() < 0.5 else f"{passage.heading} {_keywords(text, rng)}"
    elif chance < 0.65:
        query = _keywords(_sentence(text, rng)[0] if rng.random() < 0.6 else text, rng)
    else:
        query, text = _sentence(text, rng)
        words = query.split()
        query = " ".join(word for word in words if rng.random() > 0.25) or query
    query = _replaced(plain(query), rng, 0.4).strip(" .:;>")
    query = rng.choice(phrases("synonyms", "questions")).format(query)
    if rng.random() < 0.6:
        text = f"{passage.heading}\n{text}"
    text = _replaced(_window(text, rng), rng, 0.08)
    return Pair(" ".join(_cased(query, rng).split()[:40]), text, key)
