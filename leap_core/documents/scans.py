"""Pages that are pictures, written down by a model that sees: several pages at once, joined per page."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing

from ..conversation.generator import Generation
from ..conversation.messages import ChatMessage, Image, Text
from ..conversation.options import GenerationOptions
from ..conversation.runner import ModelRunner
from ..conversation.streams import last_of
from .blocks import Document
from .reading import pictures_of

PROMPT = "Write down the text on this page, line by line, and nothing else."
PAGES_AT_ONCE = 4
MOST_TOKENS = 2048
"""Of the text of one page."""


def read_scans(
    document: Document,
    runner: ModelRunner,
    *,
    stop: threading.Event | None = None,
    on_page: Callable[[int, int], object] = lambda _done, _all: None,
) -> Document:
    """The document with the texts of its pages that are pictures, as far as they were read before ``stop``. ``on_page``
    is called with how many of how many are done. Raises LeapUnsupportedMediaError for a model that does not see."""
    numbers, texts = document.blank, dict[int, str]()
    running: deque[tuple[int, Generation]] = deque()

    def finish() -> None:
        number, generation = running.popleft()
        with closing(generation):
            texts[number] = last_of(generation).full_message.text.strip()
        on_page(len(texts), len(numbers))

    options = GenerationOptions(temperature=0.0, max_tokens=MOST_TOKENS)
    try:
        for number, picture in pictures_of(document, numbers):
            if stop is not None and stop.is_set():
                break
            question = ChatMessage("user", [Image(picture), Text(PROMPT)])
            running.append((number, runner.start([question], (), options)))
            if len(running) == PAGES_AT_ONCE:
                finish()
        while running:
            finish()
    finally:
        for _, generation in running:
            generation.close()
    return document.with_texts(texts)
