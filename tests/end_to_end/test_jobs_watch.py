"""``leap jobs watch`` at a terminal and in a pipe."""

from __future__ import annotations

import json
import sys

import pytest

from leap_core.models.builtin import model_path

from .test_chat import Terminal

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal"),
]


@pytest.fixture
def batch(program, tmp_path):
    """The id of a batch in the background: it is soon at its third line, and not soon at its end."""
    prompts = ["Say hello."] * 3 + [f"Count to {300 + n}." for n in range(200)]
    lines = (json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
    (tmp_path / "in.jsonl").write_text("".join(lines))
    done = program("batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin", "--concurrency", "1", "--background")
    assert done.returncode == 0, done.stderr
    yield done.stdout.strip()
    program("jobs", "cancel", "--all")
    program("jobs", "worker", "--shutdown")


def test_watch_shows_a_live_table_or_one_line_per_change(batch, program, start, variables):
    variables.pop("COLUMNS")
    terminal = Terminal(["jobs", "watch"], variables, "xterm")
    try:
        terminal.expect(f"ID +KIND +STATE.*{batch} +batch +(queued|running).*1 of 1 jobs have not ended; q leaves")
        terminal.expect(r"[1-9]\d* of 203 lines.*q leaves")  # drawn anew, with progress
        terminal.resize(24, 40)
        narrow = terminal.expect(r"AGE\r*\n.*?q leaves")  # there is no room for WHAT
        assert all(len(line) <= 40 for line in narrow.rpartition("ID ")[2].split("\r\n"))
        terminal.type("q")
        assert terminal.ended() == 0
    finally:
        terminal.close()

    stopped = Terminal(["jobs", "watch"], variables, "xterm")
    try:
        stopped.expect("q leaves")
        stopped.type("\x03")
        assert stopped.ended() == 130
    finally:
        stopped.close()

    piped = start("jobs", "watch", "--format", "jsonl")
    first = json.loads(piped.stdout.readline())
    assert first["id"] == batch and first["state"] in ("queued", "running")
    assert program("jobs", "cancel", batch).returncode == 0
    states = [json.loads(line)["state"] for line in piped.stdout]
    assert states[-1] == "cancelled" and piped.wait(60) == 0
    assert program("jobs", "watch", batch).stdout.split()[:3] == [batch, "batch", "cancelled"]
    nothing = program("jobs", "watch")
    assert (nothing.stdout, nothing.returncode) == ("", 0) and "no jobs that have not ended" in nothing.stderr
    assert program("jobs", "watch", "nosuch").returncode == 2
