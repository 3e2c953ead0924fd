"""Redaction: the model and expressions list personal data, and every occurrence is masked.

An IBAN counts with its check digits (ISO 13616), a card with its check digit (ISO/IEC 7812), a telephone number with 7
to 15 digits (E.164) that are written as one: with +, a bracket, a leading zero, or in parts between
spaces, hyphens or dots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count

from ..conversation.messages import ChatMessage
from ..conversation.options import GenerationOptions
from ..errors import LeapConstraintError, LeapGenerationError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .task import Prompt, Task, TaskAnswer, TaskModel, halves_between_sentences, pieces_that_fit, text_of

URL = re.compile(
    r"\b(?:https?|ftp)://[^\s<>\"'`|\\^{}\[\]]{1,2048}"
    r"|\bwww\.[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?:/[^\s<>\"']{0,2048})?"
)
MAIL = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
GAP = "[ \\t\u00a0\u2007\u2009\u202f\u2010-\u2013-]"
"""What people write between the groups of a number, no-break and narrow spaces among it."""
IBAN = re.compile(rf"(?<![^\W_])[A-Za-z]{{2}}\d{{2}}(?:{GAP}?[A-Za-z0-9]){{11,30}}")
CARD = re.compile(rf"(?<![\w+])\d(?:{GAP}?\d){{12,18}}(?![^\W_])")
CARD_GROUPS = re.compile(r"\d+|\d{4}\D\d{6}\D\d{4,5}|\d{4}(?:\D\d{4}){3}(?:\D\d{3})?")
PHONE = re.compile(rf"(?<![^\W_])(?<!\d[.,:/-])[+(]{{0,2}}\d(?:(?:{GAP}|[./()]){{0,3}}\d){{6,18}}")
DAY, MONTH = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])"
NO_PHONE = re.compile(
    rf"(?<!\d)(?:{DAY}([-./]){MONTH}\1(?:19|20)?\d\d|{MONTH}([-/]){DAY}\2(?:19|20)?\d\d"
    rf"|(?:19|20)\d\d([-./]){MONTH}\3{DAY}|\d{{1,3}}(?:\.\d{{1,3}}){{3}})(?![\d]|[-./]\d)"
)
"""Dates and addresses of networks."""
TRAILING = ".,;:!?)'\""
IBAN_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL",
        19: "MK SI",
        20: "AT BA EE KZ LT LU XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU",
        31: "MT SC",
        32: "LC",
    }.items()
    for country in countries.split()
}
"""Characters of an IBAN by country (ISO 13616's registry)."""


def _iban(text: str) -> bool:
    plain = "".join(char for char in text if char.isalnum()).upper()
    moved = plain[4:] + plain[:4]
    length = IBAN_LENGTHS.get(plain[:2])
    if not (15 <= len(plain) <= 34 if length is None else len(plain) == length):
        return False
    return int("".join(str(int(char, 36)) for char in moved)) % 97 == 1


def _card(text: str) -> bool:
    if not CARD_GROUPS.fullmatch(text):
        return False
    digits = [int(char) for char in text if char.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) if n % 2 else digit for n, digit in enumerate(reversed(digits))]
    return len(digits) > 12 and len(set(digits)) > 1 and sum(doubled) % 10 == 0


def _phone(text: str) -> bool:
    digits = sum(char.isdigit() for char in text)
    if not 7 <= digits <= 15 or text.count("(") != text.count(")"):
        return False
    return text[0] in "+(0" or bool(re.search(rf"\d(?:{GAP}|/)+\(?\d|\d\.\d+\.\d", text))


def _whole(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for match in pattern.finditer(text):
        yield match[0].rstrip(TRAILING)


def _parts(pattern: re.Pattern[str], check: Callable[[str], bool], text: str) -> Iterator[str]:
    """Which of the neighbouring numbers passes the check: the longest from each group on."""
    place = 0
    while match := pattern.search(text, place):
        groups = [(each.start(), each.end()) for each in re.finditer(r"[+(]*[^\W_]+\)?", match[0])]
        start = match.start()
        place = match.end() if len(groups) < 2 else start + groups[1][0]
        if match[0][0] == "(":  # it may belong to the sentence
            place = start + 1
        for _, end in reversed(groups):
            candidate = match[0][:end]
            if check(candidate) and not re.match(r"[^\W_]", text[start + end : start + end + 1]):
                yield candidate
                place = start + end
                break


PATTERNS: dict[str, Callable[[str], Iterator[str]]] = {
    "url": partial(_whole, URL),
    "email_address": partial(_whole, MAIL),
    "iban": partial(_parts, IBAN, _iban),
    "card_number": partial(_parts, CARD, _card),
    "phone_number": lambda text: _parts(PHONE, _phone, NO_PHONE.sub("\0", text)),
}
"""By category, in the order of looking: what one has found is not looked at by those after it."""
PATTERN_CATEGORIES = tuple(PATTERNS)


def found_by_pattern(text: str, categories: tuple[str, ...] = PATTERN_CATEGORIES) -> dict[str, list[str]]:
    """What the expressions of these categories find, each text once, in the order of its first place."""
    found: dict[str, list[str]] = {}
    for category, find in PATTERNS.items():
        if category not in categories:
            continue
        found[category] = list(dict.fromkeys(item for item in find(text) if item))
        for item in sorted(found[category], key=len, reverse=True):
            text = text.replace(item, "\0")
    return {category: items for category, items in found.items() if items}


LABEL = re.compile(
    r"(?i)(?:(?:full|first|last|credit|debit|bank|postal|home|work|phone)\s+)?"
    r"(?:name|card|iban|account|phone|telephone|tel|mobile|cell|fax|e-?mail|mail|website|url|address|contact)s?"
    r"(?:\s+(?:number|no|nr))?\b[.:#\s]*"
)
"""What is written before a value, such as ``Phone:`` and ``Card``."""
POSSESSIVE = re.compile(r"['’]s(?:\s+[^\W\d_]+)*\W*$")
AROUND = " \t\r\n.,;:!?\"“”'‘’<>"
NAME_PARTICLES = re.compile(r"al|bin|da|das|d[eiu]|del|della|den|der|dos|el|ibn|l[ae]|te[nr]|van|von|zum?")
NAMES = ("human_name", "company_name")
PHONE_DIGITS = re.compile(r"[+(]{0,2}\d(?:[\d\s()./\u2010-\u2013-]*\d)?")


def trimmed(category: str, item: str) -> str:
    """What a model listed without the words around it: a name without ``'s phone:``, a telephone number from its first
    digit to its last. Empty where nothing of its kind is left."""
    if category == "phone_number":
        found = max(PHONE_DIGITS.findall(item), key=len, default="")
        return found if sum(map(str.isdigit, found)) > 2 else ""
    if category == "email_address":
        words = [word.strip(AROUND) for word in item.split() if "@" in word or "\uff20" in word]
        return words[0] if words else "" if LABEL.search(item) else item.strip(AROUND)
    if category in NAMES:
        item = POSSESSIVE.sub("", item)
    item = item.lstrip(AROUND)
    label = LABEL.match(item)
    item = (item[label.end() :] if label else item).strip(AROUND)
    words = item.split()
    if category in (*NAMES, "address") and item != item.lower():  # else the whole text may be in small letters
        while words and words[0].isalpha() and words[0].islower() and not NAME_PARTICLES.fullmatch(words[0]):
            item = item[len(words.pop(0)) :].lstrip()
        while category in NAMES and words and words[-1].isalpha() and words[-1].islower():
            item = item[: -len(words.pop())].rstrip()
    return item.strip(AROUND)


def refined(text: str, category: str, item: str, certain: Collection[str]) -> Iterator[str]:
    """What is left of what a model listed, wherever it is in the text, without what is ``certain``."""
    taken, place = [], 0
    for piece, is_certain in _cut(text, certain):
        taken += [(place, place + len(piece))] if is_certain else []
        place += len(piece)
    for match in re.finditer(re.escape(item), text):
        start, end = match.span()
        for low, high in (*taken, (end, end)):
            if low < end and high > start or low == end:
                yield trimmed(category, text[start : max(start, low)])
                start = max(start, high)


UNUSED = [chr(code) for code in range(0xE000, 0xF8FF)]
"""Private characters: masks of the last resort, where words would do harm."""


def mask(text: str, entities: Mapping[str, Sequence[str]], certain: Collection[str] = ()) -> tuple[str, dict[str, str]]:
    """The text with every occurrence of every entity masked, and what each mask represents. ``entities`` by category;
    those that are ``certain`` go before the others, and longer ones before shorter ones.

    Masks look like ``[HUMAN_NAME_1]``, numbered as they appear, with numbers that the text has none of yet. Where an
    entity would be found in one, they are made of characters that occur in neither.
    """
    listed = {item: category for category, items in entities.items() for item in items if item}
    pieces = _cut(text, certain, [item for item in listed if item not in certain])
    found = {piece: listed[piece] for piece, is_item in pieces if is_item}
    masks = _named(found, text)
    masked = "".join(masks[piece] if is_item else piece for piece, is_item in pieces)
    if any(item in masked for item in listed):
        masks = _unnamed(text + "".join(listed), found)
        masked = "".join(masks[piece] if is_item else piece for piece, is_item in pieces)
    return masked, {each: item for item, each in masks.items()}


def _cut(text: str, *groups: Collection[str]) -> list[tuple[str, bool]]:
    """The text in pieces, and whether each is one of the items; those of the first group are looked for first."""
    pieces = [(text, False)]
    for items in groups:
        pattern = "|".join(map(re.escape, sorted(items, key=len, reverse=True)))
        pieces = [
            (part, is_item or n % 2 == 1)
            for piece, is_item in pieces
            for n, part in enumerate([piece] if is_item or not items else re.split(f"({pattern})", piece))
        ]
    return pieces


def count_masks(masked: str, masks: Mapping[str, str], entities: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How often each category is masked in a text."""
    categories = {item: category for category, items in entities.items() for item in items}
    counts = dict.fromkeys(entities, 0)
    for each, item in masks.items():
        counts[categories[item]] += masked.count(each)
    return {category: count for category, count in counts.items() if count}


def unmask(text: str, masks: Mapping[str, str]) -> str:
    """The original text."""
    return _replaced(text, masks)


def _named(categories: Mapping[str, str], text: str) -> dict[str, str]:
    numbers = {category: count(1) for category in categories.values()}
    masks = {}
    for item, category in categories.items():
        names = (f"[{category.upper()}_{number}]" for number in numbers[category])
        masks[item] = next(name for name in names if name not in text)
    return masks


def _unnamed(text: str, categories: Iterable[str]) -> dict[str, str]:
    used = set(text)
    edge, mark = [char for char in UNUSED if char not in used][:2]
    return {item: edge + mark * number + edge for number, item in enumerate(categories, 1)}


def _replaced(text: str, replacements: Mapping[str, str]) -> str:
    """In one pass, longer ones first."""
    if not replacements:
        return text
    pattern = "|".join(map(re.escape, sorted(replacements, key=len, reverse=True)))
    return re.sub(pattern, lambda match: replacements[match[0]], text)


CATEGORIES = ("address", "company_name", "email_address", "human_name", "phone_number")
MOST, LONGEST = 20, 80
"""Items of a list and characters of an item: a list that has as many may leave something out."""
LISTED = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": LONGEST}, "maxItems": MOST}
"""One category's entities in one piece of a text."""
TRIES = 3
RETRY_TEMPERATURE = 0.4


@dataclass(frozen=True)
class Redact(Task):
    """``categories`` name what the model lists, ``patterns`` what expressions find. ``lines``: the model sees one line
    of the text at a time."""

    categories: tuple[str, ...] = CATEGORIES
    lines: bool = False
    patterns: tuple[str, ...] = PATTERN_CATEGORIES

    name = "redact"
    places = frozenset({"text", "categories", "schema"})

    def to_json(self) -> JsonObject:
        fields = {"task": self.name, "categories": list(self.categories), "patterns": list(self.patterns)}
        return {**fields, **({"lines": True} if self.lines else {})}

    def caution(self, model: TaskModel) -> str | None:
        if model.wording.trained:
            return None
        return (
            f"{model.runner.model_id} was not made to find personal data: read what comes out, what it does not "
            "list stays readable (LFM2-350M-PII-Extract-JP was made for it, for Japanese)"
        )

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        return (self._prompt(model, piece) for piece in self._pieces(model, message))

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        """``details["unasked"]``: pieces, from 1, of which the model gave no whole list; expressions masked those."""
        entities: dict[str, list[str]] = {category: [] for category in self.categories}
        text = text_of(message)
        for category, items in found_by_pattern(text, self.patterns).items():
            entities[category] = items
        certain = {item for items in entities.values() for item in items}
        pieces = list(self._pieces(model, message))
        unasked = []
        for number, piece in enumerate(pieces, 1):
            model.tell(f"piece {number} of {len(pieces)}" if len(pieces) > 1 else "asking the model what to mask")
            try:
                for category, items in self._entities(model, piece):
                    parts = [part for item in items for part in refined(text, category, item, certain)]
                    entities[category] += dict.fromkeys(part for part in parts if any(map(str.isalnum, part)))
            except (LeapConstraintError, LeapGenerationError) as error:  # what expressions found is masked all the same
                unasked.append(number)
                model.tell(f"piece {number} was masked by expressions only: {error.message}")
        masked, masks = mask(text, {name: [*dict.fromkeys(items)] for name, items in entities.items()}, certain)
        report = {"map": masks, "masked": count_masks(masked, masks, entities)}
        return TaskAnswer(masked, {**report, "unasked": unasked} if unasked else report)

    def _pieces(self, model: TaskModel, message: ChatMessage) -> Iterator[str]:
        text = text_of(message)
        for part in text.splitlines() if self.lines else [text]:
            if part.strip():
                yield from pieces_that_fit(
                    part, lambda piece: model.fits(self._prompt(model, piece)[0]), model.most_characters
                )

    def _prompt(self, model: TaskModel, text: str) -> Prompt:
        names = sorted(set(self.categories))  # the card: in alphabetical order
        shape = {"properties": dict.fromkeys(names, LISTED), "required": names, "additionalProperties": False}
        schema = json.dumps({"type": "object", **shape})
        listed = ", ".join(f"<{name}>" for name in names)
        options = model.options(json_schema_constraint=schema, inject_schema_into_prompt=False)
        return model.wording.messages({"categories": listed, "schema": schema, "text": text}), options

    def _entities(self, model: TaskModel, text: str) -> Iterator[tuple[str, list[str]]]:
        """Categories with what a text has of them. The halves of a text with a full list are asked for as well, since
        the constraint closes such a list. Raises LeapGenerationError for one that has no halves."""
        lists = {
            category: list(dict.fromkeys(item for item in items if item in text and any(map(str.isalnum, item))))
            for category, items in self._lists(model, *self._prompt(model, text)).items()
        }
        full = [name for name, items in lists.items() if len(items) >= MOST or LONGEST in map(len, items)]
        for category, items in lists.items():  # an item of full length was cut off: its rest would stay unmasked
            yield category, [item for item in items if len(item) < LONGEST]
        if full:
            halves = halves_between_sentences(text)
            if halves is None:
                raise LeapGenerationError(
                    f"a sentence of {len(text.strip())} characters may have more of {', '.join(full)} than the model "
                    f"can list: {MOST} items of fewer than {LONGEST} characters",
                    hint="break long lines; a model that repeats itself fills its lists: try another model",
                )
            model.tell(f"the list of {', '.join(full)} is full: asking again for each half of the text")
            for half in halves:
                yield from self._entities(model, half)

    def _lists(self, model: TaskModel, messages: list[ChatMessage], options: GenerationOptions) -> dict[str, list[str]]:
        """The model's lists; one that broke off is asked for again, with more chance. Raises LeapConstraintError."""
        for attempt in range(TRIES - 1):
            try:
                lists: dict[str, list[str]] = json.loads(model.text(messages, options))
            except LeapConstraintError as error:
                model.tell(f"the list was broken ({error.message}): trying again")
                options = replace(options, temperature=RETRY_TEMPERATURE, rng_seed=attempt)
            else:
                return lists
        lists = json.loads(model.text(messages, options))
        return lists
