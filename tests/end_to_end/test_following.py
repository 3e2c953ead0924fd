"""``--after``, ``--then``, ``--notify`` and ``--webhook``: what comes after a job, over real processes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from jobs.client import JobsClient
from tests.support.lengths import lengths

QUESTION = "What is the capital of Italy?"


class Receiver:
    """An HTTP server that answers with these codes in turn, then with 204."""

    def __init__(self, *codes: int) -> None:
        self.messages: list[tuple[dict[str, str], bytes]] = []
        left = list(codes)
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                messages.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(left.pop(0) if left else 204)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Callable[..., Receiver]]:
    made: list[Receiver] = []

    def make(*codes: int) -> Receiver:
        made.append(Receiver(*codes))
        return made[-1]

    yield make
    for each in made:
        each.close()


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits only to be reaped by one that is not ours."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def listed(program, *arguments: str) -> list[dict[str, object]]:
    return json.loads(program("jobs", "list", "--format", "json", *arguments).stdout)


@pytest.mark.slow
def test_a_job_follows_another_and_a_command_follows_both(program, tmp_path):
    first = program("generate", "-m", "builtin", "--at", "+1s", QUESTION).stdout.strip()
    command = 'echo "$LEAP_JOB_ID $LEAP_JOB_KIND $LEAP_JOB_STATE" > told.txt; echo said; pwd'
    done = program("generate", "-m", "builtin", "--after", first[:6], "--then", command, QUESTION)
    assert done.returncode == 0, done.stderr
    second = done.stdout.strip()
    seen = json.loads(program("jobs", "status", second, "--format", "json").stdout)
    assert seen["waits_for"] == f"the end of {first}"
    assert program("jobs", "wait").returncode == 0
    jobs = {job["id"]: job for job in listed(program)}
    assert jobs[second]["started"] >= jobs[first]["finished"]
    (follower,) = [job for job in jobs.values() if job["kind"] == "command"]
    assert follower["state"] == "succeeded" and follower["started"] >= jobs[second]["finished"]
    assert (tmp_path / "told.txt").read_text() == f"{second} generate succeeded\n"
    logs = program("jobs", "logs", follower["id"])
    assert "said" in logs.stdout + logs.stderr and str(tmp_path) in logs.stdout + logs.stderr


@pytest.mark.slow
def test_a_failure_is_passed_to_its_follower_and_fails_dependent_jobs(program, tmp_path):
    first = program("download", "nobody/nothing-GGUF", "--background", "--format", "quiet").stdout.split()[0]
    told = program(
        "generate",
        "-m",
        "builtin",
        "--option",
        f"after-any={first}",
        "--then",
        'printf %s "$LEAP_JOB_STATE" >&2; exit 7',
        QUESTION,
    ).stdout.strip()
    needing = program("generate", "-m", "builtin", "--after", first, QUESTION).stdout.strip()
    program("jobs", "cancel", first)
    assert program("jobs", "wait", told).returncode == 0
    assert program("jobs", "wait", needing).returncode == 8
    program("jobs", "wait")
    (follower,) = [job for job in listed(program) if job["kind"] == "command"]
    assert follower["state"] == "failed" and follower["error"]["message"] == "the command ended with code 7: succeeded"
    error = next(job for job in listed(program) if job["id"] == needing)["error"]["message"]
    assert error.startswith(f"it comes after the job {first}, which ")


@pytest.mark.slow
def test_a_webhook_is_signed_and_retried_with_the_same_id(program, receiver, leap_home):
    leap_home.mkdir(exist_ok=True)
    secret = base64.b64encode(b"a secret of 24 bytes, or").decode()
    (leap_home / "config.toml").write_text(f'[jobs]\nwebhook_secret = "whsec_{secret}"\n')
    hook = receiver(500)
    id = program("generate", "-m", "builtin", "--webhook", hook.url, QUESTION).stdout.strip()
    program("jobs", "wait")
    assert len(hook.messages) == 2
    assert len({headers["webhook-id"] for headers, _ in hook.messages}) == 1
    headers, body = hook.messages[-1]
    message = json.loads(body)
    assert message["type"] == "job.succeeded" and message["data"]["id"] == id and b"capital" not in body
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(base64.b64decode(secret), signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    time.sleep(2)
    assert len(hook.messages) == 2, "nothing is sent after a 2xx"


@pytest.mark.slow
def test_a_webhook_with_data_and_without_a_secret(program, receiver):
    hook = receiver()
    program("generate", "-m", "builtin", "--webhook", hook.url, "--webhook-data", QUESTION)
    program("jobs", "wait")
    ((headers, body),) = hook.messages
    assert "webhook-signature" not in headers
    assert "Rome" in json.dumps(json.loads(body)["data"]["result"])


@pytest.mark.slow
def test_the_worker_killed_before_and_while_a_command_runs(program, tmp_path):
    command = "echo begun >> begun.txt; sleep 1; echo done >> done.txt"
    program("generate", "-m", "builtin", "--at", "+1s", "--then", command, QUESTION)
    for _ in range(3):
        time.sleep(0.7)
        status = json.loads(program("jobs", "worker", "--status", "--format", "json").stdout)
        if status.get("pid"):
            os.kill(status["pid"], signal.SIGKILL)
    assert program("jobs", "wait", "--timeout", "200s").returncode == 0
    (follower,) = [job for job in listed(program) if job["kind"] == "command"]
    assert follower["state"] == "succeeded" and "done" in (tmp_path / "done.txt").read_text()


@pytest.mark.slow
def test_a_command_is_ended_with_its_job(program, tmp_path):
    program("generate", "-m", "builtin", "--then", "echo $$ > pid.txt; sleep 60", QUESTION)
    deadline = time.monotonic() + 100
    while not (tmp_path / "pid.txt").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    (follower,) = [job for job in listed(program) if job["kind"] == "command"]
    assert program("jobs", "cancel", follower["id"]).returncode == 0
    assert has_ended(int((tmp_path / "pid.txt").read_text()))


@pytest.mark.slow
def test_background_processes_of_a_command_end_only_with_their_job(program, tmp_path):
    program("generate", "-m", "builtin", "--then", "sleep 60 & echo $! > pid.txt", QUESTION)
    deadline = time.monotonic() + 100
    while not (tmp_path / "pid.txt").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    (follower,) = [job for job in listed(program) if job["kind"] == "command"]
    assert follower["state"] == "running"  # its output is still open
    assert program("jobs", "cancel", follower["id"]).returncode == 0
    assert has_ended(int((tmp_path / "pid.txt").read_text()))


@pytest.mark.slow
def test_notify_shows_a_desktop_notification(program, tmp_path, variables):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "notify-send").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/note.txt\n')
    (tools / "notify-send").chmod(0o755)
    variables["PATH"] = f"{tools}:{variables['PATH']}"
    program("generate", "-m", "builtin", "--notify", QUESTION)
    program("jobs", "wait")
    assert (tmp_path / "note.txt").read_text().splitlines()[2:] == ["leap: generate succeeded", QUESTION]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--after", "zzzz"], "there is no job 'zzzz'"),
        (["--webhook", "ftp://example.org"], "is no http or https address"),
        (["--webhook", "http://[::1/hook"], "is no http or https address"),
        (["--webhook", "http://example.org:x/"], "is no http or https address"),
        (["--webhook-data"], "--webhook-data goes with --webhook"),
        (["--then", "true", "--host"], "--then"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_queued(program, arguments, said):
    done = program("generate", "-m", "builtin", *arguments, QUESTION)
    assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr
    assert listed(program) == []


def schedules(program) -> list[dict[str, object]]:
    return json.loads(program("jobs", "schedules", "--format", "json").stdout)


def wait_for_runs(program, count: int) -> dict[str, object]:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        (found,) = schedules(program)
        if found["runs"] >= count and found["last"] == "succeeded":
            return found
        time.sleep(0.3)
    raise AssertionError(schedules(program))


@pytest.mark.slow
@lengths(1, 3, "kills")
def test_a_scheduled_prompt_runs_while_the_worker_is_killed(program, kills):
    id = program("generate", "-m", "builtin", "--every", "1s", QUESTION).stdout.strip()
    wait_for_runs(program, 1)
    for _ in range(kills):
        status = json.loads(program("jobs", "worker", "--status", "--format", "json").stdout)
        os.kill(status["pid"], signal.SIGKILL)
        wait_for_runs(program, schedules(program)[0]["runs"] + 1)
    assert program("jobs", "wait", "--timeout", "30s").returncode in (0, 9), "a schedule is not waited for"
    program("jobs", "schedules", "--suspend", id)
    program("jobs", "wait")
    runs = listed(program, "--kind", "command")
    assert all(job["state"] == "succeeded" for job in runs)
    (paused,) = schedules(program)
    assert paused["next"] == "paused" and paused["runs"] == len(runs)
    run = program("jobs", "schedules", "--run", id).stdout.strip()
    program("generate", "-m", "builtin", "--background", "Hi")  # of no schedule
    runs = program("jobs", "list", "--schedule", id[:5], "--format", "quiet").stdout.split()
    assert runs[0] == run and len(runs) == paused["runs"] + 1
    assert program("jobs", "list", "--schedule", "nowhere").returncode == 2
    assert program("jobs", "wait", run).returncode == 0
    program("jobs", "schedules", "--resume", id)
    wait_for_runs(program, paused["runs"] + 1)
    assert program("jobs", "cancel", id).returncode == 0 and schedules(program) == []


@pytest.mark.slow
def test_a_scheduled_batch_rereads_its_file_and_writes_a_new_output_each_run(program, tmp_path):
    lines = tmp_path / "in.jsonl"
    lines.write_text(json.dumps({"prompt": QUESTION}) + "\n")
    refused = program("batch", str(lines), "-m", "builtin", "-o", "out.jsonl", "--every", "2s")
    assert refused.returncode == 8 and "needs an output of its own" in refused.stderr
    piped = program("batch", "-", "-m", "builtin", "-o", "out-%S.jsonl", "--every", "2s", stdin=lines.read_text())
    assert piped.returncode == 8 and "no pipe" in piped.stderr and listed(program) == []
    told = "echo $LEAP_JOB_OUTPUT >> told.txt"
    done = program("batch", str(lines), "-m", "builtin", "-o", "out-%H%M%S.jsonl", "--every", "2s", "--then", told)
    assert done.returncode == 0, done.stderr
    wait_for_runs(program, 1)
    lines.write_text(lines.read_text() * 2)
    wait_for_runs(program, schedules(program)[0]["runs"] + 2)
    program("jobs", "schedules", "--suspend", done.stdout.strip())
    program("jobs", "wait")
    written = sorted(tmp_path.glob("out-*.jsonl"))
    assert len(written) >= 3
    counts = [len(path.read_text().splitlines()) for path in written]
    assert counts[0] == 1 and counts[-1] == 2
    assert sorted((tmp_path / "told.txt").read_text().split()) == [str(path) for path in written]


@pytest.mark.slow
@pytest.mark.parametrize("every", ["soon", "0 25 * * *", "0 9 * * 1-5 Mars/Base", "0 9 30 2 *"])
def test_invalid_intervals_are_refused(program, every):
    done = program("generate", "-m", "builtin", "--every", every, QUESTION)
    assert done.returncode == 2 and "--every" in done.stderr and listed(program) == []


@pytest.mark.slow
def test_the_model_of_a_following_job_need_not_be_installed_yet(program, tmp_path):
    """What it is checked for when it begins."""
    (tmp_path / "in.jsonl").write_text(json.dumps({"prompt": QUESTION}) + "\n")
    first = program("generate", "-m", "builtin", "--at", "+2s", QUESTION).stdout.strip()
    for command in (["generate", QUESTION], ["batch", "in.jsonl", "-o", "out.jsonl"]):
        assert program(*command, "-m", "LFM2.5-350M", "--background").returncode == 3
        assert program(*command, "-m", "Not-Here", "--after", first).returncode == 2
        done = program(*command, "-m", "LFM2.5-350M", "--after", first, "--job-retries", "0")
        assert done.returncode == 0, done.stderr
        id = done.stdout.strip()
        assert program("jobs", "wait", id).returncode == 3


@pytest.mark.slow
def test_the_configured_webhook_gets_every_job_including_the_servers(program, receiver, leap_home, variables):
    hook, other = receiver(), receiver()
    leap_home.mkdir(exist_ok=True)
    (leap_home / "config.toml").write_text(f'[jobs]\nwebhook = "{hook.url}"\n')
    plain = program("generate", "-m", "builtin", "--background", QUESTION).stdout.strip()
    program("generate", "-m", "builtin", "--webhook", other.url, QUESTION)
    with JobsClient(variables) as jobs:  # as the server's background responses are asked for
        served = jobs.generate(QUESTION, model="builtin")
    program("jobs", "wait")
    assert {json.loads(body)["data"]["id"] for _, body in hook.messages} == {plain, served}
    assert len(other.messages) == 1
