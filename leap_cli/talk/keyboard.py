"""The keyboard of a talk: messages and commands are typed while the microphone is open, and the space bar is a key to
talk with."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from leap_core.talk.talk import Talk

from ..chat.line_editor import Editor
from ..chat.slash_commands import COMMANDS
from ..chat.suggestions import completer
from ..framework.environment import Environment
from .spoken_dialogue import SpokenDialogue

if TYPE_CHECKING:
    from pathlib import Path

    from prompt_toolkit.key_binding import KeyBindingsBase

POLL = 0.05
SPACE = " "


class _Woken(Exception):
    """Something else than typing is to be done."""


class TalkEditor(Editor):
    """An editor whose prompt shows the talk's state, and in which utterances are answered while nothing is sent.
    ``push``: the space bar begins and ends an utterance where nothing is typed, and ends one anywhere."""

    def __init__(self, env: Environment, history: Path | None, spoken: SpokenDialogue, *, push: bool) -> None:
        super().__init__(env, completer(COMMANDS, env), history)
        self._spoken, self._talk = spoken, spoken.talk
        self._push = push
        self._draft = ""
        self._session.message = self._prompt
        if push:
            self._session.key_bindings = self._with_space()

    def read(self, draft: str = "") -> str:
        """A message. Ends like Ctrl-D where the talk has ended."""
        self._draft = draft or self._draft
        while True:
            utterance = self._talk.next_utterance(wait=False)
            if utterance is not None:
                self._spoken.answer(utterance)
                continue
            if self._talk.has_ended:
                if self._talk.has_utterance:  # it came after the look above
                    continue
                raise EOFError
            self._session.app.erase_when_done = False
            draft, self._draft = self._draft, ""
            with suppress(_Woken):
                return self._session.prompt(default=draft, pre_run=self._look)

    def wake(self) -> None:
        """Let ``read`` look at the talk; any thread may call."""
        app = self._session.app
        app.invalidate()  # the state in the prompt
        loop = app.loop  # another thread takes it away
        if app.is_running and loop is not None and self._is_wanted():
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        app = self._session.app
        if self._is_wanted() and app.future is not None and not app.future.done():
            self._draft = self._session.default_buffer.text
            app.erase_when_done = True
            app.exit(exception=_Woken())

    def _is_wanted(self) -> bool:
        return self._talk.has_ended or self._talk.has_utterance

    def _prompt(self) -> str:
        if self._push:
            return "listening, space ends > " if self._talk.is_pressed else "space begins > "
        return f"{self._talk.state.value} > "

    def _with_space(self) -> KeyBindingsBase:
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings

        keys = KeyBindings()

        is_key = Condition(lambda: self._talk.is_pressed or not self._session.default_buffer.text)

        @keys.add("space", filter=is_key)
        def turn(_event: object) -> None:
            push_key(self._talk)
            self._session.app.invalidate()

        return merge_key_bindings([*([self._session.key_bindings] if self._session.key_bindings else []), keys])


def push_key(talk: Talk) -> None:
    """The space bar: begins an utterance, or ends the one at hand."""
    if talk.is_pressed:
        talk.release()
    else:
        talk.press()


@contextmanager
def pushing_while_answering(talk: Talk) -> Iterator[None]:
    """Within the block, in which no prompt is open, the space bar stops the answer and begins an utterance."""
    over = threading.Event()
    with _single_keys() as read_key:

        def watch() -> None:
            with suppress(EOFError, OSError):  # the terminal is gone
                while not over.is_set():
                    if read_key() == SPACE:
                        push_key(talk)

        thread = threading.Thread(target=watch, name="leap-talk-keys", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


if sys.platform == "win32":

    @contextmanager
    def _single_keys() -> Iterator[Callable[[], str]]:
        import msvcrt
        import time

        def read_key() -> str:
            if msvcrt.kbhit():
                return msvcrt.getwch()
            time.sleep(POLL)
            return ""

        yield read_key

else:

    @contextmanager
    def _single_keys() -> Iterator[Callable[[], str]]:
        """Gives a function that waits shortly for a key; Ctrl-C goes on to be a signal."""
        import termios
        import tty

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        tty.setcbreak(descriptor, termios.TCSADRAIN)

        def read_key() -> str:
            if termios.tcgetattr(descriptor)[3] & termios.ICANON:  # the shell took it back at Ctrl-Z
                tty.setcbreak(descriptor, termios.TCSADRAIN)
            ready, _, _ = select.select([descriptor], [], [], POLL)
            if not ready:
                return ""
            key = os.read(descriptor, 1).decode("latin-1")
            if not key:
                raise EOFError
            return key

        try:
            yield read_key
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
