"""The log of prompts, the built-in model, a killed process, a full disk and a job."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import pytest

from .conftest import LEAP, QUESTION

LONG = "count to 400"


@pytest.fixture
def logged(program):
    """The entries, oldest first."""

    def read() -> list[dict]:
        done = program("sessions", "log", "list", "--format", "json")
        assert done.returncode == 0, done.stderr
        return list(reversed(json.loads(done.stdout)))

    return read


@pytest.mark.skipif(sys.platform == "win32", reason="kills and limits of POSIX")
def test_a_killed_process_and_a_full_disk_lose_only_their_entry(program, start, logged, variables):
    variables["LEAP_LOG"] = "true"
    chat = start("chat", "-m", "builtin", "--no-save", "--threads", "1", stdin=subprocess.PIPE)
    chat.stdin.write(f"{QUESTION}\n".encode())
    chat.stdin.flush()
    assert b"Paris" in chat.stdout.readline()
    deadline = time.monotonic() + 60
    while [entry["prompt"] for entry in logged()] != [QUESTION]:  # written beside the answer
        assert time.monotonic() < deadline
        time.sleep(0.1)
    chat.stdin.write(f"{LONG}\n".encode())
    chat.stdin.flush()
    assert chat.stdout.read(3)
    chat.kill()
    chat.wait()
    assert [entry["prompt"] for entry in logged()] == [QUESTION]

    def no_file_can_grow() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    command = [*LEAP, "generate", "-m", "builtin", "--no-host", QUESTION]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env=variables, timeout=100, check=False,
        preexec_fn=no_file_can_grow,
    )  # fmt: skip
    assert done.returncode == 0 and b"Paris" in done.stdout
    assert b"leap: warning: this prompt is not in the log: " in done.stderr

    job = program("generate", "-m", "builtin", "--background", QUESTION)
    assert job.returncode == 0, job.stderr
    assert "Paris" in program("jobs", "wait", job.stdout.strip()).stdout
    program("jobs", "worker", "--shutdown")
    assert [(entry["command"], entry["prompt"]) for entry in logged()] == [
        ("chat", QUESTION),
        ("job generate", QUESTION),
    ]
    assert "Paris" in logged()[1]["answer"]
