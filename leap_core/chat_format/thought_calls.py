"""Calls within reasoning. Where the reasoning ends, they were only thought of; where it never does, the model has made
them and forgot the closing tag."""

from __future__ import annotations

import re

from ..functions.call_stream import partial_suffix


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
