"""National numbers by their form and check digits, and numbers that a word such as ``passport`` names.

The forms are those that the authorities of each country publish. A number whose form alone would take in too much
counts only where a word before it says what it is: then its check digits are not asked, since a mistyped number is
personal data, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Letters of the writings that put no space between words, or attach endings to any word: they end no word."""
LETTER = rf"[^\W_{UNSPACED}]"
"""A letter or digit that belongs to the word beside it."""
BEFORE, AFTER = rf"(?<!{LETTER})", rf"(?!{LETTER})"
DIGITS = r"(?<!\d[.,:/-])", r"(?![.,:/-]\d)"
SEPARATOR = "[ \u00a0\u2007\u2009\u202f\u2010-\u2013./-]?"


def weighted(digits: Sequence[int], *weights: int) -> int:
    """The sum of digits times weights."""
    return sum(digit * weight for digit, weight in zip(digits, weights, strict=False))


def luhn(digits: Sequence[int]) -> bool:
    """Whether the last digit is that of ISO/IEC 7812."""
    return sum(sum(divmod(2 * digit, 10)) if n % 2 else digit for n, digit in enumerate(reversed(digits))) % 10 == 0


def _mod_11_10(digits: Sequence[int]) -> bool:
    product = 10
    for digit in digits[:-1]:
        product = ((product + digit) % 10 or 10) * 2 % 11
    return (product + digits[-1]) % 10 == 1


def _verhoeff(digits: Sequence[int]) -> bool:
    shuffle, row, value = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4), list(range(10)), 0
    for digit in reversed(digits):
        other = row[digit]
        if value < 5:
            value = (value + other) % 5 + (5 if other > 4 else 0)
        else:
            value = (value - other) % 5 + (0 if other > 4 else 5)
        row = [row[each] for each in shuffle]
    return value == 0


def _day(text: str, *, months: int = 12) -> bool:
    """Whether six digits are a day: year, month, day or day, month, year."""
    first, month, last = int(text[:2]), int(text[2:4]), int(text[4:6])
    return 1 <= month <= months and (1 <= first % 40 <= 31 or 1 <= last <= 31)


def _germany(text: str, digits: Sequence[int]) -> bool:
    return 7 < len(set(digits[:10])) < 10 and _mod_11_10(digits)


def _france(text: str, digits: Sequence[int]) -> bool:
    return (int(text[:-2].replace("2A", "19").replace("2B", "18")) + int(text[-2:])) % 97 == 0


def _spain(text: str, digits: Sequence[int]) -> bool:
    return text[-1] == "TRWAGMYFPDXBNJZSQVHLCKE"[int(text[:-1].translate({88: "0", 89: "1", 90: "2"})) % 23]


def _netherlands(text: str, digits: Sequence[int]) -> bool:
    return weighted(digits, 9, 8, 7, 6, 5, 4, 3, 2, -1) % 11 == 0


def _poland(text: str, digits: Sequence[int]) -> bool:
    day = 1 <= int(text[2:4]) % 20 <= 12 and 1 <= int(text[4:6]) <= 31
    return day and weighted(digits, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1) % 10 == 0


def _austria(text: str, digits: Sequence[int]) -> bool:
    day = _day(text[4:], months=15)
    return day and weighted(digits, 3, 7, 9, -1, 5, 8, 4, 2, 1, 6) % 11 == 0


def _brazil(text: str, digits: Sequence[int]) -> bool:
    return len(set(digits)) > 1 and all(
        weighted(digits, *range(length + 1, 1, -1)) * 10 % 11 % 10 == digits[length] for length in (9, 10)
    )


def _china(text: str, digits: Sequence[int]) -> bool:
    values = [10 if char in "Xx" else int(char) for char in text]
    return weighted(values, *(2 ** (17 - n) % 11 for n in range(18))) % 11 == 1


def _japan(text: str, digits: Sequence[int]) -> bool:
    rest = weighted(digits, 6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2) % 11
    return digits[11] == (0 if rest < 2 else 11 - rest)


def _belgium(text: str, digits: Sequence[int]) -> bool:
    return any((int(century + text[:9]) + int(text[9:])) % 97 == 0 for century in ("", "2"))


def _portugal(text: str, digits: Sequence[int]) -> bool:
    rest = weighted(digits, *range(9, 1, -1)) % 11
    return digits[8] == (0 if rest < 2 else 11 - rest)


def _norway(text: str, digits: Sequence[int]) -> bool:
    first = weighted(digits, 3, 7, 6, 1, 8, 9, 4, 5, 2, 1) % 11 == 0
    return first and weighted(digits, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1) % 11 == 0


def _finland(text: str, digits: Sequence[int]) -> bool:
    return text[-1] == "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(text[:6] + text[-4:-1]) % 31]


def _ireland(text: str, digits: Sequence[int]) -> bool:
    second = ord(text[8]) - 64 if len(text) > 8 and text[8] != "W" else 0
    return ord(text[7]) - 64 == (weighted(digits, 8, 7, 6, 5, 4, 3, 2) + 9 * second) % 23 or text[7] == "W"


def _turkey(text: str, digits: Sequence[int]) -> bool:
    tenth = (7 * sum(digits[0:9:2]) - sum(digits[1:8:2])) % 10
    return tenth == digits[9] and sum(digits[:10]) % 10 == digits[10]


def _romania(text: str, digits: Sequence[int]) -> bool:
    rest = weighted(digits, 2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9) % 11
    return _day(text[1:]) and digits[12] == (1 if rest == 10 else rest)


def _form(text: str, digits: Sequence[int]) -> bool:
    return True


def _with_day(text: str, digits: Sequence[int]) -> bool:
    return _day(text[:6], months=12) or _day(text[2:8]) or (51 <= int(text[2:4]) <= 62)


FORMS: list[tuple[str, Callable[[str, Sequence[int]], bool]]] = [
    (r"(?!000|666|9)\d{3}[- ](?!00)\d\d[- ](?!0000)\d{4}", _form),  # United States
    (r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]~\d\d~\d\d~\d\d~[A-D]", _form),  # United Kingdom
    (r"\d{3} \d{3} \d{4}", lambda _, it: weighted(it, *range(10, 0, -1)) % 11 == 0),
    (r"[1-9]\d~\d{3}~\d{3}~\d{3}", _germany),
    (r"\d\d~(?:0[1-9]|[1-9]\d)(?:0[1-9]|1[0-2])\d\d~[A-Z]~\d{3}", _form),
    (r"[1-478]~\d\d~(?:0[1-9]|[1-9]\d)~(?:\d\d|2[AB])~\d{3}~\d{3}~\d\d", _france),
    (r"(?:\d{2}~\d{3}~\d{3}|[XYZ]~\d{7})~[A-Z]", _spain),
    (r"[A-Z]{3}~[A-Z]{3}~\d\d[A-EHLMPR-T]\d\d~[A-Z]\d{3}[A-Z]", _form),  # Italy
    (r"\d{4}[. ]\d\d[. ]\d{3}", _netherlands),
    (r"\d{11}", _poland),
    (r"\d{6}[-+]\d{4}", _with_day),  # Sweden, Denmark, Latvia
    (r"(?:19|20)\d{6}~\d{4}", lambda text, it: _day(text[2:]) and luhn(it[2:])),
    (r"\d{4}~\d{6}", _austria),
    (r"756~\d{4}~\d{4}~\d\d", lambda _, it: weighted(it, *(1, 3) * 6, 1) % 10 == 0),  # Switzerland
    (r"\d{3}[- ]\d{3}[- ]\d{3}", lambda _, it: luhn(it)),  # Canada
    (r"\d{3} \d{3} \d{3}", lambda _, it: weighted(it, 1, 4, 3, 7, 5, 8, 6, 9, 10) % 11 == 0),  # Australia
    (r"\d{3}~\d{3}~\d{3}~\d\d", _brazil),
    (r"[2-9]\d{3}~\d{4}~\d{4}(?![ -]\d)", lambda _, it: _verhoeff(it)),  # India
    (r"[A-Z]{3}[ABCFGHJLPT][A-Z]\d{4}[A-Z]", _form),
    (r"[1-9]\d{5}~(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])~\d{3}[\dXx]", _china),
    (r"\d{4}[ -]\d{4}[ -]\d{4}(?![ -]\d)", _japan),
    (r"\d\d~\d\d~\d\d~\d{3}~\d\d", _belgium),
    (r"[1-9]\d\d \d{3} \d{3}", _portugal),
    (r"\d{6}~\d{5}", _norway),
    (r"\d{6}[-+A-FU-Y]\d{3}[\dA-FHJ-NPR-Y]", _finland),
    (r"\d{7}[A-W][A-IW]?", _ireland),
    (r"\d{6}/\d{3,4}", _with_day),  # Czechia, Slovakia
    (r"\d{6}-[1-8]\d{6}", _with_day),  # Korea
    (r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z\d]\d", _form),  # Mexico
    (r"\d{6}~\d{4}~\d{3}", lambda text, it: _day(text) and luhn(it)),  # South Africa
    (r"[1-9]\d{10}", _turkey),
    (r"[STFGM]\d{7}[A-Z]", _form),  # Singapore
    (r"[1-8]\d{12}", _romania),
    (r"784~(?:19|20)\d\d~\d{7}~\d", _form),  # United Arab Emirates
]
"""Forms of national numbers with what checks them; ``~`` is a separator that may be left out."""
PASSPORT = (
    r"passports?|passeports?|reisep[aä]ss\w*|passnummer|pass-?nr|pasaportes?|passaport[oei]s?|paspoort\w*|paszport\w*"
    r"|pasaport\w*|pasnummer|cestovní pas|passi\w*numero|паспорт\w*|护照|護照|旅券|パスポート|여권"
)
NATIONAL = (
    r"social security|national insurance|steuer-?(?:id\w*|nummer|nr)|identifikationsnummer|sozialversicherungs\w+"
    r"|rentenversicherungs\w+|(?:personal)?ausweis\w*|s[ée]curit[ée] sociale|carte d['’]identité|codice fiscale"
    r"|carta d['’]identità|burgerservicenummer|personnummer|personnr|fødselsnummer|henkilötunnus|rijksregister\w+"
    r"|rodné číslo|contribuinte|seguridad social|documento de identidad|aadhaar|my number|tax file|social insurance"
    r"|(?:identity|id) card|national id|id number|driv(?:ing|er'?s|er) licen[cs]e|führerschein\w*|permis de conduire"
    r"|kimlik|medicare|マイナンバー|個人番号|身份证\w*|주민등록번호|运转免许"
    r"|(?-i:SSN|ITIN|NHS|NINO|NI|IdNr|NIR|DNI|NIE|NIF|BSN|PESEL|CPR|HETU|AHV|AVS|SIN|TFN|CPF|PAN|PPSN?|CURP|NRIC|TCKN?"
    r"|CNP|SVNR|RG)"
)
PHONE = (
    r"tel|(?:tele)?phones?|telefon\w*|téléphone|teléfono|tlf|mobiles?|mobil\w*|móvil|celular|cellulare|cell|handy|gsm"
    r"|fax|whatsapp|call|ring|dial|appelez|llame|llama|chiam\w+|bel|тел|телефон\w*|電話|电话|手机|携帯|전화"
)
BETWEEN = (
    r"(?:\W{0,3}(?:(?:numbers?|no|nr|num|num[eé]ro|n[úu]mero|nummer|numer|nº|n°|id|me|us|at|on|is|ist|est|es|è|jest|är|er)"
    rf"{AFTER}|号码|番号|번호|号|は|是|为)){{0,3}}\W{{0,4}}"
)
ITEM = (
    rf"(?=[A-Za-z]{{0,5}}{SEPARATOR}\d)(?:[A-Za-z0-9]{{6,20}}{AFTER}"
    rf"|[A-Z]{{0,3}}(?:{SEPARATOR}[A-Z]?\d){{5,17}}(?:{SEPARATOR}[A-Z])?{AFTER})"
)
CALLED = rf"[+(]{{0,2}}\d(?:[ ()\u00a0./\u2010-\u2013-]{{0,3}}\d){{6,14}}{AFTER}"
MACHINE_READABLE = re.compile(r"(?<![A-Z0-9<])(?:[A-Z0-9<]{44}|[A-Z0-9<]{36}|[A-Z0-9<]{30})(?![A-Z0-9<])")
"""A line of a passport or card for machines (ICAO 9303); it has ``<``."""


@cache
def _forms() -> list[tuple[re.Pattern[str], Callable[[str, Sequence[int]], bool]]]:
    before, after = BEFORE + DIGITS[0], AFTER + DIGITS[1]
    return [(re.compile(before + form.replace("~", SEPARATOR) + after), check) for form, check in FORMS]


@cache
def _named(label: str, item: str) -> re.Pattern[str]:
    return re.compile(rf"(?i){BEFORE}(?:{label}){AFTER}{BETWEEN}({item})")


def named_numbers(label: str, item: str, text: str) -> Iterator[tuple[int, int]]:
    """The numbers after such a word."""
    for match in _named(label, item).finditer(text):
        if sum(map(str.isdigit, match[1])) > 3:
            yield match.span(1)


def passports(text: str) -> Iterator[tuple[int, int]]:
    """The numbers of passports that are called so, and their lines for machines."""
    yield from named_numbers(PASSPORT, ITEM, text)
    yield from (match.span() for match in MACHINE_READABLE.finditer(text) if "<" in match[0])


def national_numbers(text: str) -> Iterator[tuple[int, int]]:
    """The national numbers, by their check or by the word before them."""
    yield from named_numbers(NATIONAL, ITEM, text)
    for form, check in _forms():
        for match in form.finditer(text):
            plain = "".join(filter(str.isalnum, match[0]))
            if check(plain, [int(char) for char in plain if char.isdigit()]):
                yield match.span()
