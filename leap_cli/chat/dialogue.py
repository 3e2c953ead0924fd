"""A conversation as ``leap chat`` holds it: every answer shown while it comes, every turn kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from leap_core.conversation.conversation import Omission, Overflow
from leap_core.conversation.messages import ChatMessage, ChatMessageContent, ChatMessageRole, Text
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import Complete, GenerationFinishReason
from leap_core.conversation.streams import Stream

from ..answers.show import respond
from ..framework.environment import Environment
from ..framework.interrupts import raising_on_interrupt
from ..framework.output import Output
from ..input.prompt import Pattern
from ..options.answer import Thinking
from ..options.conversation import OpenGuard
from ..options.tools import Tools

if TYPE_CHECKING:
    from leap_core.conversation.conversation import Conversation
    from leap_core.conversation.generator import Generator
    from leap_core.conversation.runner import ModelRunner
    from leap_core.conversation.session_recorder import SessionRecorder

QUESTION = "Enter sums up what was said first, o leaves the oldest out, e refuses this message: "
ANSWERS = {"": Overflow.SUMMARIZE, "s": Overflow.SUMMARIZE, "o": Overflow.OLDEST, "e": Overflow.ERROR}


class FullContext:
    """What happens when the context is full. ``chosen`` None: a terminal is asked once, and in a pipe, where nobody can
    be asked, the oldest turns are left out."""

    def __init__(self, env: Environment, chosen: Overflow | None) -> None:
        self._env, self._output = env, Output(env)
        self._asks = chosen is None and env.stdin_is_terminal
        self.policy = chosen or (Overflow.SUMMARIZE if self._asks else Overflow.OLDEST)
        self.stays = False
        """Whether a session keeps what is left out."""

    def apply(self, conversation: Conversation) -> None:
        """Let the conversation do so, and say so."""
        conversation.on_overflow = self.policy
        conversation.on_omission = self.say

    def ask(self, conversation: Conversation, message: ChatMessage | None, options: GenerationOptions) -> None:
        """Before ``message`` is answered: ask, where that was not done and its prompt does not fit."""
        if not self._asks or not conversation.overflows(message, options):
            return
        self._output.note("the conversation no longer fits the context")
        try:
            with raising_on_interrupt():
                answer = self._env.read_typed_line(QUESTION).strip().lower()[:1]
        except EOFError:
            answer = ""
        self.policy = ANSWERS.get(answer, Overflow.SUMMARIZE)
        self._asks = False
        self.apply(conversation)

    def say(self, omission: Omission) -> None:
        """Say what the model no longer gets."""
        what = "the first message" if omission.messages == 1 else f"the first {omission.messages} messages"
        instead = "" if omission.summary is None else ", but a summary"
        where = "; the session keeps all" if self.stays else ""
        self._output.note(f"the model no longer gets {what}{instead}{where}")


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
        self.pattern: Pattern | None = None
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
        """Continue from another past."""
        self._begin(self.conversation.model_runner, history)
        self._keep()

    def compact(self) -> Omission:
        """Give the model a summary in the place of all turns but the last; what it no longer gets."""
        omission = self.conversation.compact()
        self._keep()
        return omission

    def change_model(self, runner: ModelRunner) -> None:
        """Continue with another model; the one before is unloaded."""
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
        from leap_core.conversation.conversation import Conversation

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
