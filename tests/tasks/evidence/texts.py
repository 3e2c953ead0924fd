"""Texts with values whose places are known, written by chance, and what an extraction could have made of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

FIRST = [
    "Ann",
    "Bob",
    "Cleo",
    "Dora",
    "Emil",
    "Frida",
    "Gustav",
    "Hanna",
    "Igor",
    "Jonas",
    "Klara",
    "Ludwig",
    "Mara",
    "Nils",
    "Oskar",
    "Paula",
]
LAST = [
    "Lindberg",
    "Moreau",
    "Schneider",
    "Okafor",
    "Tanaka",
    "Rossi",
    "Novak",
    "Petersen",
    "Almeida",
    "Kowalski",
    "Fitzgerald",
    "Bergmann",
]
CITIES = ["Rome", "Oslo", "Paris", "Hamburg", "Lisbon", "Warsaw", "Stockholm", "Edinburgh", "Barcelona", "Budapest"]
GOODS = ["lamps", "chairs", "books", "tables", "clocks", "carpets", "kettles", "mirrors", "pillows", "baskets"]
STRANGERS = ["Zacharias Quibble", "Winnifred Uxbridge", "Barnaby Thistlewood", "Xenia Yarrow"]
FILLER = ["The weather was fine.", "Please reply soon.", "Nothing else was said.", "We met in May.", "Thanks! 😀👍"]
CJK = ("東京", "大阪", "京都", "札幌", "横浜"), ("田中", "佐藤", "鈴木", "高橋", "伊藤")
KINDS = ("plain", "repeated", "forms", "cjk", "emoji", "table", "noise", "long")


@dataclass
class Text:
    """A text, the document that was taken from it, and where each value stands; None for one that was invented."""

    kind: str
    text: str = ""
    document: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[int, int] | None] = field(default_factory=dict)

    def say(self, piece: str) -> None:
        self.text += piece

    def put(self, pointer: str, spelled: str) -> None:
        self.places[pointer] = (len(self.text), len(self.text) + len(spelled))
        self.text += spelled


def texts(count: int, seed: int = 41) -> list[Text]:
    """As many of each kind."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        text = Text(kind)
        WRITERS[kind](text, draw)
        _invent(text, draw)
        made.append(text)
    return made


def _name(draw: random.Random) -> str:
    return f"{draw.choice(FIRST)} {draw.choice(LAST)}"


def _day(draw: random.Random) -> date:
    return date(2019, 1, 1) + timedelta(days=draw.randrange(2500))


def _filler(text: Text, draw: random.Random) -> None:
    text.say(" " + " ".join(draw.sample(FILLER, 2)) + " ")


def _plain(text: Text, draw: random.Random) -> None:
    name, city, day, total = _name(draw), draw.choice(CITIES), _day(draw), draw.randrange(100, 9000)
    text.document = {"name": name, "city": city, "date": day.isoformat(), "total": total}
    _filler(text, draw)
    text.put("/name", name)
    text.say(" of ")
    text.put("/city", city)
    text.say(" wrote on ")
    text.put("/date", day.isoformat())
    text.say(". To pay: ")
    text.put("/total", str(total))
    text.say(" euros.")


def _repeated(text: Text, draw: random.Random) -> None:
    """The same names and numbers in several elements, one after the other."""
    names = [draw.choice(FIRST[:3]) for _ in range(draw.randrange(3, 7))]
    text.document = {"orders": []}
    for n, name in enumerate(names):
        count, what = draw.randrange(2, 5), draw.choice(GOODS[:3])
        text.document["orders"].append({"who": name, "count": count, "what": what})
        text.put(f"/orders/{n}/who", name)
        text.say(" bought ")
        text.put(f"/orders/{n}/count", str(count))
        text.say(" ")
        text.put(f"/orders/{n}/what", what)
        text.say(draw.choice([". ", "; ", ".\n"]))


def _forms(text: Text, draw: random.Random) -> None:
    """Numbers and dates that are spelled otherwise than in the document."""
    day, total, share = _day(draw), draw.randrange(1000, 99999) / 4, draw.randrange(1, 16)
    grouped = f"{total:,.2f}"
    month = day.strftime("%B")
    spelled = draw.choice([
        f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}", f"{day.day:02}.{day.month:02}.{day.year}",
        f"{day.year}/{day.month:02}/{day.day:02}", f"{day.day}. {month} {day.year}",
    ])  # fmt: skip
    german = grouped.translate(str.maketrans(",.", ".,"))
    number = draw.choice([grouped, german, grouped.replace(",", " ")])
    words = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
        "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen",
    ]  # fmt: skip
    text.document = {"date": day.isoformat(), "total": total, "people": share}
    text.say("On ")
    text.put("/date", spelled)
    text.say(" we paid EUR ")
    text.put("/total", number)
    text.say(" for ")
    text.put("/people", words[share])
    text.say(" guests.")
    _filler(text, draw)


def _cjk(text: Text, draw: random.Random) -> None:
    city, name, day = draw.choice(CJK[0]), draw.choice(CJK[1]), _day(draw)
    text.document = {"name": name, "city": city, "date": day.isoformat(), "count": draw.randrange(2, 90)}
    text.say("昨日は雨でした。")
    text.put("/city", city)
    text.say("に住む")
    text.put("/name", name)
    text.say("さんは")
    text.put("/date", f"{day.year}年{day.month}月{day.day}日")
    text.say("に本を")
    text.put("/count", str(text.document["count"]))
    text.say("冊買いました。")


def _emoji(text: Text, draw: random.Random) -> None:
    name, city = _name(draw), draw.choice(CITIES)
    text.document = {"name": name, "city": city, "note": "see you 🎉"}
    text.say("👩‍👩‍👧 🇫🇷 Hi 😀😀! ")
    text.put("/name", name)
    text.say(" 🏙️ ")
    text.put("/city", city)
    text.say(" — ")
    text.put("/note", "see you 🎉")
    text.say(" 👋🏽")


def _table(text: Text, draw: random.Random) -> None:
    text.document = {"rows": []}
    text.say("| name | count | city | price |\n|---|---|---|---|\n")
    for n in range(draw.randrange(3, 8)):
        name, count = _name(draw), draw.randrange(1, 5)
        city, price = draw.choice(CITIES[:3]), draw.randrange(20, 60) + 0.5
        text.document["rows"].append({"name": name, "count": count, "city": city, "price": price})
        for field_name, spelled in (("name", name), ("count", str(count)), ("city", city), ("price", f"{price:.2f}")):
            text.say("| ")
            text.put(f"/rows/{n}/{field_name}", spelled)
            text.say(" ")
        text.say("|\n")


def _noise(text: Text, draw: random.Random) -> None:
    """As a poor recognition of printed characters would have it."""
    name, city, total = _name(draw), draw.choice(CITIES[3:]), draw.randrange(1000, 9000)
    text.document = {"name": name, "city": city, "total": total}
    text.say("lnvoice f0r ")
    text.put("/name", _damaged(name, draw))
    text.say(" in ")
    text.put("/city", _damaged(city, draw))
    text.say("\nT0tal: ")
    digits = str(total)
    text.put("/total", digits.replace("0", "O", 1) if draw.random() < 0.5 else digits)
    text.say(" EUR")


def _damaged(word: str, draw: random.Random) -> str:
    swaps = {"o": "0", "l": "1", "i": "l", "s": "5", "e": "c", "n": "m", "a": "o"}
    places = [n for n, char in enumerate(word) if char in swaps]
    place = draw.choice(places)
    return word[:place] + swaps[word[place]] + word[place + 1 :]


def _long(text: Text, draw: random.Random) -> None:
    """Names that are also said elsewhere, and fields that are called by their names."""
    name, number, total = _name(draw), draw.randrange(10, 99), draw.randrange(1000, 9999)
    text.document = {"number": number, "customer": name, "total": total}
    text.say("Invoice\n\nnumber: ")
    text.put("/number", str(number))
    text.say("\ncustomer: ")
    text.put("/customer", name)
    text.say("\n\n")
    for _ in range(30):
        text.say(f"{draw.choice(FILLER)} {draw.randrange(100, 999)} {draw.choice(CITIES)}. ")
    text.say(f"\nsum {total + 1}, tax {number + 100}\ntotal: ")
    text.put("/total", str(total))
    text.say(f"\nWe thank {name} for the order {number}.\n")


def _invent(text: Text, draw: random.Random) -> None:
    """Values that are not in the text."""
    text.document["stranger"] = draw.choice(STRANGERS)
    text.document["account"] = draw.randrange(10**6, 10**7)
    text.document["due"] = date(2031, draw.randrange(1, 13), draw.randrange(1, 29)).isoformat()
    other = [name for name in FIRST if name not in text.text]
    text.document["clerk"] = f"{draw.choice(other)} {draw.choice(LAST)}"
    for name in ("stranger", "account", "due", "clerk"):
        text.places[f"/{name}"] = None


WRITERS: dict[str, Callable[[Text, random.Random], None]] = {
    "plain": _plain, "repeated": _repeated, "forms": _forms, "cjk": _cjk,
    "emoji": _emoji, "table": _table, "noise": _noise, "long": _long,
}  # fmt: skip
