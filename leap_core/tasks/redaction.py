"""Redaction: the model and expressions list personal data, and every occurrence that is a whole word is masked."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from ..conversation.messages import ChatMessage
from ..conversation.options import GenerationOptions
from ..errors import LeapConstraintError, LeapGenerationError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .national_numbers import BEFORE, LETTER
from .personal_patterns import PATTERN_CATEGORIES, found_by_pattern
from .task import Prompt, Task, TaskAnswer, TaskModel, halves_between_sentences, pieces_that_fit, text_of

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
        return found if sum(map(str.isdigit, found)) > 4 else ""
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


def refined(piece: str, category: str, item: str, taken: Sequence[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    """What is left of what a model listed, by category, wherever it is in the piece, without the spans ``taken``. A
    word with an ending that was left out counts whole; what is another part of a word counts not."""
    for match in re.finditer(re.escape(item), piece):
        start, end = match.span()
        rest = len(WORD_REST.match(piece, end)[0]) if re.match(LETTER, item[-1]) else 0  # type: ignore[index]
        if not WORD_START.match(piece, start) or rest > (MOST_ENDING if len(item) > MOST_ENDING else 0):
            continue
        for low, high in (*taken, (end + rest, end + rest)):
            if low < end + rest and high > start or low == end + rest:
                part = trimmed(category, piece[start : max(start, low)])
                kind = kind_of(category, part, piece) if any(map(str.isalnum, part)) else None
                if kind is not None:
                    yield kind, part
                start = max(start, high)


WORD_START, WORD_REST = re.compile(f"{BEFORE}|(?!{LETTER})"), re.compile(f"{LETTER}*")
MOST_ENDING = 3
"""Letters of an ending that a model may leave out, as of a genitive."""
INNER_WORD = re.compile(r"(?<=[\w,;] )[^\W\d_]+")


def kind_of(category: str, item: str, piece: str) -> str | None:
    """The category of what a model listed: a name is no address of mail, and a word in small letters no name where
    names have capitals. None for what is nothing of its kind."""
    if category == "email_address" and not re.search(r"[@\uff20]|\W(?:at|dot)\W", item):
        return "human_name" if re.fullmatch(r"(?:[^\W\d_]+[.'’ -]*)+", item) and item.istitle() else None
    if category in NAMES:
        capitals = any(word[0].isupper() for word in INNER_WORD.findall(piece) if len(word) > 1)
        if not any(map(str.isalpha, item)) or item.islower() and capitals:
            return None
    if category == "url" and ("." not in item or "@" in item and "://" not in item):
        return None
    if category == "card_number" and sum(map(str.isdigit, item)) < 12:
        return None
    return category


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
    if spans(masked, listed):
        masks = _unnamed(text + "".join(listed), found)
        masked = "".join(masks[piece] if is_item else piece for piece, is_item in pieces)
    return masked, {each: item for item, each in masks.items()}


HEAD = re.compile(rf"(?s){LETTER}+|.")
"""A word, or one character that belongs to none."""


def spans(text: str, items: Iterable[str]) -> list[tuple[int, int]]:
    """Where items are in a text as whole words, longer ones before shorter ones. The time grows with the text and not
    with the number of items: at each word only those that begin with it are looked for, by their lengths."""
    by_head: dict[str, dict[int, set[str]]] = {}
    for item in items:
        head = HEAD.match(item)
        if head is not None:
            by_head.setdefault(head[0], {}).setdefault(len(item), set()).add(item)
    ordered = {head: sorted(lengths.items(), reverse=True) for head, lengths in by_head.items()}
    found, place, letter = [], 0, re.compile(LETTER)
    for match in HEAD.finditer(text) if ordered else ():
        start = match.start()
        for length, same in ordered.get(match[0], ()) if start >= place else ():
            end = start + length
            if text[start:end] in same and not (letter.match(text, end) and letter.match(text, end - 1)):
                found.append((start, end))
                place = end
                break
    return found


def _cut(text: str, *groups: Collection[str]) -> list[tuple[str, bool]]:
    """The text in pieces, and whether each is one of the items; those of the first group are looked for first."""
    taken: list[tuple[int, int]] = []
    for items in groups:
        hidden, place = [], 0
        for start, end in taken:
            hidden += [text[place:start], "\0" * (end - start)]
            place = end
        taken = sorted([*taken, *spans("".join([*hidden, text[place:]]), items)])
    pieces, place = [], 0
    for start, end in taken:
        pieces += [(text[place:start], False), (text[start:end], True)]
        place = end
    return [*pieces, (text[place:], False)]


def count_masks(masked: str, masks: Mapping[str, str], entities: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How often each category is masked in a text."""
    categories = {item: category for category, items in entities.items() for item in items}
    edges = {each[0] for each in masks} - {"["}
    form = "|".join([r"\[\w+\]", *(f"{edge}[^{edge}]*{edge}" for edge in edges)])
    counts = dict.fromkeys(entities, 0)
    for each, times in Counter(re.findall(form, masked)).items():
        if each in masks:
            counts[categories[masks[each]]] += times
    return {category: count for category, count in counts.items() if count}


def unmask(text: str, masks: Mapping[str, str]) -> str:
    """The original text."""
    return _replaced(text, masks)


def _named(categories: Mapping[str, str], text: str) -> dict[str, str]:
    numbers = {category: count(1) for category in categories.values()}
    used = set(re.findall(r"\[\w+\]", text))
    masks = {}
    for item, category in categories.items():
        names = (f"[{category.upper()}_{number}]" for number in numbers[category])
        masks[item] = next(name for name in names if name not in used)
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
                taken = spans(piece, certain)
                for category, items in self._entities(model, piece):
                    for item in items:
                        for kind, part in refined(piece, category, item, taken):
                            entities.setdefault(kind, []).append(part)
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
