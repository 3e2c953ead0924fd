"""The tokens of one reply become responses: characters, reasoning apart from text, calls apart from text, and text up
to a stop string."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..functions.call_stream import CallEvent, CallsFound, CallStream, CallText, CallWarning, marks_of
from ..messages import ChatMessage, ChatMessageRole, LeapFunctionCall, Speech, Text
from ..options import FunctionCallParser, GenerationOptions
from ..responses import (
    Chunk,
    Complete,
    FunctionCalls,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
    TokenLogprob,
)
from ..schemas.grammar_matcher import REASONING_TAGS, reasoning_tags
from ..statistics import GenerationStats
from .chat_template import THINK_END, THINK_START
from .reply_text import ReasoningSplitter, StopStrings, ThoughtCalls, utf8_decoder

if TYPE_CHECKING:
    from ..functions import LeapFunction
    from ..schemas.grammar_matcher import Vocabulary


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


class ReplyBuilder:
    """Builds one assistant message while its tokens arrive.

    ``inside_reasoning``: the template has opened the think tag. ``warnings`` are passed on with Complete.
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
    ) -> None:
        self._vocabulary = vocabulary
        self._options = options
        special = vocabulary.special_tokens
        tags = reasoning_tags(vocabulary)
        markers = [tag for pair in tags for tag in pair]
        marks = None
        self._marks: dict[int, tuple[str, str]] = {}
        """By token: the spelling of a marker of calls, and what represents it."""
        if parser is not None:
            marks, spellings = marks_of(parser, special), (parser.start_marker, parser.end_marker)
            markers += spellings
            pairs = zip(spellings, marks, strict=True)
            self._marks = {special[spelling]: (spelling, mark) for spelling, mark in pairs if spelling in special}
        # Other control tokens are turn markers and the like and are not shown. Without a parser the raw text is kept.
        self._is_raw = parser is None
        self._thought_calls = None if marks is None else ThoughtCalls(marks)
        readable = {special.get(marker) for marker in markers}
        self._hidden = vocabulary.control_tokens - readable if parser is not None else frozenset[int]()
        self._opens_reasoning, self._ends_reasoning = ({special[pair[side]] for pair in tags} for side in (0, 1))
        self._special = self._hidden | self._opens_reasoning | self._ends_reasoning | self._marks.keys()
        self._tags_are_tokens = bool(tags)
        texts = [*(() if tags else REASONING_TAGS[0]), *(marks or ())]
        self._signs = {text[0] for text in texts}
        """With these begins what is not text, where no token says so."""
        self._is_plain = False
        """Whether nothing is held or followed, so that text without such signs is delivered as it is."""
        self._decoder = utf8_decoder()
        self._splitter = ReasoningSplitter(inside=inside_reasoning, tags=tags or REASONING_TAGS[:1])
        self._stop = StopStrings(options.stop)
        self._calls = CallStream(parser, [function.name for function in functions], marks)
        self._inline_tag_open = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._function_calls: list[LeapFunctionCall] = []
        self._speech: Speech | None = None
        self._warnings = list(warnings)

    @property
    def met_stop_string(self) -> bool:
        """True once the text has ended at a stop string."""
        return self._stop.met is not None

    def feed(self, token: int) -> list[MessageResponse]:
        """The responses that a token completes."""
        if token in self._special:
            return self._feed_special(token)
        text = self._decoder.decode(self._vocabulary.piece(token))
        if self._is_plain and self._signs.isdisjoint(text):
            if text:
                self._text.append(text)
            return [Chunk(text)] if text else []
        if self._tags_are_tokens:
            return self._route(self._splitter.take(text))
        return self._route(self._splitter.feed(text, lambda: self._calls.is_open))

    def _feed_special(self, token: int) -> list[MessageResponse]:
        """The responses that a marker completes, or another token that is not text."""
        if token in self._hidden or self._is_out_of_place(token):
            return []
        text = self._decoder.decode(self._vocabulary.piece(token))
        if token in self._marks:
            spelling, mark = self._marks[token]
            text = text.removesuffix(spelling) + mark
        if self._tags_are_tokens and token in self._marks:
            return self._route(self._splitter.take(text))
        return self._route(self._splitter.feed(text, lambda: self._calls.is_open))

    def _is_out_of_place(self, token: int) -> bool:
        """Whether this is a marker that begins or ends nothing where it is."""
        if self._is_raw:
            return False
        if self._splitter.inside:
            return token in self._opens_reasoning
        return token in self._ends_reasoning and not self._calls.is_open

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
        events = self._route(self._splitter.finish())
        events += self._finish_reasoning()
        calls = self._calls.finish()
        if reason in CUT and self._options.tool_choice not in (None, "auto", "none"):
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
        events.append(Complete(message, reason, stats, tuple(self._warnings), *logprobs, self._stop.met))
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
            if kind == "text":
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
                self._function_calls += event.calls
                responses.append(FunctionCalls(event.calls))
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
