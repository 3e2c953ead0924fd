"""``leap chat`` with the built-in model, from a pipe and at a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.sessions import SessionStore

from .conftest import LEAP, QUESTION, TERMINAL_STUB

LONG = "count to 400"
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")
PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"
PROMPT = r"\n>"
COUNTING = r"1\D+2\D+3\D+4"


def test_each_line_of_a_pipe_is_a_turn(program):
    done = program("chat", "-m", "builtin", stdin=f"{QUESTION}\n\n{QUESTION.replace('France', 'Italy')}\n")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert "Paris" in first and "Rome" in second


def test_a_chat_remembers_earlier_turns(program):
    done = program("chat", "-m", "builtin", stdin="My name is Ada.\nWhat is my name?\n")
    assert "Ada" in done.stdout.splitlines()[-1]


def test_a_turn_longer_than_the_context_ends_a_pipe(program):
    done = program("chat", "-m", "builtin", stdin=f"{QUESTION}\n{'word ' * 20000}\n{QUESTION}\n")
    assert (done.returncode, done.stdout.count("Paris")) == (5, 1)
    assert done.stderr.startswith("leap: error: line 2: the prompt has ") and done.stderr.count("\n") == 1


def test_a_program_gets_each_answer_before_its_next_message(start):
    chat = start("chat", "--jsonl", "-m", "builtin", stdin=subprocess.PIPE)
    for country, capital in (("France", "Paris"), ("Italy", "Rome")):
        chat.stdin.write(json.dumps({"role": "user", "content": QUESTION.replace("France", country)}).encode() + b"\n")
        chat.stdin.flush()
        answer = json.loads(chat.stdout.readline())
        assert answer["role"] == "assistant" and capital in answer["content"]
    chat.stdin.write(b"{}\n")
    chat.stdin.close()
    assert chat.wait(60) == 2
    assert chat.stderr.read().decode().startswith("leap: error: line 3: message.role: ") and chat.stdout.read() == b""


class Terminal:
    """``leap`` at a terminal of 80 by 24, which this test types at and reads; escape codes are left out of ``seen``."""

    def __init__(self, arguments: list[str], variables: dict[str, str], term: str) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(24, 80)
        self.process = subprocess.Popen(
            [*TERMINAL_STUB, *LEAP, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**variables, "TERM": term},
        )
        os.close(theirs)
        self.raw = self.seen = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def read(self) -> None:
        """Take what is there. An escape code that has only begun waits for its end."""
        self.raw += os.read(self.ours, 65536).decode("utf-8", "replace")
        whole, mark, begun = self.raw.rpartition("\x1b")
        if not mark or ESCAPES.match(mark + begun):
            whole, begun = self.raw, ""
        else:
            begun = mark + begun
        self.seen, self.raw = self.seen + ESCAPES.sub("", whole), begun

    def expect(self, pattern: str, seconds: float = 60) -> str:
        """Read until the pattern is seen after what was expected before; everything up to its end."""
        deadline = time.monotonic() + seconds
        while (match := re.search(pattern, self.seen, re.DOTALL)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} did not come: {self.seen!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    self.read()
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
                    self.read()
                except OSError:
                    break
        return self.process.wait(100)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def terminal(variables):
    opened = []

    def open_terminal(*arguments: str, term: str = "xterm") -> Terminal:
        opened.append(Terminal(list(arguments), variables, term))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


@pytest.fixture
def kept(leap_home):
    """The messages of the last session."""

    def read() -> list[ChatMessage]:
        with SessionStore(leap_home / "leap.db") as store:
            session = store.latest()
            assert session is not None
            return list(store.history(session.id))

    return read


def test_a_conversation_at_a_terminal(terminal):
    chat = terminal("chat", "-m", "builtin")
    chat.expect("builtin; Ctrl-C stops an answer, Ctrl-D leaves, /help lists commands\r\n.*>")
    chat.type(f"{QUESTION}\r")
    chat.expect(f"Paris.*{PROMPT}")
    chat.type("half a line")
    chat.expect("half a line")
    chat.type("\x03")  # Ctrl-C drops it
    chat.expect(PROMPT)
    chat.type("\x1b[A")  # arrow up: the line before
    chat.expect(re.escape(QUESTION))
    chat.type("\r")
    chat.expect(f"Paris.*{PROMPT}")
    chat.type("\x04")  # Ctrl-D leaves
    chat.expect("saved as [a-z2-9]{8}; leap chat -c goes on")
    assert chat.ended() == 0


def test_typed_lines_are_in_the_history_of_the_next_chat(terminal, leap_home):
    first = terminal("chat", "-m", "builtin")
    first.expect(PROMPT)
    first.type("/stats\r")
    first.expect(f"0 messages.*{PROMPT}")
    first.type("\x04")
    assert first.ended() == 0
    assert (leap_home / "chat_history").stat().st_mode & 0o777 == 0o600
    second = terminal("chat", "-m", "builtin", "--no-save")
    second.expect(PROMPT)
    second.type("\x1b[A\r")  # nothing: what is not kept is not looked up either
    second.type("/help quit\r")
    assert "0 messages" not in second.expect(f"Leave, like Ctrl-D.*{PROMPT}")
    second.type("\x04")
    assert second.ended() == 0
    third = terminal("chat", "-m", "builtin")
    third.expect(PROMPT)
    third.type("\x1b[A\r")
    third.expect("0 messages")


def test_several_lines_are_one_message(terminal, kept):
    chat = terminal("chat", "-m", "builtin", "--max-tokens", "20")
    chat.expect(PROMPT)
    chat.type("one\\\rtwo\x1b\rthree\r")  # a backslash before Enter, then Alt-Enter
    chat.expect(f"three.*{PROMPT}")
    chat.type(f"{PASTE_BEGINS}four\nfive\n{PASTE_ENDS}")
    chat.expect("five")
    chat.type("six\r")
    chat.expect(f"six.*{PROMPT}")
    chat.type("\x04")
    assert chat.ended() == 0
    assert [message.text for message in kept()[::2]] == ["one\ntwo\nthree", "four\nfive\nsix"]


def test_tab_completes_commands_and_files(terminal, leap_home):
    leap_home.mkdir()
    (leap_home / "a-long-name.txt").write_text("text")
    chat = terminal("chat", "-m", "builtin")
    chat.expect(PROMPT)
    chat.type("/at\t")
    chat.expect("/attach")
    chat.type(f" {leap_home}/a-l\t")
    chat.expect("ong-name.txt")
    chat.type("\r")
    chat.expect("goes with your next message")


def test_edit_prefills_the_prompt_with_the_last_message(terminal, kept):
    chat = terminal("chat", "-m", "builtin")
    chat.expect(PROMPT)
    chat.type(f"{QUESTION}\r")
    chat.expect(f"Paris.*{PROMPT}")
    chat.type("/edit\r")
    chat.expect(re.escape(QUESTION))
    chat.type("\x7f" * len("France?") + "Italy?\r")
    chat.expect(f"Rome.*{PROMPT}")
    assert [message.text for message in kept()][0] == QUESTION.replace("France", "Italy")
    assert len(kept()) == 2


def test_typed_text_can_be_edited_in_an_editor(terminal, variables, tmp_path, kept):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed "s/France/Italy/" "$1" > "$1.new" && mv "$1.new" "$1"\n')
    editor.chmod(0o755)
    variables |= {"VISUAL": str(editor), "EDITOR": "false"}
    chat = terminal("chat", "-m", "builtin")
    chat.expect(PROMPT)
    chat.type(QUESTION)
    chat.expect(re.escape(QUESTION))
    chat.type("\x18\x05")  # Ctrl-X Ctrl-E
    chat.expect("Italy")
    chat.type("\r")
    chat.expect(f"Rome.*{PROMPT}")
    assert kept()[0].text == QUESTION.replace("France", "Italy")


def test_ctrl_c_stops_an_answer_and_the_chat_continues(terminal, kept):
    chat = terminal("chat", "-m", "builtin", "--threads", "1")
    chat.expect(PROMPT)
    chat.type(f"{LONG}\r")
    chat.expect(COUNTING)
    chat.type("\x03")
    stopped = chat.expect(PROMPT)
    assert "400" not in stopped
    chat.type(f"{QUESTION}\r")
    chat.expect(PROMPT)
    chat.type("\x04")
    assert chat.ended() == 0
    question, stopped_answer, *rest = kept()
    assert question.text == LONG and stopped_answer.text.startswith("1") and len(rest) == 2


def test_the_prompt_follows_the_size_of_the_terminal(terminal):
    chat = terminal("chat", "-m", "builtin")
    chat.expect(PROMPT)
    chat.type("half a line")
    chat.expect("half a line")
    chat.resize(10, 30)
    chat.expect("> .*half a line")  # drawn anew
    chat.type(" and the rest of it, which is wider than that\r")
    chat.expect(PROMPT)
    chat.type(f"{LONG}\r")
    chat.expect(COUNTING)
    chat.resize(24, 80)
    chat.expect("9")  # an answer is not disturbed
    chat.type("\x03")
    chat.expect(PROMPT)
    chat.type("\x04")
    assert chat.ended() == 0


def test_a_killed_chat_loses_nothing_but_the_answer_in_flight(terminal, kept):
    chat = terminal("chat", "-m", "builtin", "--threads", "1")
    chat.expect(PROMPT)
    chat.type("My name is Ada.\r")
    chat.expect(f"Ada.*{PROMPT}")
    before = kept()
    chat.type(f"{LONG}\r")
    chat.expect(COUNTING)
    chat.process.kill()
    chat.process.wait()
    assert kept() == [*before, ChatMessage("user", LONG)]
    again = terminal("chat", "-c")
    again.expect("continuing [a-z2-9]{8}: 2 messages.*your last message got no answer.*> " + LONG)
    again.type("\x03")
    again.expect(PROMPT)
    again.type("What is my name?\r")
    again.expect(f"Ada.*{PROMPT}")
    again.type("\x04")
    assert again.ended() == 0
    assert kept()[:2] == before


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_bytes_that_are_not_utf8_are_refused_and_the_chat_continues(terminal, term):
    chat = terminal("chat", "-m", "builtin", term=term)
    chat.expect(PROMPT)
    os.write(chat.ours, b"caf\xff\r")
    chat.expect(f"leap: error: what was typed is not .*UTF-8.*{PROMPT}")
    chat.type("/stats\r")
    chat.expect(f"0 messages.*{PROMPT}")
    chat.type("\x04")
    assert chat.ended() == 0


def test_a_dumb_terminal_gets_plain_lines(terminal, kept):
    chat = terminal("chat", "-m", "builtin", term="dumb")
    chat.expect(PROMPT)
    chat.type("What is the capital\\\r")
    chat.expect("\n. ")
    chat.type("of France?\r")
    chat.expect(f"Paris.*{PROMPT}")
    chat.type("/stats\r")
    chat.expect(f"2 messages.*{PROMPT}")
    chat.type("\x04")
    assert chat.ended() == 0
    assert "\x1b" not in chat.raw and kept()[0].text == "What is the capital\nof France?"


def test_generate_at_a_terminal_asks_for_a_prompt(terminal):
    generate = terminal("generate", "-m", "builtin")
    generate.expect("leap: error: the prompt is empty")
    assert generate.ended() == 2


def test_generate_reads_a_typed_prompt(terminal):
    generate = terminal("generate", "-m", "builtin", "-")
    generate.type(f"{QUESTION}\n\x04")
    generate.expect("Paris")
    assert generate.ended() == 0
