"""A conversation that a user types: lines with history and completion, files that go along, commands by a slash."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import click

from leap_core.conversation.conversation import Overflow
from leap_core.conversation.messages import (
    Audio,
    AudioPcmF32,
    ChatMessage,
    ChatMessageContent,
    ChatMessageRole,
    Image,
    Text,
)
from leap_core.errors import LeapError, LeapGenerationPromptExceedContextLengthError, LeapUnsupportedMediaError
from leap_core.system.dataclass import dataclass

from ..framework.arguments import text_argument
from ..framework.environment import Environment
from ..framework.options import in_bytes
from ..framework.output import Output
from ..input.files import attach, kind_of_file, pictures_in, read_audio, read_image
from .dialogue import Dialogue

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

    from leap_core.conversation.runner import ModelRunner

LONGEST_PATH = 4096
BARE_WORDS = {"exit": "/quit", "quit": "/quit", "bye": "/quit", ":q": "/quit", "?": "/help"}
"""What people type to leave, or to be helped, where it is all of a line."""


def read_parts(name: str, env: Environment, output: Output) -> list[ChatMessageContent]:
    """The parts of a message that a file becomes. Raises UsageError for what cannot be one."""
    kind = kind_of_file(name, env)
    if kind == "image":
        return [read_image(name, env, output)]
    if kind == "audio":
        return [read_audio(name, env, output)]
    return [*pictures_in([name], env), Text(attach(name, env) + "\n\n")]


def pasted_medium(line: str, env: Environment) -> Path | None:
    """The picture or sound whose path is all of a line, as terminals paste it when a file is dropped on them: quoted,
    with backslashes before spaces, or as a ``file:`` URL."""
    line = line.strip()
    if not line or "\n" in line or len(line) > LONGEST_PATH:
        return None
    if line.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        name = unquote(urlsplit(line).path)
    else:
        try:
            words = shlex.split(line)
        except ValueError:  # an apostrophe
            words = []
        name = words[0] if len(words) == 1 else line
    path = env.cwd / os.path.expanduser(name)
    return path if kind_of_file(str(path), env) else None


def describe_part(part: ChatMessageContent) -> str:
    """What kind of part it is, and how large, for people."""
    if isinstance(part, Text):
        name, _, *content = part.text.rstrip().split("\n")  # a name and a fence stand around the file's text
        size = len("\n".join(content[:-1]))
        return f"text {name.removesuffix(':')}, {size} character{'' if size == 1 else 's'}"
    if isinstance(part, Image):
        return f"picture, {in_bytes(len(part.data))}"
    if isinstance(part, Audio):
        return f"sound, {part.format.seconds:.1f} s"
    assert isinstance(part, AudioPcmF32)
    return f"sound, {len(part.samples) / part.sample_rate:.1f} s"


PROMPT, CONTINUATION = "> ", ". "


class Typing(Protocol):
    """Reads one message. Ctrl-D raises EOFError, Ctrl-C KeyboardInterrupt."""

    can_begin_with: bool
    """Whether ``draft`` is shown, to be changed and sent."""

    def read(self, draft: str = "") -> str: ...


class PlainTyping:
    """Lines as the terminal gives them; one that ends in a backslash continues in the next."""

    can_begin_with = False

    def __init__(self, env: Environment) -> None:
        self._env = env

    def read(self, draft: str = "") -> str:
        line = self._env.read_typed_line(PROMPT)
        while line.endswith("\\"):
            line = line[:-1] + "\n" + self._env.read_typed_line(CONTINUATION)
        return line


class Editor:
    """A line editor: history in a file (None keeps none), several lines, completion. Enter sends, unless a backslash
    is before it; Alt-Enter begins a new line; Ctrl-X Ctrl-E opens the text in $VISUAL or $EDITOR."""

    can_begin_with = True

    def __init__(self, env: Environment, completer: Completer, history: Path | None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output

        output = create_output(env.stdout)
        if hasattr(output, "enable_cpr"):
            output.enable_cpr = False  # what the terminal answers would be taken for typing after we have left
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            output=output,
            completer=completer,
            complete_while_typing=False,
            history=_history(history),
            key_bindings=_keys(),
            multiline=True,
            enable_open_in_editor=True,  # Ctrl-X Ctrl-E
            tempfile_suffix=".md",
            enable_suspend=True,
            prompt_continuation=lambda _width, _line, wraps: " " * len(CONTINUATION) if wraps else CONTINUATION,
        )

    def read(self, draft: str = "") -> str:
        return self._session.prompt(default=draft)


def _history(path: Path | None) -> History:
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    if path is None:
        return InMemoryHistory()

    class Kept(FileHistory):
        def store_string(self, string: str) -> None:
            with suppress(OSError, UnicodeError):  # a full disk must not end the conversation
                super().store_string(string)

    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    return Kept(path)


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


@dataclass
class TypedConversation:
    """What the slash commands work on. ``load_model`` loads a model by name with the options of the command line."""

    dialogue: Dialogue
    env: Environment
    output: Output
    typing: Typing
    load_model: Callable[[str], ModelRunner]
    run_command: Callable[[TypedConversation, str], bool]
    """Runs a line that is a slash command; False where it is a message."""
    attached: list[ChatMessageContent] = field(default_factory=list)
    """What goes with the next message."""
    draft: str = ""
    """What the next prompt begins with."""
    editing: int | None = None
    """The place in the history of the message that the next one replaces."""
    leaving: bool = False

    def hold(self, first: str = "") -> None:
        """Answer ``first``, then read input and run it until the user quits. Errors are shown and the conversation is
        unchanged."""
        while not self.leaving:
            try:
                if first:
                    message, first = first, ""
                    self.send(message)
                    continue
                draft, self.draft = self.draft, ""
                self.take(self.typing.read(draft))
            except EOFError:
                self.env.stderr.write("\n")
                return
            except KeyboardInterrupt:
                self.env.stderr.write("\n")
                self.editing = None
            except LeapGenerationPromptExceedContextLengthError as error:
                refuses = self.dialogue.full.policy is Overflow.ERROR
                self.output.error(
                    error.message, "/compact, /undo or /clear frees the context" if refuses else error.hint
                )
            except LeapUnsupportedMediaError as error:
                self.output.error(error.message, "/attach none takes it back, /model NAME changes the model")
            except UnicodeDecodeError:
                self.output.error("what was typed is not UTF-8 text")
            except LeapError as error:
                self.output.error(error.message, error.hint)
            except click.UsageError as error:
                self.output.error(error.format_message())

    def take(self, text: str) -> None:
        """Run a slash command, or answer a message."""
        text = text_argument(text, "what was typed")
        editing, self.editing = self.editing, None
        medium = None if editing is not None else pasted_medium(text, self.env)
        if medium is not None:
            text = f"/attach {medium}"
        text = BARE_WORDS.get(text.strip().lower(), text)
        if not text.strip() or self.run_command(self, text):
            return
        if text.startswith("//"):
            text = text[1:]
        if editing is None:
            self.send(text)
        else:
            self.send_instead(editing, text)

    def send(self, text: str) -> None:
        """Answer this message, and what is attached to it."""
        with self.env.without_echo():  # what is typed ahead would be in the answer
            complete = self.dialogue.say(text, self.attached)
        if complete.is_lost:
            self.output.note("stopped before the first word: the message was not kept")
            if self.typing.can_begin_with:
                self.draft = text
                return
        self.attached = []

    def send_instead(self, place: int, text: str) -> None:
        """Answer the message at this place in the history with another text, and forget what came after it."""
        history = self.dialogue.history
        attached, _ = split_attachments(history[place])
        message = ChatMessage(ChatMessageRole.USER, [*attached, *self.attached, Text(text)])
        with self.env.without_echo():
            self.dialogue.answer_instead(history[:place], message)
        self.attached = []


def split_attachments(message: ChatMessage) -> tuple[Sequence[ChatMessageContent], str]:
    """What was attached to a message, and what was typed: the text at its end."""
    *attached, last = message.content or (Text(""),)
    return (attached, last.text) if isinstance(last, Text) else (message.content, "")


class Suggestion(NamedTuple):
    """The whole word that would be put into the line, and what it means."""

    value: str
    meaning: str = ""


Suggestions = Callable[[Environment, str], Iterable[Suggestion]]
"""The values that a word which begins so may have."""


@dataclass(frozen=True)
class SlashCommand:
    """``takes`` is what may follow the name, ``values`` what TAB offers there."""

    name: str
    takes: str
    meaning: str
    run: Callable[[TypedConversation, str], object]
    values: Suggestions | None = None
