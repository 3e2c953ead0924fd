"""``leap chat`` with the built-in model, from a pipe and at a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest

from .conftest import LEAP, LONG, QUESTION, TERMINAL_STUB


def test_each_line_of_a_pipe_is_a_turn(program):
    done = program("chat", "-m", "builtin", stdin=f"{QUESTION}\n\n{QUESTION.replace('France', 'Italy')}\n")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert "Paris" in first and "Rome" in second


def test_it_remembers(program):
    done = program("chat", "-m", "builtin", stdin="My name is Ada.\nWhat is my name?\n")
    assert "Ada" in done.stdout.splitlines()[-1]


def test_a_turn_longer_than_the_context_ends_a_pipe(program):
    done = program("chat", "-m", "builtin", stdin=f"{QUESTION}\n{'word ' * 20000}\n{QUESTION}\n")
    assert (done.returncode, done.stdout.count("Paris")) == (5, 1)
    assert done.stderr.startswith("leap: error: the prompt has ") and done.stderr.count("\n") == 1


class Terminal:
    """``leap`` at a terminal of 80 by 24, which this test types at and reads."""

    def __init__(self, arguments: list[str], variables: dict[str, str]) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

        self.process = subprocess.Popen(
            [*TERMINAL_STUB, *LEAP, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**variables, "TERM": "xterm"},
        )
        os.close(theirs)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def press(self, key: str, pattern: str) -> None:
        """Press a key until something comes of it: one that comes just before readline waits is seen at the next."""
        for _ in range(20):
            self.type(key)
            try:
                self.expect(pattern, seconds=3)
                return
            except AssertionError:
                continue
        self.expect(pattern)

    def expect(self, pattern: str, seconds: float = 60) -> str:
        """Read until the pattern is seen after what was expected before; everything up to its end."""
        deadline = time.monotonic() + seconds
        while (match := re.search(pattern, self.seen, re.DOTALL)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} did not come: {self.seen!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.ours, 65536).decode("utf-8", "replace")
                except OSError:  # the other side is closed
                    raise AssertionError(f"{pattern!r} did not come: {self.seen!r}") from None
        read, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return read

    def ended(self) -> int:
        """The exit code; whatever is still written is read, so that nobody waits for us."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.ours], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.ours, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        return self.process.wait(10)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def terminal(variables):
    opened = []

    def open_terminal(*arguments: str) -> Terminal:
        opened.append(Terminal(list(arguments), variables))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


def test_a_conversation_at_a_terminal(terminal):
    chat = terminal("chat", "-m", "builtin")
    chat.expect("Ctrl-C stops an answer, Ctrl-D leaves\r\n.*> ")
    chat.type(f"{QUESTION}\r")
    chat.expect(r"Paris[^\n]*\r\n.*> ")
    chat.type("half a line")
    chat.expect("half a line")
    chat.press("\x03", r"\n.*> ")  # Ctrl-C drops it
    chat.type("\x1b[A")  # arrow up: the line before
    chat.expect(re.escape(QUESTION))
    chat.type("\r")
    chat.expect(r"Paris[^\n]*\r\n.*> ")
    chat.type("\x04")  # Ctrl-D leaves
    assert chat.ended() == 0


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on(terminal):
    chat = terminal("chat", "-m", "builtin", "--threads", "1")
    chat.expect("> ")
    chat.type(f"{LONG}\r")
    chat.expect("1")
    chat.type("\x03")
    chat.expect(r"\n.*> ")
    chat.type(f"{QUESTION}\r")
    chat.expect(r"\n.*> ")
    chat.type("\x04")
    assert chat.ended() == 0


def test_generate_at_a_terminal_asks_for_a_prompt(terminal):
    generate = terminal("generate", "-m", "builtin")
    generate.expect("leap: error: the prompt is empty")
    assert generate.ended() == 2


def test_generate_reads_a_typed_prompt(terminal):
    generate = terminal("generate", "-m", "builtin", "-")
    generate.type(f"{QUESTION}\n\x04")
    generate.expect("Paris")
    assert generate.ended() == 0
