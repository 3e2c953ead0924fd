"""A conversation as ``leap chat`` holds it: every answer is shown while it comes, and every message kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from leap_core.messages import ChatMessage, ChatMessageContent, ChatMessageRole, Text
from leap_core.options import GenerationOptions
from leap_core.responses import Complete, GenerationFinishReason
from leap_core.runner.streams import Stream

from ..answers.tool_use import respond
from ..input.pattern import Pattern
from ..options.answer import Thinking
from ..options.guarding import OpenGuard
from ..options.tool_options import Tools
from .full_context import FullContext

if TYPE_CHECKING:
    from leap_core.runner.contract import ModelRunner
    from leap_core.runner.conversation import Conversation
    from leap_core.runner.generator import Generator
    from leap_core.runner.overflow import Omission
    from leap_core.sessions.recorder import SessionRecorder


Show = Callable[["Dialogue", Stream], Complete]
"""Reads a stream to its end while a person, or a program, gets to see it."""


class Dialogue:
    """A conversation, the options of its answers, and the log of its session."""

    def __init__(
        self,
        conversation: Conversation,
        options: GenerationOptions,
        tools: Tools,
        log: SessionRecorder,
        show: Show,
        full: FullContext,
        thinking: Thinking | None = None,
        pattern: Pattern | None = None,
        guard: OpenGuard | None = None,
    ) -> None:
        self.conversation = conversation
        self.options = options
        self.tools = tools
        self.log = log
        self.show = show
        self.full = full
        self.thinking = thinking
        """Where reasoning is shown; None where the model is not asked to reason."""
        self.pattern = pattern
        """What the first message is put into."""
        self.guard = guard
        self.last: Complete | None = None
        """How the newest answer ended."""
        self._equip(conversation)

    @property
    def history(self) -> list[ChatMessage]:
        return self.conversation.history

    def say(self, text: str, attached: Sequence[ChatMessageContent] = ()) -> Complete:
        """Answer what the user says; the first message that is answered goes into the pattern."""
        filled = text if self.pattern is None else self.pattern.fill(text)
        parts = [*attached, Text(filled)] if filled or not attached else attached
        complete = self.answer(ChatMessage(ChatMessageRole.USER, parts))
        self.pattern = None
        return complete

    def answer(self, message: ChatMessage | None) -> Complete:
        """Answer ``message``, or the history as it is. Where that fails the history, and what is kept of it, are as
        they were, but for calls that have run."""
        self.full.ask(self.conversation, message, self.options)
        stream = respond(self.tools, self.conversation, message, self.options)
        if message is not None:
            stream = self.log.keeping(stream, self.conversation, message)
        try:
            self.last = self.show(self, stream)
        except BaseException:
            self._keep()
            raise
        self._keep(self.last.finish_reason)
        return self.last

    def add(self, message: ChatMessage) -> None:
        """Take note of a message without answering it."""
        self.conversation.append_to_history(message)
        self._keep()

    def answer_instead(self, kept: Sequence[ChatMessage], message: ChatMessage) -> Complete:
        """Forget what came after ``kept`` and answer ``message``; nothing is forgotten before the answer is there."""
        before = self.conversation
        self._begin(before.model_runner, kept)
        try:
            self.full.ask(self.conversation, message, self.options)
            self.last = self.show(self, respond(self.tools, self.conversation, message, self.options))
        except BaseException:
            self.conversation = before
            raise
        self._keep(self.last.finish_reason)
        return self.last

    def rewrite(self, history: Sequence[ChatMessage]) -> None:
        """Go on from another past."""
        self._begin(self.conversation.model_runner, history)
        self._keep()

    def compact(self) -> Omission:
        """Give the model a summary in the place of all turns but the last; what it no longer gets."""
        omission = self.conversation.compact()
        self._keep()
        return omission

    def change_model(self, runner: ModelRunner) -> None:
        """Go on with another model; the one before is unloaded."""
        before = self.conversation.model_runner
        self._begin(runner, self.history)
        before.unload()

    def change_tools(self, tools: Tools) -> None:
        """Let the model call these from now on, and no others."""
        self.tools = tools
        self._begin(self.conversation.model_runner, self.history)

    def set_system(self, text: str | None) -> None:
        """Another system prompt for the same conversation; None is no system prompt."""
        rest = [message for message in self.history if message.role is not ChatMessageRole.SYSTEM]
        self.rewrite(rest if text is None else [ChatMessage(ChatMessageRole.SYSTEM, text), *rest])

    def _begin(self, runner: Generator, history: Sequence[ChatMessage]) -> None:
        from leap_core.runner.conversation import Conversation

        before = self.conversation
        self.conversation = Conversation(runner, history)
        omitted = before.omission.messages
        if omitted and _said(history)[:omitted] == _said(before.history)[:omitted]:
            self.conversation.omission = before.omission
        self._equip(self.conversation)

    def _equip(self, conversation: Conversation) -> None:
        """Let it do what the command line asks of every conversation."""
        self.full.stays = self.log.is_open
        self.full.apply(conversation)
        conversation.register_functions(self.tools.functions)
        conversation.guard = None if self.guard is None else self.guard.of(conversation.model_runner)

    def _keep(self, finish: GenerationFinishReason | None = None) -> None:
        """An empty conversation begins no session."""
        if self.log.has_begun or any(each.role is not ChatMessageRole.SYSTEM for each in self.history):
            self.log.keep(self.history, finish)
            self.log.keep_omission(self.conversation.omission)


def _said(history: Sequence[ChatMessage]) -> list[ChatMessage]:
    return [message for message in history if message.role is not ChatMessageRole.SYSTEM]
