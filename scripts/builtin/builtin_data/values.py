"""Draws names, words, numbers and strings; what is drawn for evaluation is never drawn for training."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from typing import TypeVar
from zlib import crc32

from builtin_data import wordlists as lists
from builtin_data.phrases import phrases
from builtin_data.phrasing import expand, fill

T = TypeVar("T")
ONSETS = [
    "b",
    "c",
    "d",
    "f",
    "g",
    "h",
    "j",
    "k",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "t",
    "v",
    "w",
    "z",
    "br",
    "ch",
    "cl",
    "dr",
    "fl",
    "gr",
    "kr",
    "ph",
    "pl",
    "qu",
    "sh",
    "sk",
    "sl",
    "st",
    "th",
    "tr",
    "vr",
    "zh",
]
VOWELS = ["a", "a", "e", "e", "i", "i", "o", "o", "u", "ai", "ea", "ee", "ie", "io", "oa", "ou", "y"]
CODAS = ["", "", "", "l", "n", "r", "s", "t", "x", "m", "ck", "nd", "rn", "th", "k"]
ACCENTS = str.maketrans("aeioucnAEIOU", "áéíóúçñÁÉÍÓÚ")
LETTERS = string.ascii_letters
SENTENCES = phrases("sentences", "plain")
SMALL_WORDS = phrases("tokenizer", "whole_words")


def held_out(text: str) -> bool:
    """One value in eight belongs to the evaluation."""
    return crc32(text.lower().encode()) % 8 == 0


class Values:
    """A random source for one split, `train` or `eval`.

    `pieces` are texts of single tokens: a token that is never written in training cannot be written afterwards.
    """

    def __init__(self, rng: random.Random, split: str, pieces: Sequence[str] = ()) -> None:
        self.rng = rng
        self.split = split
        self.pieces = pieces

    def fresh(self, draw: Callable[[], str]) -> str:
        """Draw until the value belongs to this split."""
        for _ in range(200):
            value = draw()
            if held_out(value) == (self.split == "eval"):
                return value
        return value

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def integer(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    # words and names

    def _syllables(self, low: int = 1, high: int = 3) -> str:
        count = self.rng.randint(low, high)
        body = "".join(self.pick(ONSETS) + self.pick(VOWELS) for _ in range(count)) + self.pick(CODAS)
        return body[1:] if self.chance(0.1) and len(body) > 4 else body

    def _garble(self) -> str:
        size = self.rng.randint(2, 9)
        kind = self.rng.random()
        if kind < 0.4:
            return "".join(self.pick(string.ascii_lowercase) for _ in range(size))
        if kind < 0.7:
            return "".join(self.pick(LETTERS) for _ in range(size))
        return "".join(self.pick(LETTERS + string.digits) for _ in range(size))

    def invented(self) -> str:
        return self.fresh(lambda: self._syllables(1 if self.chance(0.2) else 2, 3))

    def coined(self) -> str:
        """A word in lower case that may name a function: of any list, or put together of tokens."""

        def draw() -> str:
            if self.pieces and self.chance(0.35):
                return "".join(self.pick(self.pieces) for _ in range(self.rng.randint(1, 2))).lower()
            return self.pick(lists.every_word()).lower()

        return self.fresh(lambda: next(text for text in iter(draw, None) if len(text) > 3 and text not in SMALL_WORDS))

    def random_string(self) -> str:
        return self.fresh(self._garble)

    def code(self) -> str:
        """An identifier such as `AB-1042`, `pump7`, `x9-k`."""

        def draw() -> str:
            letters = self.pick([string.ascii_uppercase, string.ascii_lowercase])
            head = "".join(self.pick(letters) for _ in range(self.rng.randint(1, 4)))
            tail = "".join(self.pick(string.digits) for _ in range(self.rng.randint(1, 5)))
            return head + self.pick(["-", "-", "", "_", "/"]) + tail

        return self.fresh(draw)

    def _proper(self, known: Sequence[str]) -> str:
        if self.chance(0.15):
            return self._any_word().capitalize()
        kind = self.rng.random()
        if kind < 0.6:
            return self.pick(known)
        if kind < 0.92:
            name = self._syllables(1, 3).capitalize()
        elif kind < 0.95:
            name = self._garble().capitalize()
        else:
            name = self._syllables(1, 2).capitalize() + "-" + self._syllables(1, 2).capitalize()
        return name.translate(ACCENTS) if self.chance(0.06) else name

    def _case(self, text: str) -> str:
        kind = self.rng.random()
        return text.lower() if kind < 0.07 else text.upper() if kind < 0.1 else text

    def first_name(self) -> str:
        return self._case(self.fresh(lambda: self._proper(lists.FIRST_NAMES)))

    def name(self) -> str:
        """A person: mostly one or two parts, sometimes three."""
        first = self.fresh(lambda: self._proper(lists.FIRST_NAMES))
        kind = self.rng.random()
        if kind < 0.45:
            return self._case(first)
        last = self.fresh(lambda: self._proper(lists.SURNAMES))
        if kind < 0.9:
            return self._case(f"{first} {last}")
        middle = self.pick(["de", "van", "von", "al", "O'", "M.", "Lee", "J."])
        return f"{first} {middle}{'' if middle.endswith(chr(39)) else ' '}{last}"

    def place_name(self) -> str:
        """A town, real or not."""
        kind = self.rng.random()
        city = self.fresh(lambda: self._proper(lists.CITIES))
        if kind < 0.08:
            city = self.pick(["New", "Port", "San", "Saint", "Upper", "North", "El"]) + " " + city
        elif kind < 0.1:
            city += " " + self.pick(["City", "Falls", "Bay", "upon Sea"])
        return self._case(city)

    def _any_word(self) -> str:
        """A word of any list, or pieces of words."""
        word = self.pick(lists.every_word())
        kind = self.rng.random()
        if kind < 0.5:
            return word
        if kind < 0.6:
            return word.capitalize()
        if kind < 0.8:
            return word + self._syllables(1, 1)[: self.rng.randint(1, 4)]
        pieces = [self.pick(lists.every_word()) for _ in range(self.rng.randint(1, 3))]
        return "".join(
            piece[(start := self.rng.randint(0, max(0, len(piece) - 2))) : start + self.rng.randint(1, 5)]
            for piece in pieces
        )

    def word(self) -> str:
        if self.pieces and self.chance(0.15):
            return self.pick(self.pieces) + (self.pick(self.pieces) if self.chance(0.3) else "")
        if self.chance(0.4):
            return self.fresh(self._any_word)
        return self.fresh(lambda: self.pick(lists.WORDS) if self.chance(0.75) else self._syllables(1, 3))

    def sentence(self) -> str:
        """A few plain words of everyday English, such as `see you at 8 pm`, with no stop at the end."""
        return fill(
            expand(self.rng, self.pick(SENTENCES)),
            w=self.word(),
            n=self.integer(2, 200),
            h=self.clock(),
            d=self.pick(lists.WEEKDAYS),
            name=self.first_name(),
            p=self.place_name(),
        )

    def phrase(self, low: int = 2, high: int = 5) -> str:
        """Any words in a row, now and then with small ones between, or a sentence."""
        kind = self.rng.random()
        if kind < 0.2 and high > 3:
            return self.sentence()
        if kind < 0.35 and high > 3:
            small = self.rng.random()
            count = self.rng.randint(low, high)
            return " ".join(self.pick(SMALL_WORDS) if self.chance(small) else self.word() for _ in range(count))
        return " ".join(self.word() for _ in range(self.rng.randint(low, high)))

    def item(self) -> str:
        """Goods as a customer names them, usually in the plural."""
        noun = self.fresh(lambda: self.pick(lists.ITEMS) if self.chance(0.6) else self._syllables(1, 2) + "s")
        kind = self.rng.random()
        if kind < 0.4:
            noun = self.pick(lists.ADJECTIVES) + " " + noun
        if kind > 0.95:
            noun += " " + self.code()
        return noun

    def title(self) -> str:
        """An event's name, in title case but for some everyday ones."""
        kind = self.pick(lists.EVENT_KINDS)
        if self.chance(0.12):
            head = self.fresh(lambda: self.pick([*lists.MEETING_HEADS, self.pick(lists.WORDS)]))
            plain = f"{head} {self.pick([*lists.MEETING_KINDS, kind.lower()])}"
            return self.pick([plain, plain, plain.capitalize(), kind])
        head = self.fresh(
            lambda: self.pick(lists.WORDS).capitalize() if self.chance(0.5) else self._syllables(1, 3).capitalize()
        )
        if self.chance(0.3):
            head += " " + self.fresh(lambda: self.pick(lists.WORDS).capitalize())
        return f"{head} {kind}"

    def venue(self) -> str:
        if self.chance(0.6):
            return self.place_name()
        kind = self.rng.random()
        if kind < 0.2:
            return f"Room {self.rng.randint(1, 400)}"
        if kind < 0.4:
            return self.pick(lists.EVERYDAY_PLACES)
        return f"{self.fresh(lambda: self._syllables(1, 3).capitalize())} {self.pick(lists.VENUE_KINDS)}"

    def email(self) -> str:
        user = self.fresh(lambda: self.pick(lists.FIRST_NAMES).lower() if self.chance(0.5) else self._syllables(1, 2))
        if self.chance(0.3):
            user += self.pick([".", "_", "-", ""]) + self.pick([self._syllables(1, 2), str(self.rng.randint(1, 99))])
        domain = self.pick(["example", "mail", "x", "acme", self._syllables(1, 2)])
        return f"{user}@{domain}.{self.pick(['com', 'org', 'net', 'io', 'de', 'co.uk'])}"

    # numbers, dates and times

    def number(self) -> int | float:
        kind = self.rng.random()
        if kind < 0.45:
            return self.rng.randint(0, 100)
        if kind < 0.65:
            return self.rng.randint(0, 10000)
        if kind < 0.7:
            return self.rng.randint(10000, 10**7)
        if kind < 0.8:
            return -self.rng.randint(1, 500)
        if kind < 0.97:
            return self.rng.randint(0, 10000) / self.pick([10, 100])
        return -self.rng.randint(1, 1000) / 10

    def price(self) -> int | float:
        if self.chance(0.45):
            return self.rng.randint(1, 500)
        return self.pick(
            [self.rng.randint(1, 99) + 0.99, self.rng.randint(1, 50) + 0.5, self.rng.randint(100, 99999) / 100]
        )

    def date(self) -> str:
        day, month, year = self.rng.randint(1, 28), self.rng.randint(1, 12), self.rng.randint(1990, 2035)
        name = lists.MONTHS[month - 1]
        suffix = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
        return self.pick(
            [
                f"{year}-{month:02d}-{day:02d}",
                f"{year}-{month:02d}-{day:02d}",
                f"{day} {name} {year}",
                f"{name} {day}, {year}",
                f"{day} {name}",
                f"{name} {day}",
                f"{name} {day}{suffix}",
                f"{day:02d}.{month:02d}.{year}",
                f"{month}/{day}/{year}",
                self.pick(lists.WEEKDAYS),
                f"{self.pick(lists.WEEKDAYS)}, {name} {day}",
                f"{day:02d}/{month:02d}/{year}",
            ]
        )

    def clock(self) -> str:
        hour, minute = self.rng.randint(0, 23), self.pick([0, 0, 15, 30, 45, self.rng.randint(0, 59)])
        half = self.rng.randint(1, 12)
        return self.pick(
            [
                f"{hour:02d}:{minute:02d}",
                f"{hour:02d}:{minute:02d}",
                f"{half} pm",
                f"{half} am",
                f"{half}pm",
                f"{half}:30 pm",
            ]
        )
