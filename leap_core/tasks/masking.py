"""Masks entities in a text, so that none of them is left in it, and takes the masks off again byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

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
