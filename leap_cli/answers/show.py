"""Shows one answer while it is generated, in any format, with the tools that run in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import field
from typing import TYPE_CHECKING

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import (
    Chunk,
    Complete,
    FunctionCalls,
    FunctionResult,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
    require_complete,
)
from leap_core.conversation.streams import PassingStream, Stream
from leap_core.errors import LeapError
from leap_core.system.dataclass import dataclass

from ..framework.cut_answers import note_cut
from ..framework.interrupts import stopping_on_interrupt
from ..framework.output import CONTROLS, Format, Output
from ..framework.wrapping import WordWrap

if TYPE_CHECKING:
    from leap_core.conversation.conversation import Conversation
    from leap_core.conversation.options import GenerationOptions

    from ..options.tools import Tools
    from .markdown import MarkdownStream

INTERRUPTED = GenerationFinishReason.INTERRUPTED


@dataclass(frozen=True)
class Display:
    """How an answer is shown."""

    streaming: bool = True
    """Show text as it is generated."""
    thinking: bool = False
    """Show the reasoning."""
    stats: bool = False
    """Show counts and speeds after the answer."""
    markdown: bool = False
    """The text is Markdown, and a terminal shows it styled."""


PLAIN = Display()


def show_answer(
    stream: Stream,
    output: Output,
    *,
    model: str,
    display: Display = PLAIN,
    calls: Calls | None = None,
    before_first: Callable[[], object] | None = None,
    more: Mapping[str, object] | None = None,
) -> Complete:
    """Generate and show. Ctrl-C ends the answer early and what has come is kept.

    ``calls``: how calls of functions are shown, when leap runs them itself; None prints them as the answer.
    ``more``: what a JSON document holds besides.
    ``before_first`` runs once the model has begun to answer, so that a request it refuses gives nothing but the error.
    """
    writer = _AnswerWriter(output, display, calls)
    warnings: list[str] = []
    complete: Complete | None = None
    with stopping_on_interrupt(stream.stop), closing(stream):
        try:
            for response in stream:
                if before_first is not None:
                    before_first()
                    before_first = None
                writer.show(response)
                if isinstance(response, Complete):
                    complete = response
                    warnings += (*response.left_out, *response.warnings)
        except LeapError:
            writer.end()  # what came before the error stays readable
            raise
    writer.end()
    complete = require_complete(complete)
    if output.format is Format.JSON:
        made = {"calls": calls.made} if calls is not None and calls.made else {}
        output.document({"model": model, **made, **_without_type(complete), **(more or {})})
    for warning in warnings:
        output.warning(warning)
    if display.thinking and not complete.full_message.reasoning_content and complete.finish_reason is not INTERRUPTED:
        output.warning(f"{model} gave no reasoning: --think is for models that reason", once=True)
    _remark(complete, output, display.stats)
    return complete


@dataclass
class Calls:
    """Calls that leap runs: kept for the JSON document, and shown on stderr if ``shown``."""

    shown: bool = False
    made: list[dict[str, object]] = field(default_factory=list)

    def show(self, result: FunctionResult, output: Output) -> None:
        """Take note of a function's result."""
        self.made.append({key: item for key, item in result.to_json().items() if key != "type"})
        if not self.shown or output.format is Format.JSONL:
            return
        from leap_core.conversation.calls.pythonic import write_calls

        output.note(f"call {write_calls([result.call])[1:-1]}")
        output.note(f"result {result.text}" if result.error is None else f"error {result.error}")


class _AnswerWriter:
    """Writes the events of one answer. Text and reasoning each end with a line end before the other begins."""

    def __init__(self, output: Output, display: Display, calls: Calls | None) -> None:
        self._output = output
        self._streaming = display.streaming and output.format in (Format.TEXT, Format.JSONL)
        self._show_thinking = display.thinking
        self._shown_calls = calls
        self._markdown: MarkdownStream | None = None
        if display.markdown and output.shows_styles:
            from .markdown import MarkdownStream  # here, because every prompt in a pipe would pay for it

            self._markdown = MarkdownStream(output.columns)
        wraps = output.format is Format.TEXT
        self._wrap = WordWrap(output.columns) if wraps and output.columns is not None else None
        self._wrap_aside = WordWrap(output.aside_columns) if output.aside_columns is not None else None
        self._open_text = False
        self._open_aside = False

    def show(self, response: MessageResponse) -> None:
        calls = self._shown_calls
        if calls is not None and isinstance(response, FunctionResult):
            self.end()
            calls.show(response, self._output)
        if self._output.format is Format.JSON:
            return
        if self._output.format is Format.JSONL:
            if self._streaming or isinstance(response, Complete):
                self._output.event(response.to_json())
            return
        if isinstance(response, Complete):
            if not self._streaming:
                self._message(response.full_message)
        elif not self._streaming:
            return
        elif isinstance(response, Chunk):
            self._text(response.text)
        elif isinstance(response, ReasoningChunk) and self._show_thinking:
            self._aside(response.reasoning)
        elif isinstance(response, FunctionCalls):
            self._calls(response)

    def end(self) -> None:
        """Close the line that is open."""
        if self._wrap_aside is not None:
            self._output.aside(self._wrap_aside.end())
        if self._open_aside:
            self._output.aside("\n")
        if self._wrap is not None:
            self._output.text(self._wrap.end())
        if self._markdown is not None:
            self._output.styled(self._markdown.end())
        if self._open_text:
            self._output.text("\n")
        self._open_text = self._open_aside = False

    def _message(self, message: ChatMessage) -> None:
        if self._show_thinking and message.reasoning_content:
            self._aside(message.reasoning_content)
        if message.text:
            self._text(message.text)
        if message.function_calls:
            self._calls(FunctionCalls(message.function_calls))

    def _text(self, piece: str) -> None:
        if self._open_aside:
            self.end()
        if self._markdown is not None:
            self._output.styled(self._markdown.feed(piece.translate(CONTROLS)))
        else:
            self._output.text(piece if self._wrap is None else self._wrap.feed(piece))
        self._open_text = not piece.endswith("\n")

    def _aside(self, piece: str) -> None:
        self._output.aside(piece if self._wrap_aside is None else self._wrap_aside.feed(piece))
        self._open_aside = not piece.endswith("\n")

    def _calls(self, calls: FunctionCalls) -> None:
        self.end()
        if self._shown_calls is not None:  # it shows them together with their results
            return
        for call in calls.function_calls:
            self._output.event(call.to_json()["function"])


def _without_type(complete: Complete) -> dict[str, object]:
    return {key: value for key, value in complete.to_json().items() if key != "type"}


def _remark(complete: Complete, output: Output, show_stats: bool) -> None:
    note_cut(complete.finish_reason, complete.full_message, output)
    if show_stats and complete.stats is not None:
        output.note(complete.stats.describe())


def shown_calls(tools: Tools, *, always: bool = False) -> Calls | None:
    """How calls are shown: None, as the answer, where some tools are only declared. ``always``: also where the user did
    not ask to see them, as at the terminal of a conversation."""
    runnable = tools.functions and all(function.call is not None for function in tools.functions)
    return Calls(tools.show_calls or always) if runnable else None


def respond(
    tools: Tools, conversation: Conversation, message: ChatMessage | str | None, options: GenerationOptions
) -> Stream:
    """The answer to ``message``, or to the history as it is, with the calls that it takes."""
    if not tools.functions:
        return conversation.generate_response(message, options)
    from leap_core.tools.run import run_functions

    assert tools.policy is not None
    return run_functions(conversation, tools.policy, message, options)


class RefusalNote(PassingStream):
    """Passes an answer on and notes whether the user refused a call in it."""

    refused = False

    def __next__(self) -> MessageResponse:
        response = super().__next__()
        if isinstance(response, FunctionResult):
            self.refused = self.refused or response.refused
        return response
