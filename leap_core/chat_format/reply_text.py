"""From tokens' bytes to what a person reads: whole characters, reasoning apart from text, stop strings obeyed."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from ..functions.call_stream import partial_suffix
from ..schemas.grammar_matcher import REASONING_TAGS

Kind = Literal["text", "reasoning"]


def utf8_decoder() -> codecs.IncrementalDecoder:
    """Tokens are pieces of UTF-8: ``decode`` takes bytes and gives whole characters. What is not UTF-8 becomes U+FFFD;
    a character that the end of the reply has cut is left out."""
    return codecs.getincrementaldecoder("utf-8")("replace")


class ReasoningSplitter:
    """Separates what is between ``tags`` from the rest; the tags themselves disappear.

    A tag may arrive in parts, so a text that could still become one is held back. ``inside`` starts within reasoning,
    for templates that open it themselves. White space around the tags belongs to neither side of them.
    """

    def __init__(self, *, inside: bool = False, tags: Sequence[tuple[str, str]] = REASONING_TAGS[:1]) -> None:
        self._tags = tags
        self.inside = inside
        """Whether what comes next is reasoning."""
        self._held = ""
        self._skip_space = inside

    def feed(self, text: str, is_quoted: Callable[[], bool] = lambda: False) -> Iterator[tuple[Kind, str]]:
        """The pieces that ``text`` completes, one by one. ``is_quoted`` is asked after each whether an opening tag
        would now be a part of something else, such as an argument of a call, and no tag."""
        self._held += text
        while (tag := self._first_tag()) is not None:
            before, _, self._held = self._held.partition(tag)
            yield from self._piece(before)
            if not self.inside and is_quoted():
                yield from self._piece(tag)
                continue
            self.inside = not self.inside
            self._skip_space = True
        keep = partial_suffix(self._held, self._next_tags())
        ready = self._held[: len(self._held) - keep]
        self._held = self._held[len(ready) :]
        yield from self._piece(ready)

    @property
    def is_idle(self) -> bool:
        """Whether text without a tag would be passed on as it is."""
        return not (self.inside or self._held or self._skip_space)

    def _next_tags(self) -> list[str]:
        return [end if self.inside else start for start, end in self._tags]

    def _first_tag(self) -> str | None:
        places = [(place, tag) for tag in self._next_tags() if (place := self._held.find(tag)) >= 0]
        return min(places)[1] if places else None

    def take(self, text: str) -> Iterator[tuple[Kind, str]]:
        """A text that is known to hold no tag, whatever it spells."""
        yield from self._piece(text)

    def finish(self) -> Iterator[tuple[Kind, str]]:
        """What was held back in vain."""
        held, self._held = self._held, ""
        yield from self._piece(held)

    def _piece(self, text: str) -> Iterator[tuple[Kind, str]]:
        if self._skip_space:
            text = text.lstrip()
        if text:
            self._skip_space = False
            yield "reasoning" if self.inside else "text", text


class StopStrings:
    """Ends the text where the stop string begins that is complete first; the string itself is not delivered."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._held = ""
        self.met: str | None = None
        """The string that ended the text."""

    def feed(self, text: str) -> str:
        """The text that certainly comes before any stop string; "" after one was met."""
        if self.met is not None or not self._strings:
            return "" if self.met is not None else text
        self._held += text
        places = [
            (place + len(string), place, string) for string in self._strings if (place := self._held.find(string)) >= 0
        ]
        if places:
            _, place, self.met = min(places)
            ready, self._held = self._held[:place], ""
            return ready
        keep = partial_suffix(self._held, self._strings)
        ready = self._held[: len(self._held) - keep]
        self._held = self._held[len(ready) :]
        return ready

    def finish(self) -> str:
        """What was held back in vain."""
        ready, self._held = self._held, ""
        return ready


class ThoughtCalls:
    """Takes the text of reasoning and gives it back without ``marks``, which begin and end calls (``marks_of``). From
    where one begins, text is held."""

    def __init__(self, marks: tuple[str, str]) -> None:
        self._start = marks[0]
        self._markers = marks
        self._pattern = re.compile("|".join(map(re.escape, self._markers)))
        self._held = ""
        self._has_call = False

    def feed(self, text: str) -> str:
        """The reasoning that is certainly no call."""
        self._held += text
        if self._has_call:
            return ""
        start = self._held.find(self._start)
        if start >= 0:
            self._has_call = True
            ready, self._held = self._held[:start], self._held[start:]
        else:
            keep = partial_suffix(self._held, self._markers)
            ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return self._pattern.sub("", ready)

    def end_of_reasoning(self) -> str:
        """What was held, now that the reasoning has ended: reasoning after all."""
        held, self._held, self._has_call = self._held, "", False
        return self._pattern.sub("", held)

    def end_of_reply(self) -> tuple[str, str]:
        """Reasoning that was held in vain, and what begins with a call, now that the reply has ended within
        reasoning."""
        held, self._held = self._held, ""
        return ("", held) if self._has_call else (self._pattern.sub("", held), "")
