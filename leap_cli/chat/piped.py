"""A conversation through a pipe or from a file: a line of text is a turn, or with ``--jsonl`` a message.

{"role": "user", "content": "Hello."}   ->   {"role": "assistant", "content": "Hello! How can I help you?"}

What a ``user`` says is answered, and so is what an ``assistant`` says: that is another instance at the far end, which
takes the user's part here. ``system`` sets the system prompt and is not answered; ``tool`` brings the result of a call,
and the model continues when all its calls have theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from leap_core.conversation.messages import ChatMessage, ChatMessageRole
from leap_core.conversation.responses import Complete, GenerationFinishReason
from leap_core.conversation.streams import Stream, last_of
from leap_core.errors import LeapError, LeapSerializationError

from ..framework.arguments import reading
from ..framework.environment import Environment
from ..framework.interrupts import stopping_on_interrupt
from ..framework.output import Output
from ..input.files import MOST_BYTES, check_size, decode_text
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


def expand(name: str) -> str:
    """A file's name as a shell would take it: ``~`` is the user's home. Raises UsageError."""
    try:
        return str(Path(name).expanduser())
    except RuntimeError as error:
        raise click.UsageError(f"{name}: {error}") from None


def read_conversation(name: str, env: Environment) -> list[ChatMessage]:
    """The one conversation in a file, as ``leap export`` writes it. Raises UsageError or LeapSerializationError."""
    from leap_core.conversation.transcripts import read_conversations

    path = env.cwd / name
    with reading(name):
        data = path.read_bytes()
    conversations = read_conversations(decode_text(data, name), name, path.parent)
    if len(conversations) != 1:
        raise click.UsageError(f"{name} holds {len(conversations)} conversations; give a file of one")
    return conversations[0]


def write_conversation(name: str, history: Sequence[ChatMessage], title: str, env: Environment) -> None:
    """Write a conversation to a new file, as JSON, JSON lines or Markdown by the name's end. Raises UsageError.

    Images and audio of Markdown are files in NAME-media beside it."""
    from leap_core.conversation import transcripts

    path = env.cwd / name
    media = transcripts.MediaDirectory(path.with_name(f"{path.stem}-media"), path.parent)  # a page without megabytes
    writers: dict[str, Callable[[], str]] = {
        ".json": lambda: transcripts.to_json(history),
        ".jsonl": lambda: transcripts.to_jsonl(history),
        ".md": lambda: transcripts.to_markdown(history, title, media.place),
    }
    suffix = Path(name).suffix.lower()
    if suffix not in writers:
        raise click.UsageError(f"{name!r} must end in .json, .jsonl or .md")
    try:
        text = writers[suffix]()
        with path.open("x", encoding="utf-8", newline="\n") as file:
            try:
                file.write(text)
                file.flush()
            except BaseException:
                path.unlink()  # half of a conversation is none
                raise
    except FileExistsError:
        raise click.UsageError(f"{name} exists already; choose another name") from None
    except (OSError, ValueError) as error:
        raise click.UsageError(f"cannot write {name}: {getattr(error, 'strerror', None) or error}") from None
