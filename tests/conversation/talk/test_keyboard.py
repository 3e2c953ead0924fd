"""Typing and speaking at once: the line editor of a talk."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from leap_cli.talk.keyboard import TalkEditor, pushing_while_answering
from leap_core.conversation.talk.hearing import Utterance
from leap_core.conversation.talk.talk import Talk, TalkSettings
from leap_core.errors import LeapError
from tests.conftest import CommandLine

from .sound import note, recording
from .test_talk import wait_for


class Spoken:
    """Notes what is to be answered."""

    def __init__(self, talk: Talk, failure: LeapError | None = None) -> None:
        self.talk, self._failure = talk, failure
        self.utterances: list[Utterance] = []

    def answer(self, utterance: Utterance) -> None:
        self.utterances.append(utterance)
        if self._failure is not None:
            raise self._failure


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys


def editor_of(leap: CommandLine, spoken: Any, *, push: bool = False) -> TalkEditor:
    return TalkEditor(leap.environment(b"", terminal=False, stdin_terminal=False), None, spoken, push=push)


def test_the_last_utterance_is_answered_before_the_end(leap: CommandLine, keys: PipeInput) -> None:
    class Ending(Talk):
        """The microphone goes right after the first look."""

        def next_utterance(self, *, wait: bool = True) -> Utterance | None:
            utterance = super().next_utterance(wait=wait)
            if not self.has_ended:
                self.feed(recording(0.5, note("la")))
                self.end()
            return utterance

    spoken = Spoken(Ending())
    with pytest.raises(EOFError):
        editor_of(leap, spoken).read()
    assert len(spoken.utterances) == 1


def test_a_draft_survives_a_failed_answer(leap: CommandLine, keys: PipeInput) -> None:
    talk = Talk()
    editor = editor_of(leap, Spoken(talk, LeapError("broken")))

    def speak() -> None:
        wait_for(lambda: editor._session.default_buffer.text == "half a ")
        talk.feed(recording(0.5, note("la"), 1.0))
        editor.wake()

    keys.send_text("half a ")
    speaker = threading.Thread(target=speak)
    speaker.start()
    with pytest.raises(LeapError, match="broken"):
        editor.read()
    speaker.join()
    keys.send_text("message\r")
    assert editor.read() == "half a message"
    keys.send_text("another\r")
    assert editor.read() == "another"


def test_waking_a_closed_editor_raises_nothing(
    leap: CommandLine, keys: PipeInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ClosedLoop:
        def call_soon_threadsafe(self, *_call: object) -> None:
            raise RuntimeError("Event loop is closed")

    talk = Talk()
    editor = editor_of(leap, Spoken(talk))
    talk.end()
    app = editor._session.app
    monkeypatch.setattr(app, "invalidate", lambda: None)
    monkeypatch.setattr(app, "_is_running", True)
    monkeypatch.setattr(app, "loop", ClosedLoop())
    editor.wake()


def test_the_space_bar_ends_an_utterance_even_with_a_draft(leap: CommandLine, keys: PipeInput) -> None:
    talk = Talk(TalkSettings(push=True))
    talk.press()  # while an answer was made, whose message came back as a draft
    keys.send_text(" a b\r")
    assert editor_of(leap, Spoken(talk), push=True).read("draft") == "drafta b"
    assert not talk.is_pressed


@pytest.mark.skipif(sys.platform == "win32", reason="there are no terminals to open")
def test_the_space_bar_is_a_key_again_after_the_shell_had_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    import pty
    import termios

    keyboard, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    talk = Talk(TalkSettings(push=True))
    try:
        with open(terminal, closefd=False) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            with pushing_while_answering(talk):
                assert termios.tcgetattr(terminal) != before
                termios.tcsetattr(terminal, termios.TCSANOW, before)  # Ctrl-Z, then fg
                wait_for(lambda: termios.tcgetattr(terminal) != before)
                os.write(keyboard, b" ")
                wait_for(lambda: talk.is_pressed)
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(keyboard)
        os.close(terminal)
