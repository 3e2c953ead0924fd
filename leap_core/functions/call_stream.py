"""Separates calls from text while a reply arrives in pieces of any size.

Cut anywhere, the same reply gives the same text, calls and warnings in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..messages import LeapFunctionCall
from .pythonic import PythonicSyntaxError, read_call_list

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
    """A sentence for the user about a call that could not be read; its text was delivered as text."""

    message: str


CallEvent: TypeAlias = CallText | CallsFound | CallWarning


class CallStream:
    """Text goes in, text, calls and warnings come out. Markers never come out as text.

    ``parser``: None lets everything through as text. ``declared``: names of the functions that the model knows; LFM
    calls without markers are recognised where each calls one of these. What may still become a call is held back.
    """

    def __init__(self, parser: FunctionCallParser | None, declared: Sequence[str] = ()) -> None:
        self._parser = parser
        self._held = ""
        self._inside = False
        self._searched = 0
        self._first_end: int | None = None
        self._error: ValueError | None = None
        self._finding = _Finding(parser, declared) if parser is not None else None

    @property
    def is_open(self) -> bool:
        """Whether what comes next is, or may be, a part of a call."""
        return self._inside or self._held.startswith("[")

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
        """Deliver text up to the next thing of interest; None when more input is needed."""
        assert self._finding is not None
        if not self._held:
            return None
        found = self._finding.next(self._held, final)
        before, self._held = self._held[: found.start], self._held[found.end :]
        events: list[CallEvent] = [CallText(before)] if before else []
        if found.kind == "start":
            self._inside, self._searched, self._first_end = True, 0, None
        elif found.kind == "calls":
            events.append(CallsFound(found.calls))
        elif found.kind == "wait":
            return events or None
        return events

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
        self._leave(end + len(marker))
        return [CallsFound(tuple(calls))]

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
        self._leave(len(self._held))
        return [CallsFound(tuple(calls))]

    def _unreadable(self, end: int | None) -> list[CallEvent]:
        """What stands between the markers is text after all. A new start marker within it may begin a better call."""
        assert self._parser is not None
        start_marker, end_marker = self._parser.start_marker, self._parser.end_marker
        stop = len(self._held) if end is None else end
        restart = self._held.find(start_marker, 0, stop)
        if restart >= 0:
            body, self._held = self._held[:restart], self._held[restart:]
            self._inside = False
        else:
            body = self._held[:stop]
            self._leave(stop if end is None else stop + len(end_marker))
        if not body.strip():
            return [CallText(body)] if body else []
        return [CallText(body), CallWarning(f"a function call could not be read and is shown as text ({self._error})")]

    def _leave(self, position: int) -> None:
        self._held = self._held[position:]
        self._inside = False


@dataclass(frozen=True)
class _Found:
    """The next thing of interest in a text: from ``start`` to ``end``.

    ``start``: a start marker. ``stray``: an end marker that ends nothing. ``calls``: calls without markers.
    ``wait``: text that may become one of these. ``nothing``: all is text.
    """

    kind: str
    start: int
    end: int
    calls: tuple[LeapFunctionCall, ...] = ()


class _Finding:
    """Finds where calls begin."""

    def __init__(self, parser: FunctionCallParser, declared: Sequence[str]) -> None:
        self._markers = {parser.start_marker: "start", parser.end_marker: "stray"}
        self._declared = frozenset(declared) if parser.name == "lfm" else frozenset()
        opening = "|".join(map(re.escape, self._markers)) + (r"|\[" if self._declared else "")
        self._opening = re.compile(opening)

    def next(self, text: str, final: bool) -> _Found:
        for match in self._opening.finditer(text):
            kind = self._markers.get(match[0])
            if kind is not None:
                return _Found(kind, match.start(), match.end())
            found = self._bare(text, match.start(), final)
            if found is not None:
                return found
        keep = 0 if final else self._partial_marker(text)
        if keep:
            return _Found("wait", len(text) - keep, len(text) - keep)
        return _Found("nothing", len(text), len(text))

    def _bare(self, text: str, start: int, final: bool) -> _Found | None:
        """The list of calls that begins at a bracket; None when it is none."""
        if not self._may_call(text, start, final):
            return None
        wait = _Found("wait", start, start)
        try:
            calls, end = read_call_list(text, start)
        except PythonicSyntaxError as error:
            return wait if error.unfinished and not final else None
        if not calls or any(call.name not in self._declared for call in calls):
            return None
        if text.startswith("(", end):  # a link in Markdown
            return None
        if end == len(text) and not final:
            return wait
        return _Found("calls", start, end, tuple(calls))

    def _may_call(self, text: str, start: int, final: bool) -> bool:
        """Whether a declared name and a parenthesis follow the bracket, or may yet."""
        rest = text[start + 1 :].lstrip()
        name, parenthesis, _ = rest.partition("(")
        if parenthesis:
            return name.rstrip() in self._declared
        name = name.rstrip()
        return not final and any(known.startswith(name) for known in self._declared)

    def _partial_marker(self, text: str) -> int:
        """Length of the longest end of the text with which a marker begins."""
        longest = max(len(marker) for marker in self._markers)
        for length in range(min(len(text), longest - 1), 0, -1):
            if any(marker.startswith(text[-length:]) for marker in self._markers):
                return length
        return 0


def _joined(events: list[CallEvent]) -> list[CallEvent]:
    """Neighbouring texts as one."""
    joined: list[CallEvent] = []
    for event in events:
        if isinstance(event, CallText) and joined and isinstance(joined[-1], CallText):
            joined[-1] = CallText(joined[-1].text + event.text)
        else:
            joined.append(event)
    return joined
