"""Repeating text to the letter."""

from __future__ import annotations

import string

from builtin_data.dialogue import Dialogue, ask
from builtin_data.manners import roughen
from builtin_data.phrases import phrases, sections
from builtin_data.phrasing import expand, fill
from builtin_data.values import Values

COLON = phrases("repeat", "colon")
BARE = phrases("repeat", "bare")
QUOTED = phrases("repeat", "quoted")
HEARD = [
    line for file in ("small_talk", "leap") for answer, asked in sections(file).items() for line in [answer, *asked]
]
UNICODE = "äöüßéèêñçøåæœłšžčřáíóúâîôûдажирусктенолмαβγδελπ日本語中文字東京한국어שלוםمرحبا€£→★☀♥😀🎉🚀…–“”«»"

RANGES = [(0xA1, 0xFF), (0x100, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA), (0x627, 0x64A)] + [
    (0x905, 0x939),
    (0x2010, 0x2027),
    (0x2190, 0x21FF),
    (0x2600, 0x26FF),
    (0x3041, 0x30FA),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0x1F300, 0x1F6FF),
]


def _character(values: Values) -> str:
    return values.pick(UNICODE) if values.chance(0.7) else chr(values.integer(*values.pick(RANGES)))


def _text(values: Values) -> str:
    kind = values.rng.random()
    if kind < 0.1:
        return values.phrase(1, 8)
    if kind < 0.25:
        sentence = values.sentence() if values.chance(0.75) else expand(values.rng, values.pick(HEARD))
        sentence = sentence.rstrip(".?! ")
        sentence = sentence[0].upper() + sentence[1:] if values.chance(0.6) else sentence
        return sentence + values.pick(["", "", ".", "!", "?"])
    if kind < 0.35:
        return values.word()
    if kind < 0.5:
        return " ".join(values.random_string() for _ in range(values.integer(1, 5)))
    if kind < 0.55:
        return values.code()
    if kind < 0.7:
        sentence = values.phrase(3, 12)
        sentence = sentence[0].upper() + sentence[1:] + values.pick([".", "!", "?", ".", ""])
        return sentence.replace(" ", values.pick([" ", ", ", " "]), 1)
    if kind < 0.76:
        return values.name() + values.pick(
            ["", " " + values.place_name(), " is " + values.word(), f" ({values.number()})"]
        )
    if kind < 0.82:
        return " ".join(str(values.number()) for _ in range(values.integer(1, 6)))
    if kind < 0.87:
        size = values.integer(1, 10)
        return values.fresh(
            lambda: values.phrase(0, 3) + " " + "".join(_character(values) for _ in range(size))
        ).strip()
    if kind < 0.92:
        alphabet = string.ascii_letters + string.digits + "-_/.:+*#@&%=?!,;()[]<>~^|$"
        return values.fresh(lambda: "".join(values.pick(alphabet) for _ in range(values.integer(3, 16))))
    if kind < 0.95:
        return values.phrase(2, 5) + "\n" + values.phrase(2, 5)
    return (
        values.pick(["the", "I am", "it is", "you are", "this is"])
        + " "
        + values.phrase(1, 6)
        + values.pick([".", "!", ""])
    )


def make(values: Values) -> Dialogue:
    text = _text(values)
    if values.chance(0.05):
        text = text.upper()
    elif values.chance(0.1) and " " not in text:
        text = " ".join([text] * values.integer(2, 4))
    kind = values.rng.random()
    if kind < 0.3 and '"' not in text:
        template = values.pick(QUOTED)
    elif kind < 0.45 and text.isascii() and "\n" not in text and text[0].isalnum():
        template = values.pick(BARE)
    else:
        template = values.pick(COLON)
    template = expand(values.rng, template)
    if values.chance(0.15):
        template = values.pick(["Please ", "Now ", "Ok, ", "Hi, ", "Next, "]) + template[0].lower() + template[1:]
    quote = values.pick(['"{}"', '"{}"', "'{}'", "“{}”"] if "'" not in text else ['"{}"'])
    if "\n" not in template.rstrip() and template.endswith("{t}"):
        template = roughen(values, template)
    return ask("repeat", fill(template, t=text, q=quote.replace("{}", text)), text)
