"""``leap batch`` with the built-in model, as a shell sees it: killed, interrupted, out of room, and gone on with."""

from __future__ import annotations

import json
import os
import pty
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.lengths import lengths

FLAGS = ["-m", "builtin", "--temperature", "0", "--max-tokens", "60", "--threads", "1", "--concurrency", "4"]


@pytest.fixture
def lines(tmp_path):
    """A batch of 40 lines, about which the model is sure: batches of another size round otherwise."""
    rng = random.Random(5)
    rows = []
    for n in range(40):
        first = rng.randrange(100, 900)
        row = {"custom_id": f"id-{n}", "prompt": f"Count from {first} to {first + 6}."}
        rows.append(json.dumps(row) + "\n")
    (tmp_path / "in.jsonl").write_text("".join(rows))
    return tmp_path / "in.jsonl"


def answers(path: Path) -> list[tuple[str, str]]:
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(r["custom_id"], r["response"]["body"]["choices"][0]["message"]["content"]) for r in records]


@lengths(1, 6)
def test_a_batch_killed_at_any_moment_loses_and_repeats_nothing(program, start, lines, tmp_path, rounds):
    assert program("batch", "in.jsonl", "-o", "calm.jsonl", *FLAGS).returncode == 0
    rng = random.Random(1)
    kills = 0
    journal = tmp_path / "out.jsonl.journal"

    def answered() -> int:
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    for _ in range(rounds):
        enough = answered() + rng.randrange(8)
        process = start("batch", "in.jsonl", "-o", "out.jsonl", *FLAGS)
        while process.poll() is None and answered() < enough:
            time.sleep(0.002)
        kills += process.poll() is None
        process.kill()
        process.wait()
    done = program("batch", "in.jsonl", "-o", "out.jsonl", *FLAGS)
    assert done.returncode == 0 and kills, done.stderr
    ids = [custom_id for custom_id, _ in answers(tmp_path / "out.jsonl")]
    assert ids == [f"id-{n}" for n in range(40)]
    assert len(journal.read_bytes().splitlines()) == 41, "a line was answered twice"
    assert answers(tmp_path / "out.jsonl") == answers(tmp_path / "calm.jsonl")


def test_ctrl_c_keeps_finished_answers(program, start, lines, tmp_path):
    process = start("batch", "in.jsonl", "-o", "out.jsonl", *FLAGS)
    journal = tmp_path / "out.jsonl.journal"
    while not journal.exists() or journal.stat().st_size < 2000:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and b"the same command resumes from here" in said
    assert b"Traceback" not in said
    done = program("batch", "in.jsonl", "-o", "out.jsonl", *FLAGS)
    assert done.returncode == 0 and "of them before)" in done.stderr
    assert len(answers(tmp_path / "out.jsonl")) == 40


@pytest.mark.cold
def test_a_full_disk_stops_a_batch_with_one_line_and_it_resumes_later(program, lines, tmp_path):
    """RLIMIT_FSIZE stands for the full disk: write() fails in the same places, with EFBIG for ENOSPC."""

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = program("batch", "in.jsonl", "-o", "out.jsonl", *FLAGS, preexec_fn=little_room)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "cannot write" in done.stderr and "free disk space" in done.stderr
    assert (tmp_path / "out.jsonl").read_bytes().endswith(b"}\n")
    done = program("batch", "in.jsonl", "-o", "out.jsonl", *FLAGS)
    assert done.returncode == 0 and "of them before)" in done.stderr
    assert [custom_id for custom_id, _ in answers(tmp_path / "out.jsonl")] == [f"id-{n}" for n in range(40)]


def test_two_batches_do_not_write_to_one_output(program, start, lines, tmp_path):
    first = start("batch", "in.jsonl", "-o", "out.jsonl", *FLAGS)
    while not (tmp_path / "out.jsonl.journal").exists():
        time.sleep(0.01)
    second = program("batch", "in.jsonl", "-o", "out.jsonl", *FLAGS)
    if first.poll() is None:
        assert second.returncode != 0 and "another batch is writing to" in second.stderr
    first.communicate()
    assert first.returncode == 0


def test_a_closed_pipe_ends_a_batch_with_a_note(variables, lines, tmp_path):
    line = f"{sys.executable} -m leap_cli batch in.jsonl {' '.join(FLAGS)} | head -n 2 >few; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "0\n"
    assert done.stderr == "leap: whatever read the results has ended: the rest was not answered\n"
    assert len((tmp_path / "few").read_text().splitlines()) == 2


def test_named_pipes_and_devices_are_written_without_a_journal(program, lines, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", "pipe"], cwd=tmp_path, stdout=subprocess.PIPE)
    done = program("batch", "in.jsonl", "-o", "pipe", *FLAGS)
    out, _ = reader.communicate(timeout=30)
    assert done.returncode == 0 and len(out.splitlines()) == 40
    assert not list(tmp_path.glob("*.journal"))


def test_progress_is_shown_on_a_terminal_unless_the_results_go_into_a_pipe(start, variables, tmp_path):
    variables["TERM"] = "xterm"
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hello"}\n')

    def shown(*destination: str) -> str:
        ours, theirs = pty.openpty()
        process = start("batch", "in.jsonl", *destination, *FLAGS, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        output, _ = process.communicate()
        assert process.returncode == 0 and output.count(b"\n") == (0 if destination else 1)
        text = os.read(ours, 4096).decode()
        os.close(ours)
        return text

    assert "1 of 1 lines" in shown("-o", "out.jsonl")
    piped = shown()
    assert "1 of 1 lines" not in piped and "1 answered" in piped
