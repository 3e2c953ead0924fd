"""Conversations that come from files, and go into files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from leap_core.messages import ChatMessage

from ..framework.environment import Environment
from ..input.text_files import decode_text


def expand(name: str) -> str:
    """A file's name as a shell would take it: ``~`` is the user's home. Raises UsageError."""
    try:
        return str(Path(name).expanduser())
    except RuntimeError as error:
        raise click.UsageError(f"{name}: {error}") from None


def read_conversation(name: str, env: Environment) -> list[ChatMessage]:
    """The one conversation in a file, as ``leap export`` writes it. Raises UsageError or LeapSerializationError."""
    from leap_core.sessions.transcripts import read_conversations

    path = env.cwd / name
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise click.UsageError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    conversations = read_conversations(decode_text(data, name), name, path.parent)
    if len(conversations) != 1:
        raise click.UsageError(f"{name} holds {len(conversations)} conversations; give a file of one")
    return conversations[0]


def write_conversation(name: str, history: Sequence[ChatMessage], title: str, env: Environment) -> None:
    """Write a conversation to a new file, as JSON, JSON lines or Markdown by the name's end. Raises UsageError."""
    from leap_core.sessions import transcripts

    writers: dict[str, Callable[[], str]] = {
        ".json": lambda: transcripts.to_json(history),
        ".jsonl": lambda: transcripts.to_jsonl(history),
        ".md": lambda: transcripts.to_markdown(history, title),
    }
    suffix = Path(name).suffix.lower()
    if suffix not in writers:
        raise click.UsageError(f"{name!r} must end in .json, .jsonl or .md")
    text = writers[suffix]()
    path = env.cwd / name
    try:
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
