"""Numbers in words: English, German, French, Spanish and Italian, up to 999,999."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

WORD = re.compile(r"[^\W\d_]+")
GAP = re.compile(r"[ \u00a0-]")
JOINED = re.compile(r"(hundert|tausend|cientos|cientas|cento|mila)")
"""Parts that numbers of one word are made of."""
HUNDREDS = frozenset(("hundred", "hundert", "cent", "cents", "cien", "ciento", "cientos", "cientas", "cento"))
THOUSANDS = frozenset(("thousand", "tausend", "mille", "mil", "mila"))
Level = tuple[frozenset[str], int]
LEVELS: tuple[Level, ...] = ((THOUSANDS, 1000), (HUNDREDS, 100))
AND = frozenset(("and", "und", "et", "y", "e"))
ARTICLES = ("a", "an", "ein", "eine", "einen", "einem", "einer", "eines", "un", "une", "una")
OTHER_MEANINGS = frozenset((*ARTICLES, "uno", "due", "once", "elf", "cent", "cents", "mil", "sei", "dix", "neuf"))
"""Words that mean something else as often, in their own language or another."""
LONGEST = 4
UNITS = {
    "en": (
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen",
        "twenty thirty forty fifty sixty seventy eighty ninety",
    ),
    "de": (
        "null eins zwei drei vier funf sechs sieben acht neun zehn elf zwolf dreizehn vierzehn funfzehn sechzehn "
        "siebzehn achtzehn neunzehn",
        "zwanzig dreissig vierzig funfzig sechzig siebzig achtzig neunzig",
    ),
    "fr": (
        "zero un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept "
        "dix-huit dix-neuf",
        "vingt trente quarante cinquante soixante soixante-dix quatre-vingt quatre-vingt-dix",
    ),
    "es": (
        "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciseis "
        "diecisiete dieciocho diecinueve",
        "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
    ),
    "it": (
        "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici "
        "diciassette diciotto diciannove",
        "venti trenta quaranta cinquanta sessanta settanta ottanta novanta",
    ),
}


@cache
def _values() -> dict[str, int]:
    """The values of the numbers below 100, whose parts have hyphens between them, and of words that count as one."""
    values = {"dozen": 12, "dutzend": 12, "douzaine": 12, "docena": 12, "dozzina": 12, "quinientos": 500}
    values |= {"setecientos": 700, "novecientos": 900, "quatre-vingts": 80}
    values |= dict.fromkeys(ARTICLES, 1)
    for language, (small, large) in UNITS.items():
        ones, tens = small.split(), large.split()
        values |= {word: number for number, word in enumerate(ones)}
        for number, ten in enumerate(tens, 2):
            values[ten] = 10 * number
            bare = language == "fr" and number in (7, 9)  # soixante-dix: the tens of sixty and eighty go to nineteen
            before = tens[number - 3] if bare else ten
            for one in range(1, 10):
                word = ones[10 + one] if bare else ones[one]
                values |= dict.fromkeys(_joined(language, before, word), 10 * number + one)
    return values


def _joined(language: str, ten: str, one: str) -> tuple[str, ...]:
    """How tens and ones are written together."""
    if language == "de":
        return (f"{'ein' if one == 'eins' else one}und{ten}",)
    if language == "it":
        return (f"{ten[:-1] if one[0] in 'uo' else ten}{one}",)
    if language == "es":
        return (f"veinti{one}", "veintiun") if ten == "veinte" else (f"{ten}-y-{one}",)
    return (f"{ten}-et-{one}", f"{ten}-{one}") if language == "fr" else (f"{ten}-{one}",)


def _plain(word: str) -> str:
    """A word in small letters without accents."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFD", word.lower().replace("ß", "ss"))
    return "".join(char for char in decomposed if char.isalpha())


Part = tuple[str, int, int]


def numerals_in(text: str, *, all_words: bool = False) -> Iterator[tuple[int, int, float]]:
    """Start, end and value of each number in words. ``all_words``: also of words that mean something else as often,
    such as articles."""
    run: list[Part] = []
    for match in WORD.finditer(text):
        if run and not (match.start() == run[-1][2] + 1 and GAP.match(text, run[-1][2])):
            yield from _numbers_of(run, all_words)
            run = []
        parts = [part for part in JOINED.split(_plain(match[0])) if part]
        known = all(part in _values() or part in HUNDREDS or part in THOUSANDS or part in AND for part in parts)
        if known:
            run += [(part, *match.span()) for part in parts]
        elif run:
            yield from _numbers_of(run, all_words)
            run = []
    yield from _numbers_of(run, all_words)


def _numbers_of(run: list[Part], all_words: bool) -> Iterator[tuple[int, int, float]]:
    """The numbers of words that follow each other."""
    at = 0
    while at < len(run):
        end, value = _number_at(run, at)
        if end == at:
            at += 1
            continue
        if all_words or end > at + 1 or run[at][0] not in OTHER_MEANINGS:
            yield run[at][1], run[end - 1][2], float(value)
        at = end


def _number_at(run: list[Part], at: int, levels: tuple[Level, ...] = LEVELS) -> tuple[int, int]:
    """Where a number that begins at a word ends, and its value; the same place for none."""
    if not levels:
        return _below_hundred(run, at)
    (words, size), smaller = levels[0], levels[1:]
    end, value = _number_at(run, at, smaller)
    if end == len(run) or run[end][0] not in words:
        return end, value
    whole, behind = (value or 1) * size, end + 1
    has_and = behind < len(run) and run[behind][0] in AND
    end, rest = _number_at(run, behind + has_and, smaller)
    return (end if rest else behind), whole + rest


def _below_hundred(run: list[Part], at: int) -> tuple[int, int]:
    for count in range(min(LONGEST, len(run) - at), 0, -1):
        value = _values().get("-".join(part for part, _, _ in run[at : at + count]))
        if value is not None:
            return at + count, value
    return at, 0
