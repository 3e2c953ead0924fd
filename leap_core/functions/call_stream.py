"""Separates calls from text while a reply arrives in pieces of any size.

Cut anywhere, the same reply gives the same text, calls and warnings in the same order. A call counts where the model
made it: between its markers, or, without markers, where a list of calls is the whole reply. A list that stands within
other text, in quotation marks or in a code block is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..messages import LeapFunctionCall
from .bare_list import BareList
from .pythonic import PythonicSyntaxError

if TYPE_CHECKING:
    from ..options import FunctionCallParser


@dataclass(frozen=True)
class CallText:
    """Text that is no part of a call."""

    text: str


@dataclass(frozen=True)
class CallsFound:
    """Calls that the model made together."""

    calls: tuple[LeapFunctionCall, ...]


@dataclass(frozen=True)
class CallWarning:
    """A sentence for the user about a call that could not be read."""

    message: str


CallEvent: TypeAlias = CallText | CallsFound | CallWarning

MOST_SHOWN = 200
"""Characters of an unreadable call in a warning."""


class CallStream:
    """Text goes in, text, calls and warnings come out. Markers never come out as text.

    ``parser``: None lets everything through as text. ``declared``: names of the functions that the model knows; LFM
    calls without markers count where each calls one of these. What may still become a call is held back.
    """

    def __init__(self, parser: FunctionCallParser | None, declared: Sequence[str] = ()) -> None:
        self._parser = parser
        self._held = ""
        self._inside = False
        self._searched = 0
        self._first_end: int | None = None
        self._error: ValueError | None = None
        self._echo: str | None = None
        self._said = False
        self._bare = BareList(declared, parser.end_marker) if parser and parser.name == "lfm" and declared else None
        markers = (parser.start_marker, parser.end_marker) if parser else ()
        self._markers = re.compile("|".join(map(re.escape, markers)))
        self._longest = max(map(len, markers), default=0)

    @property
    def is_open(self) -> bool:
        """Whether what comes next is, or may be, a part of a call."""
        return self._inside or (self._bare is not None and self._bare.is_open)

    def feed(self, text: str) -> list[CallEvent]:
        """What a piece of text completes."""
        if self._parser is None:
            return [CallText(text)] if text else []
        self._held += text
        return _joined(self._advance(final=False))

    def finish(self) -> list[CallEvent]:
        """What was held back, once the reply has ended."""
        if self._parser is None:
            return []
        return _joined(self._advance(final=True))

    def _advance(self, *, final: bool) -> list[CallEvent]:
        events: list[CallEvent] = []
        while (step := self._inside_step(final) if self._inside else self._outside_step(final)) is not None:
            events += step
        return events

    def _outside_step(self, final: bool) -> list[CallEvent] | None:
        """Deliver text up to the next marker; None when more input is needed."""
        assert self._parser is not None
        if not self._held:
            return self._bare_calls() if final else None
        if self._echo is not None:
            return self._echo_step(final)
        if self._bare is not None:
            if not self._bare.is_open and self._held[0].isspace():
                text = self._held.lstrip()
                space, self._held = self._held[: len(self._held) - len(text)], text
                return [CallText(space)]
            released, self._held = self._bare.feed(self._held), ""
            if released is None:
                return self._bare_calls() if final else None
            self._bare, self._held = None, released
        marker = self._markers.search(self._held)
        if marker is not None:
            before, self._held = self._held[: marker.start()], self._held[marker.end() :]
            if marker[0] == self._parser.start_marker:
                self._inside, self._searched, self._first_end = True, 0, None
            return [CallText(before)] if before else []
        keep = 0 if final else self._partial_marker()
        ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return [CallText(ready)] if ready else None

    def _bare_calls(self) -> list[CallEvent] | None:
        """The calls of a reply that is nothing but a list of them."""
        if self._bare is None:
            return None
        bare, self._bare = self._bare, None
        calls = bare.calls()
        if calls:
            return [CallsFound(calls)]
        self._held = bare.held
        return []

    def _echo_step(self, final: bool) -> list[CallEvent] | None:
        """Leave out the body of a call that the model writes again after the end marker; None when it may still
        come."""
        assert self._parser is not None and self._echo is not None
        text, end = self._held.lstrip(), self._parser.end_marker
        if text.startswith(self._echo):
            rest = text[len(self._echo) :].lstrip()
            if rest.startswith(end):
                self._held = rest[len(end) :]
                return []
            if not rest and final:
                self._held = ""
                return []
            partial = end.startswith(rest)
        else:
            partial = self._echo.startswith(text)
        if partial and not final:
            return None
        self._echo = None
        return []

    def _inside_step(self, final: bool) -> list[CallEvent] | None:
        """Read the calls up to an end marker; None when more input is needed.

        A string may contain the end marker: where the text before it ends within a string, the next one is tried, and
        only when none will do the first counts.
        """
        assert self._parser is not None
        marker = self._parser.end_marker
        end = self._held.find(marker, self._searched)
        if end < 0:
            self._searched = max(self._searched, len(self._held) - len(marker) + 1)
            return self._end_without_marker() if final else None
        self._searched = end + len(marker)
        try:
            calls = self._parser.parse(self._held[:end])
        except ValueError as error:
            if self._first_end is None:
                self._first_end, self._error = end, error
            if getattr(error, "in_string", False):
                return []
            return self._unreadable(self._first_end)
        return self._read(calls, end, end + len(marker))

    def _end_without_marker(self) -> list[CallEvent]:
        """The reply has ended inside a call."""
        assert self._parser is not None
        if self._first_end is not None:
            return self._unreadable(self._first_end)
        try:
            calls = self._parser.parse(self._held)
        except ValueError as error:
            self._error = error
            return self._unreadable(None)
        return self._read(calls, len(self._held), len(self._held))

    def _read(self, calls: Sequence[LeapFunctionCall], end: int, after: int) -> list[CallEvent]:
        self._echo = self._held[:end].strip() or None
        self._leave(after)
        return [CallsFound(tuple(calls))] if calls else []

    def _unreadable(self, end: int | None) -> list[CallEvent]:
        """What stands between the markers is text after all, but for the calls in it that can be read. A new start
        marker within it may begin a better call."""
        assert self._parser is not None
        start_marker, end_marker = self._parser.start_marker, self._parser.end_marker
        stop = len(self._held) if end is None else end
        after = stop if end is None else stop + len(end_marker)
        error = self._error
        if isinstance(error, PythonicSyntaxError) and error.readable:
            self._leave(after)
            left_out = _shortened(error.unreadable)
            note = f"a function call could not be read and is left out: {left_out} ({error})"
            return [CallsFound(tuple(error.readable)), CallWarning(note)]
        restart = self._held.find(start_marker, 0, stop)
        if restart >= 0:
            body, self._held = self._held[:restart], self._held[restart:]
            self._inside = False
        else:
            body = self._held[:stop]
            self._leave(after)
        if not body.strip():
            return [CallText(body)] if body else []
        return [CallText(body), CallWarning(f"a function call could not be read and is shown as text ({error})")]

    def _leave(self, position: int) -> None:
        self._held = self._held[position:]
        self._inside = False

    def _partial_marker(self) -> int:
        """Length of the longest end of the held text with which a marker begins."""
        assert self._parser is not None
        markers = (self._parser.start_marker, self._parser.end_marker)
        for length in range(min(len(self._held), self._longest - 1), 0, -1):
            if any(marker.startswith(self._held[-length:]) for marker in markers):
                return length
        return 0


def _shortened(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= MOST_SHOWN else plain[: MOST_SHOWN - 1] + "…"


def _joined(events: list[CallEvent]) -> list[CallEvent]:
    """Neighbouring texts as one."""
    joined: list[CallEvent] = []
    for event in events:
        if isinstance(event, CallText) and joined and isinstance(joined[-1], CallText):
            joined[-1] = CallText(joined[-1].text + event.text)
        else:
            joined.append(event)
    return joined
