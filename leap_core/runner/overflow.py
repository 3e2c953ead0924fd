"""What a conversation that no longer fits the context leaves out of its prompt. Its history stays whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import LeapGenerationPromptExceedContextLengthError
from ..messages import ChatMessage, ChatMessageRole, Text
from ..options import GenerationOptions
from ..responses import Complete, GenerationFinishReason

if TYPE_CHECKING:
    from ..functions import LeapFunction
    from .generator import Generation, Generator

PART_FOR_ANSWER = 8
"""The part of the context that a prompt leaves free for its answer: one eighth."""
PART_AFTER = 2
"""A prompt that was shortened takes at most half of the context, so that the next turns need no shortening."""
REQUEST = (
    "Summarize the conversation below for someone who has to go on with it: names, facts, numbers, decisions and open "
    "questions, in a few sentences. Write the summary alone.\n\n"
)
SUMMARY = "[What was said before, in short: {summary}]\n\n"


class Overflow(str, Enum):
    """What happens when a conversation no longer fits the context: an error, or its oldest turns are left out, without
    a word or with a summary in their place."""

    ERROR = "error"
    OLDEST = "oldest"
    SUMMARIZE = "summarize"


@dataclass(frozen=True)
class Omission:
    """How many messages at the beginning of a history, system prompts aside, the model no longer gets, and the summary
    that it gets instead."""

    messages: int = 0
    summary: str | None = None


NOTHING = Omission()


def without(messages: Sequence[ChatMessage], omission: Omission) -> list[ChatMessage]:
    """What the model gets of a history. The summary goes into the user's next message: not every model knows system
    prompts, and a summary of what users said has no more authority than they have."""
    if not omission.messages:
        return list(messages)
    system = [message for message in messages if message.role is ChatMessageRole.SYSTEM]
    rest = [message for message in messages if message.role is not ChatMessageRole.SYSTEM][omission.messages :]
    if omission.summary is not None:
        place = next((n for n, message in enumerate(rest) if message.role is ChatMessageRole.USER), None)
        if place is not None:
            rest[place] = _opened_by(SUMMARY.format(summary=omission.summary), rest[place])
    return [*system, *rest]


@dataclass(frozen=True)
class Shortening:
    """Finds what is left out of one prompt. ``attach`` receives each generation of a summary, so that it can be
    stopped."""

    runner: Generator
    functions: Sequence[LeapFunction]
    options: GenerationOptions | None
    attach: Callable[[Generation], object]

    def fits(self, messages: Sequence[ChatMessage]) -> bool:
        """Whether the prompt leaves room for its answer."""
        most = None if self.options is None else self.options.max_tokens
        reserve = self.runner.context_size // PART_FOR_ANSWER
        return self._tokens(messages) + min(reserve, most or reserve) <= self.runner.context_size

    def shorten(self, messages: Sequence[ChatMessage], omission: Omission, *, summarize: bool) -> Omission:
        """Leave out as many of the oldest turns as make the prompt half a context long, or all but the last turn.
        Raises LeapGenerationPromptExceedContextLengthError where that turn alone is too long."""
        rest = [message for message in messages if message.role is not ChatMessageRole.SYSTEM]
        turns = [
            n for n in range(omission.messages + 1, len(rest)) if rest[n].role is ChatMessageRole.USER
        ]  # a prompt begins with what a user said
        room = self.runner.context_size // PART_AFTER
        low, high = 0, len(turns) - 1
        while low < high:
            middle = (low + high) // 2
            if self._tokens(without(messages, Omission(turns[middle]))) <= room:
                high = middle
            else:
                low = middle + 1
        shorter = Omission(turns[low], omission.summary) if turns else omission
        tokens = self._tokens(without(messages, replace(shorter, summary=None)))
        if tokens > self.runner.context_size:
            raise LeapGenerationPromptExceedContextLengthError(tokens, self.runner.context_size)
        if not summarize or shorter == omission:
            return shorter
        return self.summarized(rest[omission.messages : shorter.messages], shorter)

    def summarized(self, said: Sequence[ChatMessage], omission: Omission) -> Omission:
        """The omission with a summary of what was ``said`` besides what its summary says."""
        return replace(omission, summary=self._summary(said, omission.summary) or omission.summary)

    def _summary(self, said: Sequence[ChatMessage], before: str | None) -> str:
        longest = self.runner.context_size // PART_FOR_ANSWER
        lines = "\n\n".join(f"{message.role.value}: {message.text}" for message in said if message.text)
        request = REQUEST + (f"What was said before that: {before}\n\n" if before else "") + lines
        question = [ChatMessage(ChatMessageRole.USER, request)]
        if self._tokens(question) + longest <= self.runner.context_size:
            return self._answer(question, longest)
        if len(said) > 1:
            half = len(said) // 2
            return self._summary(said[half:], self._summary(said[:half], before))
        text = said[0].text
        if len(text) < 2:
            return before or ""
        return self._summary([ChatMessage(said[0].role, text[: len(text) // 2])], before)

    def _answer(self, question: Sequence[ChatMessage], longest: int) -> str:
        """Empty where there is no answer, also where it was stopped."""
        options = GenerationOptions(temperature=0.0, max_tokens=max(longest, 1), enable_thinking=False)
        generation = self.runner.start(question, (), options)
        try:
            self.attach(generation)
            for response in generation:
                if isinstance(response, Complete):
                    stopped = response.finish_reason is GenerationFinishReason.INTERRUPTED
                    return "" if stopped else response.full_message.text.strip()
        finally:
            generation.close()
        return ""

    def _tokens(self, messages: Sequence[ChatMessage]) -> int:
        try:
            return self.runner.get_prompt_tokens_size(messages, functions=self.functions, options=self.options)
        except LeapGenerationPromptExceedContextLengthError as error:  # too long to be counted
            return error.prompt_tokens


def _opened_by(text: str, message: ChatMessage) -> ChatMessage:
    """The message with this text before its own: one text, because many templates know no other messages."""
    parts = list(message.content)
    place = next((n for n, part in enumerate(parts) if isinstance(part, Text)), None)
    if place is None:
        return replace(message, content=(Text(text), *parts))
    part = parts[place]
    parts[place] = Text(text + part.text) if isinstance(part, Text) else part
    return replace(message, content=tuple(parts))
