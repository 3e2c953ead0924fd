"""Calls separated from text while a reply arrives.

Cut anywhere, the same reply gives the same text, calls and warnings in the same order. A call counts where the model
made it: between its markers, or, without markers, where a list of calls is the whole reply. A list within
other text, in quotation marks or in a code block is text. JSON calls that are the whole reply count in every form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...system.dataclass import dataclass
from ..messages import LeapFunctionCall
from . import pythonic
from .bare_json import BareJson, Fits
from .call_list import BareList, read_calls, unfenced
from .dialects import DIALECTS, Dialect, dialect_of_template
from .pythonic import PythonicSyntaxError
from .quotes import Quotes

if TYPE_CHECKING:
    from ..options import FunctionCallParser


class LeapFunctionCallParser:
    """Reads and writes calls of one style.

    ``parse`` and ``dump`` are all that a generation uses. ``append``, ``clear`` and ``parse()`` without a text are the
    LEAP SDK's way: text is collected, then read.
    """

    name = ""
    also = ""
    reasoning: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def __init__(self, start_marker: str, end_marker: str) -> None:
        self.start_marker = start_marker
        self.end_marker = end_marker
        self._collected = ""

    def append(self, chunk: str) -> None:
        """Collect a piece of text for ``parse()``."""
        self._collected += chunk

    def clear(self) -> None:
        """Forget what was collected."""
        self._collected = ""

    def parse(self, body: str | None = None) -> list[LeapFunctionCall]:
        """The calls in ``body``, the text between the markers, or in what was collected, with or without its markers.

        Raises ValueError when it cannot be read.
        """
        text = (self._collected if body is None else body).strip()
        if not self.start_marker or not text.startswith(self.start_marker):
            return self._read(text.removesuffix(self.end_marker))
        blocks = text.split(self.start_marker)[1:]
        return [call for block in blocks for call in self._read(block.strip().removesuffix(self.end_marker))]

    def dump(self, calls: Sequence[LeapFunctionCall]) -> str:
        """The text, markers included, with which the model would have made these calls."""
        raise NotImplementedError

    def _read(self, body: str) -> list[LeapFunctionCall]:
        raise NotImplementedError


class LFMFunctionCallParser(LeapFunctionCallParser):
    """``<|tool_call_start|>[f(a="x", b=1), g()]<|tool_call_end|>``; JSON calls between the markers are read too."""

    name = "lfm"

    def __init__(self) -> None:
        super().__init__("<|tool_call_start|>", "<|tool_call_end|>")

    def dump(self, calls: Sequence[LeapFunctionCall]) -> str:
        return f"{self.start_marker}{pythonic.write_calls(calls)}{self.end_marker}" if calls else ""

    def _read(self, body: str) -> list[LeapFunctionCall]:
        marked = self.start_marker in body or self.end_marker in body  # within a string, or two calls run together
        return read_calls(body, repair=not marked)


class HermesFunctionCallParser(LeapFunctionCallParser):
    """``<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>``, one call a block."""

    name = "hermes"

    def __init__(self) -> None:
        super().__init__("<tool_call>", "</tool_call>")

    def dump(self, calls: Sequence[LeapFunctionCall]) -> str:
        return "\n".join(f"{self.start_marker}\n{_compact_object(call)}\n{self.end_marker}" for call in calls)

    def _read(self, body: str) -> list[LeapFunctionCall]:
        body = unfenced(body)
        if not body.lstrip().startswith(("{", "[")):
            raise pythonic.PythonicSyntaxError(0, "expected a JSON object")
        return read_calls(body, repair=False)


class DialectParser(LeapFunctionCallParser):
    """Calls in a form of the table ``dialects.DIALECTS``."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect.start, dialect.end)
        self.name = dialect.name
        self.dialect = dialect
        self.also, self.reasoning, self.dropped = dialect.also, dialect.reasoning, dialect.dropped

    def dump(self, calls: Sequence[LeapFunctionCall]) -> str:
        return self.dialect.write(calls)

    def _read(self, body: str) -> list[LeapFunctionCall]:
        return self.dialect.calls_of(body)


class JSONFunctionCallParser(LeapFunctionCallParser):
    """``{"name": "f", "arguments": {"a": "x"}}`` without markers, where calls are the whole reply."""

    name = "json"
    dialect = Dialect("json", (), "", "", separator="\n")

    def __init__(self) -> None:
        super().__init__("", "")

    def dump(self, calls: Sequence[LeapFunctionCall]) -> str:
        return self.dialect.write(calls)

    def _read(self, body: str) -> list[LeapFunctionCall]:
        return read_calls(body, repair=False)


LEARNED = "learned"
"""The name of a form that is learned from a chat template."""
OWN_PARSERS = (LFMFunctionCallParser, HermesFunctionCallParser, JSONFunctionCallParser)
PARSERS = {parser.name: parser for parser in OWN_PARSERS}


def parser_named(name: str) -> LeapFunctionCallParser:
    """A new parser: "lfm", "hermes", "json", or a name of ``dialects.DIALECTS``. Raises ValueError for another name."""
    if name in PARSERS:
        return PARSERS[name]()
    if name in DIALECTS:
        return DialectParser(DIALECTS[name])
    raise ValueError(f"{name!r} is not a function call parser; known are {', '.join((*PARSERS, *DIALECTS))}")


def without_calls(parser: FunctionCallParser) -> FunctionCallParser:
    """The parser of replies to a prompt without functions: the markers of a form that is learned are text there."""
    if not isinstance(parser, DialectParser) or parser.name != LEARNED:
        return parser
    plain = JSONFunctionCallParser()
    plain.reasoning, plain.dropped = parser.reasoning, parser.dropped
    return plain


def is_own_parser(parser: FunctionCallParser) -> bool:
    """Whether the parser is one that ``parser_named`` gives, so that its name is enough."""
    return type(parser) in PARSERS.values() or (isinstance(parser, DialectParser) and parser.name in DIALECTS)


def parser_for_template(template: str, special_tokens: Collection[str]) -> LeapFunctionCallParser:
    """The parser for the calls that a chat template has written, else for those that the vocabulary has tokens for,
    else the one for JSON without markers."""
    lfm, hermes = LFMFunctionCallParser(), HermesFunctionCallParser()
    if lfm.start_marker in template or lfm.start_marker in special_tokens:
        return lfm
    if (name := dialect_of_template(template)) is not None:
        return parser_named(name)
    known = hermes.start_marker in template or hermes.start_marker in special_tokens
    return hermes if known else JSONFunctionCallParser()


def _compact_object(call: LeapFunctionCall) -> str:
    return json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)


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

TAG = re.compile(r"<[^<>\n]+>|\[/?[A-Z][A-Z_ ]*\]")
OPENED_TAG = re.compile(rf"{TAG.pattern}|<[^\W\d]|<[|｜]")
MOST_SHOWN = 200
"""Characters of an unreadable call in a warning."""

NEVER = "(?!)"
BARE_LISTS = ("lfm", "json")
"""Parsers for which ``[f(a="x")]`` without markers is a list of calls where it is the whole reply."""
MOST_READ_AGAIN = 1_000_000
"""Characters of one reply that are read again to find the calls between markers that fit no call."""


TOKEN_MARKS = ("\udc00", "\udc01")
"""What represents a marker that is a token: halves of surrogate pairs, which no decoded text holds."""


def is_tagged(text: str) -> bool:
    """Whether a marker has a tag or the beginning of one; a text without is one that answers have, too."""
    return OPENED_TAG.search(text) is not None


def marks_of(parser: FunctionCallParser, special_tokens: Mapping[str, int]) -> tuple[str, str, str]:
    """How calls begin and end in the text of a reply, and how they also begin: a marker that the vocabulary has as a
    token is that token alone, and its spelling in others is text."""
    spellings = (parser.start_marker, parser.end_marker)
    start, end = (
        mark if spelling in special_tokens else spelling for spelling, mark in zip(spellings, TOKEN_MARKS, strict=True)
    )
    also = getattr(parser, "also", "")
    return start, end, "" if also in special_tokens else also


class CallStream:
    """Text goes in, text, calls and warnings come out. Markers never come out as text.

    ``parser``: None lets everything through as text. ``declared``: names of the functions that the model knows; calls
    without markers count where each calls one of these. What may still become a call is held back. ``marks``:
    what represents the parser's markers in the text (``marks_of``). ``fits``: None where JSON without markers is text.
    """

    def __init__(
        self,
        parser: FunctionCallParser | None,
        declared: Sequence[str] = (),
        marks: tuple[str, str, str] | None = None,
        fits: Fits | None = None,
    ) -> None:
        self._parser = parser
        self._start, self._end, self._also = marks or (marks_of(parser, {}) if parser else ("", "", ""))
        self._held = ""
        self._pieces: list[str] = []
        self._window = ""
        self._inside = False
        self._searched = 0
        self._first_end: int | None = None
        self._read_again = 0
        self._echo: str | None = None
        self._bare: list[BareList] = []
        if parser and parser.name in BARE_LISTS and declared:
            self._bare.append(BareList(declared, self._end))
        if parser and fits and declared:
            self._bare.append(BareJson(declared, self._end, fits, self._spelled))
        self._markers = re.compile("|".join(re.escape(mark) for mark in (self._start, self._end) if mark))
        stray_end = self._end if self._end in TOKEN_MARKS or is_tagged(self._end) else ""
        self._beside = [mark for mark in (self._start, stray_end, self._also if declared else "") if mark]
        self._dropped: tuple[str, ...] = getattr(parser, "dropped", ())
        self._beside += self._dropped
        longest_first = sorted(self._beside, key=len, reverse=True)
        self._next_mark = re.compile("|".join(map(re.escape, longest_first)) or NEVER)
        self._quotes = Quotes()
        self._spaces: list[str] | None = [] if parser else None
        """White space since the last call, or the beginning of the reply; None after other text."""
        self._found_calls = False

    @property
    def is_open(self) -> bool:
        """Whether what comes next is, or may be, a part of a call."""
        return self._inside or any(bare.is_open for bare in self._bare)

    @property
    def is_idle(self) -> bool:
        """Whether text without a marker would be passed on as it is."""
        return not (self._inside or self._held or self._bare) and self._echo is None and self._spaces is None

    @property
    def is_quoting(self) -> bool:
        """Whether what comes next is quoted, so that no marker spelled in it counts."""
        return self._parser is not None and self._quotes.are_open

    def pass_on(self, text: str) -> None:
        """Text without a marker that is delivered without ``feed``, while this is idle."""
        self._quotes.add(text)

    def feed(self, text: str) -> list[CallEvent]:
        """What a piece of text completes."""
        if self._parser is None:
            return [CallText(text)] if text else []
        self._pieces.append(text)
        if self._inside:  # a long call is not put together for each piece
            window = self._window + text
            self._window = window[max(0, len(window) - len(self._end) + 1) :]
            if not self._end or self._end not in window:
                return []
        return self._without_space(_joined(self._advance(final=False)))

    def finish(self) -> list[CallEvent]:
        """What was held back, once the reply has ended."""
        if self._parser is None:
            return []
        events = self._without_space(_joined(self._advance(final=True)))
        return events if self._found_calls or not self._spaces else [*events, CallText("".join(self._spaces))]

    def _without_space(self, events: list[CallEvent]) -> list[CallEvent]:
        """Hold back white space around calls until text follows: alone it is no text of the reply."""
        kept: list[CallEvent] = []
        for event in events:
            if isinstance(event, CallsFound):
                self._spaces, self._found_calls = [], True
            elif isinstance(event, CallText) and self._spaces is not None:
                self._spaces.append(event.text)
                if event.text.isspace():
                    continue
                event, self._spaces = CallText("".join(self._spaces)), None
            kept.append(event)
        return kept

    def _advance(self, *, final: bool) -> list[CallEvent]:
        events: list[CallEvent] = []
        self._held, self._pieces = "".join([self._held, *self._pieces]), []
        while (step := self._inside_step(final) if self._inside else self._outside_step(final)) is not None:
            events += step
        self._window = self._held[max(0, len(self._held) - len(self._end) + 1) :]
        return events

    def _outside_step(self, final: bool) -> list[CallEvent] | None:
        """Deliver text up to the next marker; None when more input is needed."""
        if not self._held:
            return self._bare_calls() if final else None
        if self._echo is not None:
            return self._echo_step(final)
        if self._bare:
            return self._bare_step(final)
        marker = self._next_mark.search(self._held)
        if marker is None:
            keep = 0 if final else partial_suffix(self._held, self._beside)
            ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
            self._quotes.add(ready)
            return [CallText(ready)] if ready else None
        before = self._held[: marker.start()]
        self._quotes.add(before)
        if marker[0] not in TOKEN_MARKS and self._quotes.shows(marker[0], self._start, self._end):
            before += marker[0]
        elif marker[0] != self._end and marker[0] not in self._dropped:
            self._inside, self._searched, self._first_end = True, 0, None
        self._held = self._held[marker.start() if marker[0] == self._also and self._inside else marker.end() :]
        return [CallText(before)] if before else []

    def _bare_step(self, final: bool) -> list[CallEvent] | None:
        """Follow a reply that may be nothing but calls; None when more input is needed."""
        if not self._bare[0].has_begun and self._held[0].isspace():
            text = self._held.lstrip()
            space, self._held = self._held[: len(self._held) - len(text)], text
            self._quotes.add(space)
            return [CallText(space)]
        released = [bare.feed(self._held) for bare in self._bare]
        self._bare = [bare for bare, text in zip(self._bare, released, strict=True) if text is None]
        self._held = "" if self._bare else released[0] or ""
        if self._bare:
            return self._bare_calls() if final else None
        return []

    def _bare_calls(self) -> list[CallEvent] | None:
        """The calls of a reply that is nothing but calls."""
        readings, self._bare = self._bare, []
        for bare in readings:
            try:
                calls = bare.calls()
            except PythonicSyntaxError as error:
                if bare.is_of_declared(error):
                    return events_of_error(bare.held, error)
                calls = ()
            if calls:
                return [CallsFound(calls)]
            self._held = bare.held
        return [] if readings else None

    def _echo_step(self, final: bool) -> list[CallEvent] | None:
        """Leave out the body of a call that the model writes again after the end marker; None when it may still
        come."""
        assert self._echo is not None
        text, end = self._held.lstrip(), self._end
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
        end = self._held.find(self._end, self._searched) if self._end else -1
        if end < 0:
            self._searched = max(self._searched, len(self._held) - len(self._end) + 1)
            return self._end_without_marker() if final else None
        self._searched = end + len(self._end)
        try:
            calls = self._parse(self._held[:end])
        except ValueError as error:
            if self._first_end is None:
                self._first_end = end
            if getattr(error, "in_string", False) and self._may_read_again():
                return []
            return self._unreadable(self._first_end)
        return self._read(calls, end, self._searched)

    def _end_without_marker(self) -> list[CallEvent]:
        """The reply has ended inside a call."""
        if self._first_end is not None:
            return self._unreadable(self._first_end)
        try:
            calls = self._parse(self._held)
        except ValueError:
            return self._unreadable(None)
        return self._read(calls, len(self._held), len(self._held))

    def _parse(self, body: str) -> Sequence[LeapFunctionCall]:
        assert self._parser is not None
        return self._parser.parse(self._spelled(body))

    def _spelled(self, text: str) -> str:
        assert self._parser is not None
        return text.replace(self._start, self._parser.start_marker).replace(self._end, self._parser.end_marker)

    def _read(self, calls: Sequence[LeapFunctionCall], end: int, after: int) -> list[CallEvent]:
        self._echo = (self._end and self._held[:end].strip()) or None
        self._leave(after)
        return [CallsFound(tuple(calls))] if calls else []

    def _unreadable(self, end: int | None) -> list[CallEvent]:
        """The calls that can be read in what is between the markers; where there are none, it is text after all.
        A new start marker within it begins another call, unless it is within a string."""
        stop = len(self._held) if end is None else end
        restart = self._held.find(self._start, 0, stop)
        if restart >= 0 and self._may_read_again():
            events, in_string = self._alone(self._held[:restart])
            if not in_string:
                self._leave(restart)
                return events
        events, _ = self._alone(self._held[:stop])
        self._leave(stop if end is None else stop + len(self._end))
        return events

    def _may_read_again(self) -> bool:
        self._read_again += len(self._held)
        return self._read_again <= MOST_READ_AGAIN

    def _alone(self, body: str) -> tuple[list[CallEvent], bool]:
        """What comes of a text between markers, and whether it ends within a string."""
        if not body.strip():
            return [CallText(body)] if body else [], False
        try:
            calls = self._parse(body)
        except ValueError as error:
            return events_of_error(self._markers.sub("", body), error), getattr(error, "in_string", False)
        return [CallsFound(tuple(calls))] if calls else [], False

    def _leave(self, position: int) -> None:
        self._held = self._held[position:]
        self._inside = False


def events_of_error(body: str, error: ValueError) -> list[CallEvent]:
    """The calls that can be read beside one that cannot, with a warning; the text, where there are none."""
    if isinstance(error, PythonicSyntaxError) and error.readable and error.text_after:
        return [CallsFound(tuple(error.readable)), CallText(error.text_after)]
    if isinstance(error, PythonicSyntaxError) and error.readable:
        note = f"a function call could not be read and is left out: {_shortened(error.unreadable)} ({error})"
        return [CallsFound(tuple(error.readable)), CallWarning(note)]
    return [CallText(body), CallWarning(f"a function call could not be read and is shown as text ({error})")]


def _shortened(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= MOST_SHOWN else plain[: MOST_SHOWN - 1] + "…"


def partial_suffix(text: str, strings: Sequence[str]) -> int:
    """Length of the longest end of ``text`` with which one of ``strings`` begins."""
    longest = max((len(string) for string in strings), default=0)
    for length in range(min(len(text), longest), 0, -1):
        end = text[-length:]
        if any(string.startswith(end) for string in strings):
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
