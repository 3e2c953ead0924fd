"""One command from an empty home to an answer: at a pseudo-terminal, with Ctrl-C, and by two processes at once."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from leap_core.models.builtin import model_path
from tests.support.hub import FakeHub

from .conftest import QUESTION, TERMINAL_STUB
from .test_chat import terminal as terminal
from .test_download import hub as hub
from .test_download import wait_for

pytestmark = pytest.mark.slow

REPO, FILE = "unsloth/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q4_K_M.gguf"
HEADER = 100_000
"""Bytes at most that are read of a file before it is downloaded."""
LINE = ("-m", "qwen3:0.6b", "--temperature", "0", QUESTION)


@pytest.fixture
def size(hub: FakeHub, variables, tmp_path) -> int:  # noqa: F811
    """Of the model that the hub has; the home is empty."""
    variables["HOME"] = str(tmp_path)
    hub.add_file(REPO, FILE, model_path())
    return model_path().stat().st_size


def test_a_terminal_is_asked_downloads_and_gets_the_answer(terminal, hub, size, leap_home):  # noqa: F811
    asked = terminal(*LINE)
    asked.expect(r"qwen3:0\.6b \(unsloth/Qwen3-0\.6B-GGUF, Q4_K_M, [^)]*license")
    asked.expect(r"download it\? \[Y/n\] ")
    assert hub.bytes_served() == 0
    asked.type("\n")
    asked.expect("Paris")
    assert asked.ended() == 0
    served = hub.bytes_served()
    assert size <= served <= size + HEADER
    assert (leap_home / "models" / "Qwen3-0.6B-Q4_K_M" / FILE).stat().st_size == size
    again = terminal(*LINE)
    assert "download it?" not in again.expect("Paris")
    assert again.ended() == 0 and hub.bytes_served() == served


def test_ctrl_c_at_the_question_and_in_the_download_can_be_resumed(terminal, hub, size):  # noqa: F811
    asked = terminal(*LINE)
    asked.expect(r"\[Y/n\] ")
    asked.type("\x03")
    assert asked.ended() == 130 and hub.bytes_served() == 0
    stall = hub.fault("stall", FILE, times=99, after=size // 2)
    begun = terminal(*LINE)
    begun.expect(r"\[Y/n\] ")
    begun.type("y\n")
    wait_for(lambda: hub.bytes_served() >= size // 2)
    begun.type("\x03")
    begun.expect("the same command resumes")
    assert begun.ended() == 130
    hub.faults.remove(stall)
    served = hub.bytes_served()
    resumed = terminal(*LINE)
    resumed.expect(r"\[Y/n\] ")
    resumed.type("\n")
    resumed.expect("Paris")
    assert resumed.ended() == 0 and hub.bytes_served() - served < size


def test_two_processes_at_first_use_download_once_and_both_answer(start, variables, hub, size):  # noqa: F811
    variables["LEAP_AUTO_DOWNLOAD"] = "yes"
    hub.bytes_per_second = size
    both = [start(*LINE) for _ in range(2)]
    outputs = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert all(b"Paris" in out for out, _ in outputs)
    assert size <= hub.bytes_served() <= size + 2 * HEADER


def test_ctrl_c_just_after_a_question_ends_it(variables):
    """A signal that came between the question and ``input`` once waited for the answer."""
    asking = "from leap_cli.framework.environment import Environment\nEnvironment.of_process().read_typed_line('yes? ')"
    for _ in range(8):
        ours, theirs = pty.openpty()
        asked = subprocess.Popen(
            [*TERMINAL_STUB, sys.executable, "-c", asking],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=variables,
        )
        os.close(theirs)
        seen = b""
        while b"yes? " not in seen:
            arrived = os.read(ours, 1000)
            assert arrived, seen
            seen += arrived
        os.write(ours, b"\x03")
        assert b"KeyboardInterrupt" in asked.communicate(timeout=100)[1]
        os.close(ours)
