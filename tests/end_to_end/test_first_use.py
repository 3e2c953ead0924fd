"""One command from an empty home to an answer: at a pseudo-terminal, and by two processes at once."""

from __future__ import annotations

import pytest

from leap_core.models.builtin import model_path
from leap_core.testing.hub import FakeHub

from .conftest import QUESTION
from .test_chat import terminal as terminal
from .test_download import hub as hub

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


def test_two_processes_at_first_use_download_once_and_both_answer(start, variables, hub, size):  # noqa: F811
    variables["LEAP_AUTO_DOWNLOAD"] = "yes"
    hub.bytes_per_second = size
    both = [start(*LINE) for _ in range(2)]
    outputs = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert all(b"Paris" in out for out, _ in outputs)
    assert size <= hub.bytes_served() <= size + 2 * HEADER
