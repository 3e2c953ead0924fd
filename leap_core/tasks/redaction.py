"""Redaction: the model and expressions list personal data, and every occurrence is masked.

An IBAN counts with its check digits (ISO 13616), a card with its check digit (ISO/IEC 7812), a telephone number with 7
to 15 digits (E.164) that are written as one: with +, a bracket, a leading zero, or in parts between
spaces, hyphens or dots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..conversation.messages import ChatMessage
from ..conversation.options import GenerationOptions
from ..errors import LeapConstraintError, LeapGenerationError
from ..schemas.json_values import JsonObject
from .task import Prompt, Task, TaskAnswer, TaskModel, halves_between_sentences, pieces_that_fit, text_of

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
PATTERN_CATEGORIES = tuple(PATTERNS)


def found_by_pattern(text: str, categories: tuple[str, ...] = PATTERN_CATEGORIES) -> dict[str, list[str]]:
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


UNUSED = [chr(code) for code in range(0xE000, 0xF8FF)]
"""Private characters: masks of the last resort, where words would do harm."""


def mask(text: str, entities: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, str]]:
    """The text with every occurrence of every entity masked, and what each mask stands for. ``entities`` by category.

    Masks look like ``[HUMAN_NAME_1]``. Where an entity would be found in one, or the text has such a mask already,
    they are made of characters that occur in neither.
    """
    listed = {item: category for category, items in entities.items() for item in items if item}
    categories = {item: category for item, category in listed.items() if item in text}
    if not categories:
        return text, {}
    masks = _named(categories)
    masked = _replaced(text, masks)
    if any(each in text for each in masks.values()) or any(item in masked for item in listed):
        masks = _unnamed(text + "".join(listed), categories)
        masked = _replaced(text, masks)
    used = {each: item for item, each in masks.items() if each in masked}
    return masked, used


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


def _named(categories: Mapping[str, str]) -> dict[str, str]:
    counts: dict[str, int] = {}
    masks = {}
    for item, category in categories.items():
        counts[category] = counts.get(category, 0) + 1
        masks[item] = f"[{category.upper()}_{counts[category]}]"
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
        entities: dict[str, list[str]] = {category: [] for category in self.categories}
        for category, items in found_by_pattern(text_of(message), self.patterns).items():
            entities[category] = items
        pieces = list(self._pieces(model, message))
        for number, piece in enumerate(pieces, 1):
            if len(pieces) > 1:
                model.tell(f"piece {number} of {len(pieces)}")
            for category, items in self._entities(model, piece):
                entities[category] += [item for item in items if item.strip() and item not in entities[category]]
        masked, masks = mask(text_of(message), entities)
        return TaskAnswer(masked, {"map": masks, "masked": count_masks(masked, masks, entities)})

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
        lists = self._lists(model, *self._prompt(model, text))
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
