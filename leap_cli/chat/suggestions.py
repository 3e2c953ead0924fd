"""What TAB offers at the prompt of ``leap chat``: commands, and what may follow them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leap_core.errors import LeapError

from ..completion import candidates as completion_values
from ..framework.environment import Environment
from .slash_command import SlashCommand, Suggestion

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

MOST_FILES, MOST_SESSIONS = 500, 100


def suggest(line: str, commands: Sequence[SlashCommand], env: Environment) -> tuple[str, list[Suggestion]]:
    """The word before the cursor, and what may stand in its place. Messages are not completed."""
    if not line.startswith("/") or line.startswith("//"):
        return "", []
    name, space, rest = line[1:].partition(" ")
    if not space:
        suggestions = [Suggestion(f"/{command.name}", command.meaning) for command in commands]
        return line, [each for each in suggestions if each.value.startswith(line.lower())]
    values = next((command.values for command in commands if command.name == name.lower()), None)
    if values is None:
        return "", []
    word = rest.lstrip() if values in PATHS else rest.rpartition(" ")[2]
    return word, list(values(env, word))


def files(env: Environment, prefix: str) -> Iterator[Suggestion]:
    """Paths; after an @ too. Hidden ones only where a dot was typed."""
    mark = "@" if prefix.startswith("@") else ""
    directory, name = os.path.split(prefix[len(mark) :])
    try:
        with os.scandir(env.cwd / Path(directory or ".").expanduser()) as entries:
            matches = sorted((entry.name, _is_directory(entry)) for entry in entries)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: there is no such user's home
        return
    for entry, is_directory in matches[:MOST_FILES]:
        if entry.startswith(name) and entry.isprintable() and (name or not entry.startswith(".")):
            yield Suggestion(mark + os.path.join(directory, entry) + (os.sep if is_directory else ""))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def models(env: Environment, prefix: str) -> Iterator[Suggestion]:
    """References to models, as the shell's completion has them."""
    return _from_shell(completion_values.models, env, prefix)


def tools(env: Environment, prefix: str) -> Iterator[Suggestion]:
    """Tools, as the shell's completion has them."""
    return _from_shell(completion_values.tools, env, prefix)


def conversations(env: Environment, prefix: str) -> Iterator[Suggestion]:
    """Saved sessions, by name where they have one, then files."""
    from leap_core.sessions.store import SessionStore

    file = env.directories.sessions_file
    if file.is_file():
        with suppress(LeapError), SessionStore(file) as store:
            suggestions = [Suggestion(each.label, each.title) for each in store.list(MOST_SESSIONS)]
            yield from (each for each in suggestions if each.value.startswith(prefix))
    yield from files(env, prefix)


PATHS = (files, conversations)


def completer(commands: Sequence[SlashCommand], env: Environment) -> Completer:
    """The same, for the editor."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            word, suggestions = suggest(document.text_before_cursor, commands, env)
            for value, meaning in suggestions:
                yield Completion(value, start_position=-len(word), display_meta=meaning)

    return Commands()


def _from_shell(source: completion_values.Source, env: Environment, prefix: str) -> Iterator[Suggestion]:
    context = click.Context(click.Command("chat"), obj=env)
    for item in completion_values.fitting(source(context, prefix), prefix):
        if item.type == "plain":
            yield Suggestion(str(item.value), item.help or "")
        else:
            yield from files(env, prefix)
