"""A conversation: its history, its functions, and what it leaves out of a prompt that no longer fits the context."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import (
    LeapGenerationError,
    LeapGenerationPromptExceedContextLengthError,
    LeapOptionsError,
    LeapSerializationError,
)
from ..system.dataclass import dataclass
from .generator import Generation, Generator
from .messages import ChatMessage, ChatMessageRole, LeapFunctionCall, Text
from .options import GenerationOptions, check_options
from .responses import Complete, FunctionCalls, GenerationFinishReason, MessageResponse
from .streams import ResponseStream

if TYPE_CHECKING:
    from .calls import LeapFunction

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
        """Whether the prompt leaves space for its answer."""
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


TURN_POLL_SECONDS = 0.05


class Guarding(Protocol):
    """Checks the messages before ``start`` is called, and the answer before it is delivered (``decisions.guard``)."""

    def guarding(self, messages: Sequence[ChatMessage], start: Callable[[], Generation]) -> Generation: ...


class Conversation:
    """Messages and functions over a runner. Safe to use from several threads; generations take turns."""

    def __init__(self, model_runner: Generator, history: Iterable[ChatMessage | Mapping[str, Any]] = ()) -> None:
        """``history``: messages, or objects of their JSON form."""
        self.model_runner = model_runner
        self._history = messages_of(history)
        self._appended: list[ChatMessage] = []
        """What was appended while a generation runs, and follows it."""
        self._holder: ResponseStream | None = None
        """The stream whose turn it is."""
        self._functions: list[LeapFunction] = []
        self._overflow = Overflow.ERROR
        self._tokens = 0
        """The newest prompt and its answer have so many; 0 where that is unknown."""
        self.omission = NOTHING
        """What of the history the model no longer gets."""
        self.guard: Guarding | None = None
        """Checks what is said; None lets everything through."""
        self.on_omission: Callable[[Omission], object] = lambda _: None
        """Called before an answer for which more was left out."""
        self._guard = threading.Lock()
        self._turn = threading.Lock()

    @property
    def on_overflow(self) -> Overflow:
        """What happens when the prompt no longer fits the context, by default an error. The history stays whole."""
        return self._overflow

    @on_overflow.setter
    def on_overflow(self, value: Overflow | str) -> None:
        try:
            self._overflow = Overflow(value)
        except ValueError:
            kinds = ", ".join(kind.value for kind in Overflow)
            raise LeapOptionsError("on_overflow", f"{value!r} is not one of {kinds}") from None

    def overflows(self, message: ChatMessage | None, options: GenerationOptions | None = None) -> bool:
        """Whether the prompt that asks ``message`` leaves too little space for an answer."""
        messages = without([*self.history, *([] if message is None else [message])], self.omission)
        return not Shortening(self.model_runner, self.functions, options, lambda _: None).fits(messages)

    def compact(self) -> Omission:
        """Leave all but the last turn out of later prompts, with a summary in its place; what is left out now. The
        history stays whole."""
        rest = [message for message in self.history if message.role is not ChatMessageRole.SYSTEM]
        turns = [n for n, message in enumerate(rest) if message.role is ChatMessageRole.USER]
        last = turns[-1] if turns and turns[-1] > self.omission.messages else len(rest)
        said = rest[self.omission.messages : last]
        if said:
            shortening = Shortening(self.model_runner, (), None, lambda _: None)
            self.omission = shortening.summarized(said, replace(self.omission, messages=last))
            self._tokens = 0
        return self.omission

    @property
    def history(self) -> list[ChatMessage]:
        """A copy of the messages so far. A running generation's messages are not among them yet."""
        with self._guard:
            return [_with_own_arguments(message) if message.function_calls else message for message in self._history]

    @property
    def functions(self) -> list[LeapFunction]:
        """A copy of the registered functions."""
        with self._guard:
            return list(self._functions)

    @property
    def is_generating(self) -> bool:
        """Whether a generation is running; the same for all threads."""
        return self._turn.locked()

    def register_function(self, function: LeapFunction | Callable[..., object]) -> None:
        """Let the model call ``function``; one of the same name is replaced. A Python function is declared by its
        signature and docstring, as ``declare`` does."""
        self.register_functions([function])

    def register_functions(self, functions: Iterable[LeapFunction | Callable[..., object]]) -> None:
        """Register several functions."""
        declared = [_function_of(function) for function in functions]
        with self._guard:
            for function in declared:
                self._functions = [other for other in self._functions if other.name != function.name] + [function]

    def append_to_history(self, message: ChatMessage | Mapping[str, Any]) -> None:
        """Add a message (or an object of its JSON form) without generating, such as a function's result or a replayed
        turn.

        While a generation runs, it is added after that one's messages. If that one fails or is given up, nothing of
        it is kept, results of functions included.
        """
        message = message_of(message)
        with self._guard:
            (self._history if self._holder is None else self._appended).append(message)

    def remove_last_message(self) -> None:
        """Drop the newest message; nothing happens when there is none."""
        with self._guard:
            messages = self._appended or self._history
            if messages:
                messages.pop()
            rest = sum(message.role is not ChatMessageRole.SYSTEM for message in self._history)
            if self.omission.messages > rest:
                self.omission = replace(self.omission, messages=rest)

    def export_to_json(self) -> list[dict[str, Any]]:
        """The history as OpenAI chat-completions messages."""
        return [message.to_json() for message in self.history]

    def generate_response(
        self, message: ChatMessage | str | Mapping[str, Any] | None, options: GenerationOptions | None = None
    ) -> ResponseStream:
        """The stream of the reply to ``message`` (a string is the user's text, an object a message's JSON form; None
        replies to the history as it is).
        An assistant's text at the end opens the reply: the stream delivers what follows it, the history joins both.

        The stream is cold: nothing happens until it is iterated, with ``for`` or ``async for``, once. The history
        gains the message and the reply before Complete is seen. An error, or closing the stream early, leaves the
        history as it was; ``stop()`` ends the reply early and keeps it.
        """
        question = None if message is None else asked(message)
        check_options(options)
        return ResponseStream(lambda stream: self._generate(stream, question, options))

    def _generate(
        self, stream: ResponseStream, message: ChatMessage | None, options: GenerationOptions | None
    ) -> Iterator[MessageResponse]:
        while stream.stopped or not self._turn.acquire(timeout=TURN_POLL_SECONDS):
            self._check_turn(stream)
            if stream.abandoned:
                return
            if stream.stopped:  # before its turn came: nothing was said, so nothing is kept
                yield Complete(ChatMessage(ChatMessageRole.ASSISTANT), GenerationFinishReason.INTERRUPTED)
                return
        with self._guard:
            messages = list(self._history)
            self._holder = stream
        new = [] if message is None else [message]
        complete, ids = None, CallIds(messages)
        try:
            generation = self._guarded(messages + new, lambda: self._start(messages + new, options, stream))
            stream.attach(generation)
            try:
                for response in generation:
                    if isinstance(response, Complete):
                        complete = ids.of_message(response)
                        break
                    yield ids.of_calls(response) if isinstance(response, FunctionCalls) else response
            finally:
                generation.close()
            if complete and _says_something(complete) and stream.was_read():
                stats = complete.stats
                self._tokens = 0 if stats is None else stats.total_tokens
                with self._guard:
                    self._history += new
                    reply = complete.full_message
                    if self._history and self._history[-1].opens_reply:
                        reply = self._history.pop().joined_with(reply)
                    self._history += [reply, *self._appended]
                    self._appended = []
        finally:
            with self._guard:
                self._history += [message for message in self._appended if message.role is not ChatMessageRole.TOOL]
                self._appended = []
                self._holder = None
            self._turn.release()
        if complete and not stream.abandoned:
            yield complete

    def _guarded(self, messages: list[ChatMessage], start: Callable[[], Generation]) -> Generation:
        return start() if self.guard is None else self.guard.guarding(messages, start)

    def _start(
        self, messages: list[ChatMessage], options: GenerationOptions | None, stream: ResponseStream
    ) -> Generation:
        """Start the answer; where its prompt does not fit, leave out of it what may be."""
        functions = self.functions
        shortening = Shortening(self.model_runner, functions, options, stream.attach)
        prompt = without(messages, self.omission) if self.omission.messages else messages
        if self.on_overflow is not Overflow.ERROR:
            half = self.model_runner.context_size // 2
            try:
                if self._tokens < half or shortening.fits(prompt):
                    return self.model_runner.start(prompt, functions, options)
            except LeapGenerationPromptExceedContextLengthError:
                pass
            summarize = self.on_overflow is Overflow.SUMMARIZE
            omission = shortening.shorten(messages, self.omission, summarize=summarize)
            if omission != self.omission:
                self.omission = omission
                self.on_omission(omission)
                prompt = without(messages, omission)
        return self.model_runner.start(prompt, functions, options)

    def _check_turn(self, stream: ResponseStream) -> None:
        """Raise LeapGenerationError where waiting for the turn would never end."""
        holder = self._holder
        if holder is None or holder.reader is None or stream.reader is None or stream.stopped:
            return
        if stream.reader.waits_for_itself(holder.reader):
            raise LeapGenerationError(
                "this conversation's last answer is still being read here",
                hint="read it to its end, or close its stream, before the next one is asked for or waited for",
            )


def asked(message: ChatMessage | str | Mapping[str, Any]) -> ChatMessage:
    """What is asked: a text is the user's. Raises LeapSerializationError for what is no message."""
    return ChatMessage(ChatMessageRole.USER, message) if isinstance(message, str) else message_of(message)


def message_of(value: ChatMessage | Mapping[str, Any]) -> ChatMessage:
    """A message from itself or from its JSON form, sharing nothing that changes with the caller. Raises
    LeapSerializationError for anything else."""
    if isinstance(value, ChatMessage):
        return _with_own_arguments(value) if value.function_calls else value
    if isinstance(value, Mapping):
        return ChatMessage.from_json(copy.deepcopy(dict(value)))
    raise LeapSerializationError(
        f"{type(value).__name__} is no message", hint='a ChatMessage("user", text) or an object with role and content'
    )


def messages_of(values: Iterable[ChatMessage | Mapping[str, Any]]) -> list[ChatMessage]:
    """Messages from themselves or from their JSON form. Raises LeapSerializationError for anything else."""
    return [message_of(value) for value in values]


def _function_of(value: LeapFunction | Callable[..., object]) -> LeapFunction:
    from .calls import LeapFunction

    if isinstance(value, LeapFunction):
        return value
    if callable(value) and not isinstance(value, type):
        from .calls.declaration import declare

        return declare(value)
    raise LeapOptionsError("function", f"{value!r} is neither a LeapFunction nor a Python function")


def _says_something(complete: Complete) -> bool:
    """Whether a reply is kept: not one that failed, nor one that was stopped before its first word."""
    return complete.finish_reason is not GenerationFinishReason.ERROR and not complete.is_lost


def _with_own_arguments(message: ChatMessage) -> ChatMessage:
    """Arguments are the one part of a message that can be changed."""
    return replace(message, function_calls=copy.deepcopy(message.function_calls))


class CallIds:
    """Names the calls of one reply: ``call_N``, the first N that the messages before it leave free. A call that has a
    name of its own keeps it."""

    def __init__(self, messages: Iterable[ChatMessage]) -> None:
        self._used = {
            call.id or f"call_{n}" for message in messages for n, call in enumerate(message.function_calls or ())
        }
        self._numbers = count(len(self._used))
        self._names: list[str] = []
        self._delivered = 0

    def of_calls(self, response: FunctionCalls) -> FunctionCalls:
        """The calls, named."""
        calls = self._with_names(response.function_calls, self._delivered)
        self._delivered += len(calls)
        return FunctionCalls(calls)

    def of_message(self, complete: Complete) -> Complete:
        """The end with its calls named, which are those that came before."""
        message = complete.full_message
        if not message.function_calls:
            return complete
        calls = self._with_names(message.function_calls, 0)
        return replace(complete, full_message=replace(message, function_calls=calls))

    def _with_names(self, calls: Sequence[LeapFunctionCall], first: int) -> tuple[LeapFunctionCall, ...]:
        named = []
        for n, call in enumerate(calls, first):
            if n == len(self._names):
                self._names.append(self._name(call))
            named.append(replace(call, id=self._names[n]))
        return tuple(named)

    def _name(self, call: LeapFunctionCall) -> str:
        name = call.id or f"call_{len(self._used)}"
        while name in self._used:
            name = f"call_{next(self._numbers)}"
        self._used.add(name)
        return name
