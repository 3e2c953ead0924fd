"""Personal data that an expression finds, whatever the model lists: mail addresses, telephone numbers, IBANs, card
numbers and URLs.

An IBAN counts with its check digits (ISO 13616), a card with its check digit (ISO/IEC 7812), a telephone number with 7
to 15 digits (E.164) that are written as one: with +, a bracket, a leading zero, or in parts between
spaces, hyphens or dots.
"""

from __future__ import annotations

import re
from collections.abc import Callable

URL = re.compile(
    r"\b(?:https?|ftp)://[^\s<>\"'`|\\^{}\[\]]{1,2048}"
    r"|\bwww\.[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?:/[^\s<>\"']{0,2048})?"
)
MAIL = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
CARD = re.compile(r"(?<![\d+])\d(?:[ -]?\d){12,18}(?!\d)")
PHONE = re.compile(r"(?<![\w.,:/-])(?:\+|00)?\(?\d(?:[ \t./()-]{0,3}\d){5,14}(?![\w/-]|[.,:]\d)")
NO_PHONE = re.compile(r"\d{1,4}([-./ ])\d{1,2}\1\d{1,4}|\d{1,3}(\.\d{1,3}){3}")
"""Dates and addresses of networks."""
TRAILING = ".,;:!?)'\""


def _iban(text: str) -> bool:
    plain = text.replace(" ", "")
    moved = plain[4:] + plain[:4]
    return 15 <= len(plain) <= 34 and int("".join(str(int(char, 36)) for char in moved)) % 97 == 1


def _card(text: str) -> bool:
    digits = [int(char) for char in text if char.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) if n % 2 else digit for n, digit in enumerate(reversed(digits))]
    return len(set(digits)) > 1 and sum(doubled) % 10 == 0


def _phone(text: str) -> bool:
    digits = sum(char.isdigit() for char in text)
    if not 7 <= digits <= 15 or NO_PHONE.fullmatch(text) or text.count("(") != text.count(")"):
        return False
    return text[0] in "+(0" or bool(re.search(r"\d[ \t/-]+\(?\d|\d\.\d+\.\d", text))


def _always(_text: str) -> bool:
    return True


PATTERNS: dict[str, tuple[re.Pattern[str], Callable[[str], bool]]] = {
    "url": (URL, _always),
    "email_address": (MAIL, _always),
    "iban": (IBAN, _iban),
    "card_number": (CARD, _card),
    "phone_number": (PHONE, _phone),
}
"""By category, in the order of looking: what one has found is not looked at by those after it."""
CATEGORIES = tuple(PATTERNS)


def found_by_pattern(text: str, categories: tuple[str, ...] = CATEGORIES) -> dict[str, list[str]]:
    """What the expressions of these categories find, each text once, in the order of its first place."""
    found: dict[str, list[str]] = {}
    for category, (pattern, check) in PATTERNS.items():
        if category not in categories:
            continue
        items = (match[0].rstrip(TRAILING) if category in ("url", "email_address") else match[0].strip()
                 for match in pattern.finditer(text))  # fmt: skip
        found[category] = list(dict.fromkeys(item for item in items if item and check(item)))
        for item in found[category]:
            text = text.replace(item, "\0")
    return {category: items for category, items in found.items() if items}
