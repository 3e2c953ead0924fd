"""A conversation through a pipe: a line of text is a turn, or with ``--jsonl`` a message.

    {"role": "user", "content": "Hello."}   ->   {"role": "assistant", "content": "Hello! How can I help you?"}

What a ``user`` says is answered, and so is what an ``assistant`` says: that is another instance at the far end, which
takes the user's part here. ``system`` sets the system prompt and is not answered; ``tool`` brings the result of a call,
and the model goes on when all its calls have theirs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from leap_core.errors import LeapError, LeapSerializationError
from leap_core.messages import ChatMessage, ChatMessageRole
from leap_core.responses import Complete, GenerationFinishReason
from leap_core.runner.streams import Stream, last_of

from ..framework.environment import Environment
from ..framework.interrupts import stopping_on_interrupt
from ..framework.output import Output
from ..input.text_files import MOST_BYTES, check_size, decode_text
from .dialogue import Dialogue


def answer_lines(dialogue: Dialogue, env: Environment, first: str = "") -> None:
    """Answer ``first``, then each line that is not blank. The first failure ends the run, because no one can correct
    the input; its error begins with the line's number."""
    if first:
        _go_on(env, dialogue.say(first))
    for number, line in _lines(env):
        with _naming(number):
            complete = dialogue.say(line)
        _go_on(env, complete)


def answer_messages(dialogue: Dialogue, env: Environment, output: Output) -> None:
    """Answer each message with a message. The first failure ends it, and its error begins with the line's number."""
    for number, line in _lines(env):
        with _naming(number):
            complete = _take(dialogue, ChatMessage.from_json(_parsed(line)))
        if complete is not None:
            _go_on(env, complete)
            output.event(_message(complete))


def read_through(_dialogue: Dialogue, stream: Stream) -> Complete:
    """Shows nothing of an answer before its end. Ctrl-C ends it early, and what has come is kept."""
    with stopping_on_interrupt(stream.stop):
        return last_of(stream)


def _message(complete: Complete) -> dict[str, object]:
    """The answer as a message; how likely its tokens were is beside its content, where that was asked for."""
    value = complete.to_json()
    beside = {"logprobs": value["logprobs"]} if complete.logprobs else {}
    return {**value["message"], **beside}


@contextmanager
def _naming(number: int) -> Iterator[None]:
    try:
        yield
    except LeapError as error:
        error.message = f"line {number}: {error.message}"
        raise


def _go_on(env: Environment, complete: Complete) -> None:
    """Ctrl-C ends a conversation that comes through a pipe: no one can ask for something else."""
    if complete.finish_reason is GenerationFinishReason.INTERRUPTED and not env.stdin_is_terminal:
        raise KeyboardInterrupt


def _take(dialogue: Dialogue, message: ChatMessage) -> Complete | None:
    """The answer to a message, if it gets one."""
    if message.role is ChatMessageRole.SYSTEM:
        dialogue.set_system(message.text)
        return None
    if message.role is ChatMessageRole.TOOL:
        missing = _calls_without_result(dialogue.history)
        if not missing:
            raise LeapSerializationError("a tool's result, and no call waits for one", path="message.role")
        dialogue.add(message)
        return dialogue.answer(None) if missing == 1 else None
    if not message.content:
        raise LeapSerializationError("there is nothing to answer", path="message.content")
    return dialogue.answer(ChatMessage(ChatMessageRole.USER, message.content))


def _calls_without_result(history: list[ChatMessage]) -> int:
    for results, message in enumerate(reversed(history)):
        if message.role is not ChatMessageRole.TOOL:
            return max(0, len(message.function_calls or ()) - results)
    return 0


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError as error:
        raise LeapSerializationError(
            f"not JSON: {error}", hint='a message is one line, such as {"role": "user", "content": "Hello."}'
        ) from None
    except RecursionError:
        raise LeapSerializationError("not a message: it is nested too deeply") from None


def _lines(env: Environment) -> Iterator[tuple[int, str]]:
    """Each line of standard input that is not blank, with its number, as it comes."""
    for number, data in enumerate(iter(lambda: env.stdin.readline(MOST_BYTES + 1), b""), start=1):
        check_size(data, f"line {number} of standard input")
        line = decode_text(data, f"line {number} of standard input").rstrip("\r\n")
        if line.strip():
            yield number, line
