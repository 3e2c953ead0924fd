"""Plain lists: real names, towns, goods and words that the generator draws from."""

from __future__ import annotations

import re
from functools import cache

from builtin_data.phrases import FOLDER, phrases

FIRST_NAMES = phrases("wordlists", "first_names")
SURNAMES = phrases("wordlists", "surnames")
CITIES = phrases("wordlists", "cities")
ITEMS = phrases("wordlists", "items")
ADJECTIVES = phrases("wordlists", "adjectives")
EVENT_KINDS = phrases("wordlists", "event_kinds")
MEETING_HEADS = phrases("wordlists", "meeting_heads")
MEETING_KINDS = phrases("wordlists", "meeting_kinds")
EVERYDAY_PLACES = phrases("wordlists", "everyday_places")
VENUE_KINDS = phrases("wordlists", "venue_kinds")
JOBS = phrases("wordlists", "jobs")
MONTHS = phrases("wordlists", "months")
WEEKDAYS = phrases("wordlists", "weekdays")
WORDS = phrases("wordlists", "words")
TOPICS = phrases("wordlists", "topics")
PEOPLE = phrases("wordlists", "people")
LANGUAGES = phrases("wordlists", "languages")
SYSTEM_PROMPTS = phrases("wordlists", "system_prompts")


@cache
def every_word() -> list[str]:
    """All words of all lists and phrasings, in lower case and as they stand."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.txt")))
    return sorted(set(re.findall(r"[A-Za-z]{2,}", text)))
