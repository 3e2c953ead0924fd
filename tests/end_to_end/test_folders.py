"""``leap jobs folder``: a command for each file that comes, with a worker that is killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.support.lengths import lengths


def listed(program, *arguments: str) -> list[dict[str, object]]:
    return json.loads(program("jobs", "list", "--format", "json", *arguments).stdout)


def ended(program, count: int, seconds: float = 120) -> list[dict[str, object]]:
    """The jobs of files, once so many have ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        jobs = listed(program, "--kind", "command")
        if sum(job["state"] in ("succeeded", "failed") for job in jobs) >= count:
            return jobs
        time.sleep(0.3)
    raise AssertionError([(job["state"], job["label"]) for job in listed(program)])


@pytest.mark.slow
@lengths(1, 4, "kills")
def test_each_file_gets_one_job_even_when_the_worker_is_killed(program, tmp_path, kills):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "here.txt").write_text("What is the capital of Italy?")
    (folder / "other.bin").write_bytes(b"\x00")
    command = ("generate", "-m", "builtin", "--no-host", "--output", "out/{stem}.md", "-f", "{}", "Answer.")
    (tmp_path / "out").mkdir()
    id = program("jobs", "folder", "in", "--include", "*.txt", "--", *command).stdout.strip()
    count, writers = 3 * kills, 3

    def write(writer: int) -> None:
        for n in range(count // writers):
            path = folder / f"{writer}-{n}.txt"
            with path.open("w") as file:  # in pieces: it is not to be taken half
                for word in ("What is", " the capital", " of Italy?"):
                    file.write(word)
                    file.flush()
                    time.sleep(0.05)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for _ in range(kills):
        time.sleep(1.0)
        status = json.loads(program("jobs", "worker", "--status", "--format", "json").stdout)
        if status.get("pid"):
            os.kill(status["pid"], signal.SIGKILL)
    for thread in threads:
        thread.join()
    ended(program, count + 1)
    time.sleep(3)
    jobs = listed(program, "--kind", "command")
    labels = sorted(job["label"] for job in jobs if job["label"].startswith("generate"))
    assert labels == sorted(["generate here.txt", *(f"generate {w}-{n}.txt" for w in range(3) for n in range(kills))])
    assert len(list((tmp_path / "out").glob("*.md"))) == count + 1
    log = program("jobs", "logs", id)
    assert (log.stderr + log.stdout).count(": job ") == count + 1
    (folder / "here.txt").write_text("What is the capital of France?")  # another content is another file
    assert len(ended(program, len(jobs) + 1)) == len(jobs) + 1
    assert program("jobs", "cancel", id).returncode == 0
    (folder / "late.txt").write_text("hi")
    time.sleep(3)
    assert len(listed(program, "--kind", "command")) == len(jobs) + 1


@pytest.mark.slow
def test_invalid_folders_are_refused(program, tmp_path):
    (tmp_path / "in").mkdir()
    for arguments, said in (
        (["nowhere", "--", "generate", "hi"], "there is no directory"),
        (["in", "--", "dance"], "'dance' is no command of leap"),
        (["in"], "Missing argument"),
    ):
        done = program("jobs", "folder", *arguments)
        assert done.returncode != 0 and said in done.stderr, done.stderr
    assert listed(program) == [] and list(Path(tmp_path / "in").iterdir()) == []
