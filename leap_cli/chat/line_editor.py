"""Where typed messages come from: an editor with history and completion, or plain lines where a terminal has none."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..framework.environment import Environment

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

PROMPT, CONTINUATION = "> ", ". "


class Typing(Protocol):
    """Reads one message. Ctrl-D raises EOFError, Ctrl-C KeyboardInterrupt."""

    can_begin_with: bool
    """Whether ``draft`` is shown, to be changed and sent."""

    def read(self, draft: str = "") -> str: ...


class PlainTyping:
    """Lines as the terminal gives them; one that ends in a backslash goes on in the next."""

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
    stands before it; Alt-Enter begins a new line; Ctrl-X Ctrl-E opens the text in $VISUAL or $EDITOR."""

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
