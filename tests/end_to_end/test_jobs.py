"""``leap jobs`` and ``--background`` as a shell sees them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_core.models.builtin import model_path
from tests.jobs import processes
from tests.support.hub import FakeHub

from .conftest import QUESTION

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]
GREEDY = ["-m", "builtin", "--temperature", "0"]
REPO, FILE = "LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_K_M.gguf"


@pytest.fixture(autouse=True)
def nothing_left_behind(program, leap_home) -> Iterator[None]:
    yield
    program("jobs", "worker", "--shutdown")
    deadline = time.monotonic() + 100
    while (left := processes.of_home(leap_home)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == {}


@pytest.fixture
def submit(program):
    """Run a command with --background; the id that it prints."""

    def run(*arguments: str, **options) -> str:
        done = program(*arguments, "--background", **options)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert done.stdout.endswith("\n") and done.stdout.strip().isalnum(), "the id and nothing else"
        return done.stdout.strip()

    return run


@pytest.fixture
def long_batch(tmp_path):
    """A batch that takes a while: 500 lines, one at a time."""
    rng = random.Random(3)
    rows = [json.dumps({"custom_id": f"id-{n}", "prompt": f"Say {rng.randrange(1000)}."}) + "\n" for n in range(500)]
    (tmp_path / "in.jsonl").write_text("".join(rows))
    return [
        "batch",
        "in.jsonl",
        "-o",
        "out.jsonl",
        *GREEDY,
        "--max-tokens",
        "20",
        "--threads",
        "1",
        "--concurrency",
        "2",
    ]


def ids_of(path) -> list[str]:
    return [json.loads(line)["custom_id"] for line in path.read_text("utf-8").splitlines()]


def status(program, id: str) -> dict:
    return json.loads(program("jobs", "status", id, "--format", "json").stdout)


def until(condition, seconds: float = 60.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)
    return found


def test_an_answer_in_the_background_is_the_one_of_the_foreground(program, submit):
    id = submit("generate", *GREEDY, QUESTION)
    followed = program("jobs", "logs", "--follow", id)
    assert (followed.returncode, followed.stdout) == (0, program("generate", *GREEDY, QUESTION).stdout)
    waited = program("jobs", "wait", id[:5])
    assert (waited.returncode, waited.stdout) == (0, followed.stdout)
    assert program("jobs", "logs", id).stdout == followed.stdout
    events = [json.loads(line) for line in program("jobs", "logs", id, "--format", "jsonl").stdout.splitlines()]
    assert "".join(e.get("text", "") for e in events) + "\n" == followed.stdout
    shown = status(program, id)
    assert (shown["state"], shown["kind"], shown["label"]) == ("succeeded", "generate", QUESTION)
    assert program("jobs", "status", "--follow", id).stdout.startswith(f"id         {id}\n")


def test_lists_go_through_pipes(submit, shell):
    ids = [submit("generate", *GREEDY, "--max-tokens", "3", QUESTION) for _ in range(3)]
    done = shell("leap jobs list --format quiet | xargs -n 1 python3 -c 'import sys; print(sys.argv[1])'")
    assert done.stdout.split() == ids[::-1]
    assert shell(f'leap jobs list --format quiet | xargs "{sys.executable}" -m leap_cli jobs wait').returncode == 0
    assert shell("leap jobs list --state succeeded --format quiet | wc -l").stdout.strip() == "3"
    assert len(json.loads(shell("leap jobs list --format json").stdout)) == 3
    assert shell("leap jobs list --format human | head -n 1").stdout.split()[:3] == ["ID", "KIND", "STATE"]
    assert shell("leap jobs prune -q 2>/dev/null; leap jobs prune --yes --older-than 1d --format quiet").stdout == ""
    assert set(shell("leap jobs prune --yes --format quiet").stdout.split()) == set(ids)
    assert shell("leap jobs list --format json").stdout == "[]\n"


def test_wait_returns_output_and_exit_code_of_the_command(program, submit, tmp_path):
    (tmp_path / "bad.jsonl").write_text(json.dumps({"prompt": "word " * 9000}) + "\n")
    long = submit("generate", *GREEDY, "word " * 9000)
    failed = submit("batch", "bad.jsonl", "-o", "out.jsonl", *GREEDY)
    late = submit("generate", *GREEDY, QUESTION, "--job-retries", "0")
    assert program("jobs", "wait", late).returncode == 0
    done = program("jobs", "wait", long)
    assert done.returncode == 5 and "the context holds" in done.stderr and done.stderr.count("\n") == 1
    done = program("jobs", "wait", failed)
    assert done.returncode == 8 and "1 of 1 lines failed" in done.stderr and "leap jobs retry" in done.stderr
    assert program("jobs", "wait", late, failed, long).returncode == 8
    assert program("jobs", "wait").returncode == 0


def test_a_batch_job_is_waited_for_cancelled_and_resumed(program, submit, long_batch, tmp_path):
    id = submit(*long_batch)
    done = program("jobs", "wait", id, "--timeout", "0.3s")
    assert done.returncode == 9 and f"the job {id} is still" in done.stderr
    out = tmp_path / "out.jsonl"  # read here: a process that asks for the status may take longer than the batch
    until(lambda: out.is_file() and out.read_bytes().count(b"\n") > 5)
    assert program("jobs", "cancel", id).returncode == 0
    shown = status(program, id)
    assert shown["state"] == "cancelled" and 0 < shown["result"]["done"] < 500
    before = out.read_bytes()
    assert 0 < len(before.splitlines()) < 500
    assert program("jobs", "wait", id).returncode == 130
    assert program("jobs", "retry", id).returncode == 0
    assert program("jobs", "wait", id).returncode == 0
    after = out.read_bytes()
    assert after.startswith(before) and ids_of(out) == [f"id-{n}" for n in range(500)]
    assert status(program, id)["result"]["reused"] > 5


def test_a_batch_from_a_pipe_survives_the_end_of_the_pipe(program, submit, tmp_path):
    rows = "".join(json.dumps({"prompt": f"Say {n}.", "max_tokens": 3}) + "\n" for n in range(5))
    id = submit("batch", "-", "-o", "out.jsonl", *GREEDY, stdin=rows)
    assert program("jobs", "wait", id).returncode == 0 and len(ids_of(tmp_path / "out.jsonl")) == 5
    kept = list((tmp_path / "leap-home" / "batches").iterdir())
    assert len(kept) == 1 and program("jobs", "remove", id).returncode == 0 and not kept[0].exists()


def test_removed_jobs_are_listed_when_a_later_id_is_unknown(submit, program):
    one, two = (submit("generate", QUESTION, *GREEDY) for _ in range(2))
    assert program("jobs", "wait", one, two).returncode == 0
    done = program("jobs", "remove", one, "nobody", two)
    assert (done.returncode, done.stdout) == (2, f"ID\n{one}\n"), "the first is gone, and told of"
    assert "there is no job 'nobody'" in done.stderr
    assert program("jobs", "remove", two).returncode == 0, "the last was not touched"


def test_jobs_survive_the_terminal_and_its_processes(start, program, long_batch, variables, tmp_path):
    """Everything in the session of the submitter is killed, as a terminal that is closed does with SIGHUP."""
    line = " ".join([sys.executable, "-m", "leap_cli", *long_batch, "--background"]) + "; sleep 60"
    shell = subprocess.Popen(
        ["bash", "-c", line], cwd=tmp_path, env=variables, stdout=subprocess.PIPE, start_new_session=True
    )
    id = shell.stdout.readline().decode().strip()
    os.killpg(shell.pid, signal.SIGHUP)
    os.killpg(shell.pid, signal.SIGKILL)
    shell.communicate()
    assert program("jobs", "wait", id, "--timeout", "200s").returncode == 0
    assert len(ids_of(tmp_path / "out.jsonl")) == 500


@pytest.fixture
def hub(variables, tmp_path) -> Iterator[FakeHub]:
    with FakeHub(bytes_per_second=400_000) as hub:
        variables |= {"HF_HOME": str(tmp_path / "hf"), **hub.environment}
        yield hub


def test_a_download_survives_its_worker_and_its_cancellation(program, submit, hub, leap_home):
    data = random.Random(3).randbytes(6_000_000)
    hub.add_file(REPO, FILE, data)
    id = submit("download", "LFM2-350M", "--connections", "1")
    until(lambda: (status(program, id)["progress"] or {}).get("done", 0) > 1_000_000)
    os.kill(processes.named(leap_home, "jobs.worker")[0], signal.SIGKILL)
    until(lambda: not processes.of_home(leap_home))
    hub.bytes_per_second = 100_000
    program("jobs", "worker")
    until(lambda: status(program, id)["attempt"] == 2 and (status(program, id)["progress"] or {}).get("done", 0))
    assert program("jobs", "cancel", id).returncode == 0
    shown = status(program, id)
    assert shown["state"] == "cancelled" and not (leap_home / "models" / "LFM2-350M-Q4_K_M" / FILE).exists()
    hub.bytes_per_second = None
    assert program("jobs", "retry", id).returncode == 0 and program("jobs", "wait", id).returncode == 0
    path = status(program, id)["result"]["path"]
    assert Path(path).read_bytes() == data
    assert hub.bytes_served(FILE) < 1.4 * len(data) or hub.bytes_served() < 1.4 * len(data)


def test_wrong_usage_and_unknown_ids_are_one_line_errors(program, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    for arguments, code, told in [
        (["jobs", "status", "nojob"], 2, "there is no job 'nojob'"),
        (["jobs", "cancel"], 2, "give a JOB, or --all"),
        (["jobs", "wait", "x", "--timeout", "soon"], 2, "is not a length of time such as"),
        (["jobs", "worker", "--shutdown", "--foreground"], 2, "exclude each other"),
        (["batch", "in.jsonl", "--background", "-m", "builtin"], 2, "needs -o FILE"),
        (["batch", "in.jsonl", "-o", "in.jsonl", "--background", "-m", "builtin"], 2, "input and output at once"),
        (["generate", "--background", "-m", "nosuch", "hi"], 2, "nosuch"),
        (["generate", "--background", "-m", "builtin", "--top-p", "7", "hi"], 2, "--top-p: 7.0 must be"),
    ]:
        done = program(*arguments)
        assert done.returncode == code and told in done.stderr and "Traceback" not in done.stderr, arguments
        assert done.stdout == ""
    assert json.loads(program("jobs", "list", "--format", "json").stdout) == []


def test_the_worker_in_the_foreground_and_its_unit_file(program, start, leap_home):
    worker = start("jobs", "worker", "--foreground")
    until(lambda: json.loads(program("jobs", "worker", "--status", "--format", "json").stdout)["pid"] == worker.pid)
    second = program("jobs", "worker", "--foreground")
    assert second.returncode == 10 and "a worker runs already" in second.stderr
    worker.send_signal(signal.SIGINT)
    _, said = worker.communicate(timeout=100)
    assert worker.returncode == 0 and b"Traceback" not in said, said
    unit = program("jobs", "worker", "--print-unit").stdout
    assert f'Environment="LEAP_HOME={leap_home}"' in unit and "ExecStart=" in unit
    assert "<key>KeepAlive</key>" in program("jobs", "worker", "--print-unit", "launchd").stdout
