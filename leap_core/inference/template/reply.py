"""The tokens of one reply become responses: text, reasoning apart from it, calls apart from both.

A text can be cut into tokens in several ways, and a model does not always write the way its tokenizer reads. Read back
differently, a reply would not match what the engine's memory holds, and would be computed again.
"""

from __future__ import annotations

import codecs
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from ...conversation.calls.fitting import fits, fitted, misfit
from ...conversation.calls.parsers import (
    CallEvent,
    CallsFound,
    CallStream,
    CallText,
    CallWarning,
    marks_of,
    partial_suffix,
    without_calls,
)
from ...conversation.messages import ChatMessage, ChatMessageRole, LeapFunctionCall, Speech, Text
from ...conversation.options import CONSTRAINTS, FunctionCallParser, GenerationOptions
from ...conversation.responses import (
    Chunk,
    Complete,
    FunctionCalls,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
    TokenLogprob,
)
from ...errors import GenerationStats
from ...schemas.grammar_matcher import REASONING_TAGS, reasoning_tags
from .channels import READERS
from .chat_template import THINK_END, THINK_START

if TYPE_CHECKING:
    from ...conversation.calls import LeapFunction
    from ...schemas.grammar_matcher import Vocabulary

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

    def __init__(self, *, inside: bool = False, tags: Sequence[tuple[str, ...]] = REASONING_TAGS[:1]) -> None:
        self._starts = [each[0] for each in tags]
        self._ends = [end for each in tags for end in each[1:]]
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
        return self._ends if self.inside else self._starts

    def _first_tag(self) -> str | None:
        places = [(place, tag) for tag in self._next_tags() if (place := self._held.find(tag)) >= 0]
        return min(places)[1] if places else None

    def skip_space(self) -> None:
        """Leave out the white space that comes next."""
        self._skip_space = True

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

    def __init__(self, strings: Sequence[str], after: int = 0) -> None:
        self._strings = tuple(strings)
        self.after = after if strings else 0
        """So many more tokens of the reply complete none of the strings."""
        self._held = ""
        self.met: str | None = None
        """The string that ended the text."""

    def feed(self, text: str) -> str:
        """The text that certainly comes before any stop string; "" after one was met."""
        if self.met is not None or not self._strings:
            return "" if self.met is not None else text
        known = len(self._held)
        self._held += text
        places = [
            (place + len(string), place, string)
            for string in self._strings
            if (place := self._held.find(string, max(0, known - len(string) + 1))) >= 0
        ]
        if places and self.after <= 0:
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
    """Takes the text of reasoning and gives it back with ``marks``, which begin and end calls (``marks_of``), as they
    are spelled. From where one begins, text is held."""

    def __init__(self, marks: tuple[str, str], spellings: tuple[str, str]) -> None:
        self._spellings = dict(zip(marks, spellings, strict=True))
        self._start = marks[0]
        self._markers = marks
        self._pattern = re.compile("|".join(map(re.escape, self._markers)))
        self._held = ""
        self._has_call = False

    @property
    def is_in_call(self) -> bool:
        """Whether what comes next may be a part of a call."""
        start, end = (self._held.rfind(mark) for mark in self._markers)
        return self._has_call and (start > end or not self._markers[1])

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
        return self._spelled(ready)

    def _spelled(self, text: str) -> str:
        return self._pattern.sub(lambda mark: self._spellings[mark[0]], text)

    def end_of_reasoning(self) -> str:
        """What was held, now that the reasoning has ended: reasoning after all."""
        held, self._held, self._has_call = self._held, "", False
        return self._spelled(held)

    def end_of_reply(self) -> tuple[str, str]:
        """Reasoning that was held in vain, and what begins with a call, now that the reply has ended within
        reasoning."""
        held, self._held = self._held, ""
        return ("", held) if self._has_call else (self._spelled(held), "")


CUT = (
    GenerationFinishReason.MAX_TOKENS,
    GenerationFinishReason.EXCEED_CONTEXT,
    GenerationFinishReason.REPETITION,
    GenerationFinishReason.INTERRUPTED,
)
"""Ends that the model did not choose."""


class Score(Protocol):
    """How likely a token was, as the engine notes it."""

    @property
    def token(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def allowed_logprob(self) -> float | None: ...
    @property
    def top(self) -> tuple[tuple[int, float], ...]: ...


class _Markers:
    """The tokens of a reply that are no text, by what they do, and the texts that are none where no token says so.

    ``parser``: how calls are written; None leaves them as raw text. ``tags``: around reasoning. ``texts``: how calls
    begin and end in the text of the reply (``marks_of``), ``spellings``: by the model.
    """

    def __init__(self, vocabulary: Vocabulary, parser: FunctionCallParser | None) -> None:
        special = vocabulary.special_tokens
        own = getattr(parser, "reasoning", ())
        tags: Sequence[tuple[str, ...]] = (own,) if own else reasoning_tags(vocabulary)
        markers = [tag for pair in tags for tag in pair]
        self.texts: tuple[str, str, str] | None = None
        self.spellings = ("", "")
        self.parts: frozenset[int] = frozenset()
        """Tokens that are a part of a marker, and no marker."""
        self.calls: dict[int, tuple[str, str]] = {}
        """By token: the spelling of a marker of calls, and what represents it."""
        self.hidden = frozenset[int]()
        """Turn markers and the like, which are not shown."""
        dropped: tuple[str, ...] = getattr(parser, "dropped", ())
        also: str = getattr(parser, "also", "")
        self.also = special.get(also) if parser is not None else None
        if parser is not None:
            self.texts, self.spellings = marks_of(parser, special), (parser.start_marker, parser.end_marker)
            markers += (*self.spellings, also)
            longer = [*markers, *dropped]
            self.parts = frozenset(
                number for text, number in special.items() if any(text in each for each in longer if each != text)
            )
            pairs = [*zip(self.spellings, self.texts[:2], strict=True), (also, self.texts[0])]
            self.calls = {special[spelling]: (spelling, mark) for spelling, mark in pairs if spelling in special}
            self.hidden = vocabulary.control_tokens - {special.get(marker) for marker in markers} - self.parts
        self.opens_reasoning = {special[pair[0]] for pair in tags if pair[0] in special}
        self.ends_reasoning = {special[end] for pair in tags for end in pair[1:] if end in special}
        self.special = self.hidden | self.opens_reasoning | self.ends_reasoning | self.calls.keys()
        self.tags_are_tokens = bool(tags) and all(each in special for pair in tags for each in pair)
        self.tags = tags or REASONING_TAGS[:1]
        told = () if self.tags_are_tokens else [each for pair in self.tags for each in pair]
        self.signs = {text[0] for text in [*told, *(self.texts or ()), *dropped] if text}
        """With these begins what is not text, where no token says so."""


class ReplyBuilder:
    """Builds one assistant message while its tokens arrive.

    ``inside_reasoning``: the template has opened the think tag. ``warnings`` and ``left_out`` are passed on with
    Complete.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        options: GenerationOptions,
        parser: FunctionCallParser | None,
        *,
        functions: Sequence[LeapFunction] = (),
        inside_reasoning: bool = False,
        warnings: Sequence[str] = (),
        left_out: tuple[str, ...] = (),
    ) -> None:
        self._vocabulary = vocabulary
        self._options = options
        parser = without_calls(parser) if parser is not None and not functions else parser
        self._is_raw = parser is None
        markers = self._markers = _Markers(vocabulary, parser)
        marks = markers.texts
        self._special, self._signs = markers.special - markers.parts, markers.signs
        self._fed_alone = markers.special | markers.parts
        self._tags_are_tokens = markers.tags_are_tokens
        self._thought_calls = ThoughtCalls(marks[:2], markers.spellings) if marks and marks[0] else None
        self._is_plain = False
        """Whether nothing is held or followed, so that text without such signs is delivered as it is."""
        self._decoder = utf8_decoder()
        reader = READERS.get(parser.name) if parser is not None else None
        names = [function.name for function in functions]
        self._channels = None if reader is None else reader(vocabulary.special_tokens, markers.hidden, names)
        self._splitter = ReasoningSplitter(inside=inside_reasoning, tags=markers.tags)
        self._stop = StopStrings(options.stop, options.min_tokens or 0)
        self._functions = functions
        self._must_call = options.tool_choice not in (None, "auto", "none")
        is_shaped = any(getattr(options, name) is not None for name in CONSTRAINTS)
        is_json_answer = is_shaped and not self._must_call
        takes = None if is_json_answer else partial(fits, functions=functions)
        self._calls = CallStream(parser, names, marks, takes)
        self._inline_tag_open = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._function_calls: list[LeapFunctionCall] = []
        self._speech: Speech | None = None
        self._warnings, self._left_out = list(warnings), left_out

    @property
    def met_stop_string(self) -> bool:
        """True once the text has ended at a stop string."""
        return self._stop.met is not None

    def feed(self, token: int) -> list[MessageResponse]:
        """The responses that a token completes."""
        responses = self._feed(token)
        self._stop.after -= 1
        return responses

    def _feed(self, token: int) -> list[MessageResponse]:
        if self._channels is not None:
            return self._route(self._channels.feed(token, self._decoder.decode(self._vocabulary.piece(token))))
        if token in self._special:
            return self._feed_special(token)
        return self._feed_text(self._vocabulary.piece(token))

    def feed_run(self, tokens: Sequence[int]) -> list[MessageResponse] | None:
        """The responses that tokens complete which came together, in one pass; None where each has to be fed alone."""
        if not self._is_plain or self._stop.after > 0 or not self._fed_alone.isdisjoint(tokens):
            return None
        return self._feed_text(b"".join(map(self._vocabulary.piece, tokens)))

    def _feed_text(self, pieces: bytes) -> list[MessageResponse]:
        text = self._decoder.decode(pieces)
        if self._is_plain and self._signs.isdisjoint(text):
            self._calls.pass_on(text)
            return self._text_of(text)
        if self._tags_are_tokens:
            return self._route(self._splitter.take(text))
        return self._route(self._splitter.feed(text, lambda: self._calls.is_open or self._calls.is_quoting))

    def _feed_special(self, token: int) -> list[MessageResponse]:
        """The responses that a marker completes, or another token that is not text."""
        is_argument = self._is_in_call  # what a string of a call holds is its text
        if token in self._markers.hidden and not is_argument:
            return []
        if self._is_out_of_place(token):
            if token in self._markers.ends_reasoning and not self._text:  # of a model that was told not to think
                self._splitter.skip_space()
                self._is_plain = False
            return []
        text = self._decoder.decode(self._vocabulary.piece(token))
        if token == self._markers.also:
            text = text if self._is_in_call else self._markers.calls[token][1] + text
        elif token in self._markers.calls:
            spelling, mark = self._markers.calls[token]
            text = text.removesuffix(spelling) + mark
        if self._tags_are_tokens and token in self._markers.calls:
            return self._route(self._splitter.take(text))
        return self._route(self._splitter.feed(text, lambda: self._calls.is_open))

    @property
    def _is_in_call(self) -> bool:
        thought = self._thought_calls
        return (thought is not None and thought.is_in_call) if self._splitter.inside else self._calls.is_open

    def _is_out_of_place(self, token: int) -> bool:
        """Whether this is a marker that begins or ends nothing where it is."""
        if self._is_raw:
            return False
        if self._splitter.inside:
            return token in self._markers.opens_reasoning
        return token in self._markers.ends_reasoning and not self._calls.is_open

    def add_speech(self, speech: Speech | None) -> None:
        """What was said aloud belongs to the message too."""
        self._speech = speech

    def warn(self, line: str) -> None:
        """Pass a further warning on with Complete."""
        self._warnings.append(line)

    def finish(
        self,
        reason: GenerationFinishReason,
        stats: GenerationStats,
        scores: Sequence[Score] = (),
        prompt_scores: Sequence[Score] = (),
    ) -> list[MessageResponse]:
        """What was held back, then Complete. ``scores`` and ``prompt_scores``: how likely the tokens were, if that was
        asked for."""
        events = self._route(self._channels.finish() if self._channels else self._splitter.finish())
        events += self._finish_reasoning()
        calls = self._calls.finish()
        if reason in CUT and self._must_call:
            calls = _without_cut_call(calls)
        events += self._events(calls)
        if self._stop.met and reason is GenerationFinishReason.MAX_TOKENS:  # the last token completed a stop string
            reason = GenerationFinishReason.STOP
        events += self._text_of(self._stop.finish())
        events += self._close_inline_tag()
        message = ChatMessage(
            ChatMessageRole.ASSISTANT,
            [*([Text(text)] if (text := "".join(self._text)) else []), *([self._speech] if self._speech else [])],
            reasoning_content="".join(self._reasoning).rstrip() or None,
            function_calls=self._function_calls or None,
        )
        logprobs = self._logprobs(scores), self._logprobs(prompt_scores)
        complete = Complete(message, reason, stats, tuple(self._warnings), *logprobs, self._stop.met)
        events.append(replace(complete, left_out=self._left_out))
        return events

    def _logprobs(self, scores: Sequence[Score]) -> tuple[TokenLogprob, ...]:
        piece = self._vocabulary.piece
        return tuple(
            TokenLogprob(
                piece(each.token),
                each.logprob,
                each.allowed_logprob,
                tuple((piece(token), logprob) for token, logprob in each.top),
            )
            for each in scores
        )

    def _route(self, pieces: Iterable[tuple[str, str]]) -> list[MessageResponse]:
        events: list[MessageResponse] = []
        for kind, text in pieces:
            thought = self._thought_calls
            if kind == "warning":
                self.warn(text)
            elif kind == "text":
                events += self._think(thought.end_of_reasoning() if thought else "")
                events += self._close_inline_tag()
                events += self._events(self._calls.feed(text))
            else:
                events += self._think(thought.feed(text) if thought else text)
        self._is_plain = self._calls.is_idle and self._splitter.is_idle and not self._options.stop
        return events

    def _finish_reasoning(self) -> list[MessageResponse]:
        """What was held back within reasoning: in a reply that ends there, a call is a call."""
        thought = self._thought_calls
        if thought is None:
            return []
        if not self._splitter.inside:
            return self._think(thought.end_of_reasoning())
        reasoning, calls = thought.end_of_reply()
        responses = self._think(reasoning)
        events = [*self._calls.feed(calls), *self._calls.finish()] if calls else []
        responses += self._think("".join(event.text for event in events if isinstance(event, CallText)))
        responses += self._close_inline_tag()
        return responses + self._events([event for event in events if not isinstance(event, CallText)])

    def _think(self, text: str) -> list[MessageResponse]:
        if not text:
            return []
        self._reasoning.append(text)
        if self._options.inline_thinking_tags:
            chunk = Chunk(text if self._inline_tag_open else THINK_START + text)
            self._inline_tag_open = True
            return [chunk]
        return [ReasoningChunk(text)] if self._options.enable_thinking else []

    def _close_inline_tag(self) -> list[MessageResponse]:
        was_open, self._inline_tag_open = self._inline_tag_open, False
        return [Chunk(THINK_END)] if was_open else []

    def _events(self, events: Sequence[CallEvent]) -> list[MessageResponse]:
        responses: list[MessageResponse] = []
        for event in events:
            if self._stop.met:  # whatever comes after the end of the text was never said
                break
            if isinstance(event, CallText):
                responses += self._text_of(self._stop.feed(event.text))
            elif isinstance(event, CallsFound):
                responses += self._text_of(self._stop.finish())
                calls = tuple(fitted(call, self._functions) for call in event.calls)
                self._function_calls += calls
                self._warnings += filter(None, (misfit(call, self._functions) for call in calls))
                responses.append(FunctionCalls(calls))
            else:
                self._warnings.append(event.message)
        return responses

    def _text_of(self, text: str) -> list[MessageResponse]:
        if not text:
            return []
        self._text.append(text)
        return [Chunk(text)]


def _without_cut_call(events: Sequence[CallEvent]) -> list[CallEvent]:
    """The end of a reply that was to be calls alone: what is there beside them is the beginning of one."""
    calls: list[CallEvent] = [event for event in events if isinstance(event, CallsFound)]
    is_whole = len(calls) == len(events)
    return calls if is_whole else [*calls, CallWarning("the answer was cut within a function call, which is left out")]


MOST_REPLIES = 64
Piece = str | bytes
"""A prompt consists of these: text, or the content key of a picture or a sound."""


class ReplyMemory:
    """Prompts with their replies, newest last. Prompts are the pieces of text that ``ChatTemplate.render`` gives: two
    prompts with cuts at different places are different, because a special token that a user typed is cut there.

    ``special_texts``: the texts of special tokens. Any thread may call.
    """

    def __init__(self, special_texts: Collection[str]) -> None:
        self._special = tuple(special_texts)
        self._guard = threading.Lock()
        self._known: OrderedDict[tuple[Piece, ...], tuple[int, ...]] = OrderedDict()

    def keep(self, pieces: Sequence[Piece], reply: str, ids: Sequence[int], special: int = 0) -> None:
        """``ids`` are the tokens of the prompt ``pieces`` and of its ``reply``, ``special`` of which are special, such
        as the markers of calls. A reply that spells another special token in plain text is not kept: read back, a
        template may make one of it, or cut the text there."""
        last = pieces[-1] if pieces else b""
        if not isinstance(last, str) or not reply or sum(map(reply.count, self._special)) != special:
            return
        key = (*pieces[:-1], last + reply)
        with self._guard:
            self._known[key] = tuple(ids)
            self._known.move_to_end(key)
            while len(self._known) > MOST_REPLIES:
                self._known.popitem(last=False)

    def beginning(self, pieces: Sequence[Piece]) -> tuple[tuple[int, ...], list[Piece]]:
        """The tokens of the longest known beginning of ``pieces``, and what is left of them. A beginning ends where a
        special token follows, because no token reaches across that."""
        best: tuple[tuple[int, ...], list[Piece]] = ((), list(pieces))
        with self._guard:
            replies = list(self._known.items())
        for key, ids in replies:
            last = len(key) - 1
            if len(ids) <= len(best[0]) or len(pieces) <= last or tuple(pieces[:last]) != key[:last]:
                continue
            text, start = pieces[last], key[last]
            if not isinstance(text, str) or not isinstance(start, str) or not text.startswith(start):
                continue
            rest = text[len(start) :]
            if rest.startswith(self._special):
                best = ids, [rest, *pieces[last + 1 :]]
        return best
