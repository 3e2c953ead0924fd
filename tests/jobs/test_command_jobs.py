"""Jobs that run leap: what they put out, how they end, and what a worker that was killed leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.configuration import JobsConfiguration
from jobs.submission.new_jobs import Submitter, command_job
from jobs.table.job import Job, State, WorkerIdentity
from jobs.table.table import Table
from jobs.worker import command_jobs
from jobs.worker.attempt import Attempt
from jobs.worker.command_jobs import TRACE, end_left_commands, follow
from jobs.worker.outcomes import run_attempt
from leap_core.system.processes import start_time

from .waiting import until

ME = WorkerIdentity("me", "run-1", "here")


@pytest.fixture
def table(leap_home) -> Iterator[Table]:
    with Table(JobsConfiguration.from_environment().table_place) as table:
        yield table


def run(table: Table, words: list[str], cwd: Path, *, stop_after: float | None = None, **given: object) -> Job:
    """Run a command as a worker does; how its job has ended."""
    configuration = JobsConfiguration.from_environment()
    id = table.add([command_job(words, "a label", cwd, Submitter(configuration, os.environ), **given)])[0]
    job = table.claim_next("command", ME)
    assert job is not None
    attempt = Attempt(job, ME.owner, table)
    if stop_after is not None:
        threading.Timer(stop_after, lambda: attempt.end(cancelled=True)).start()
    run_attempt(attempt, table, lambda attempt: follow(attempt, table, configuration))
    assert not list(configuration.directories.run.glob(f"{TRACE}*"))
    return table.get(id)


def output(table: Table, job: Job) -> tuple[str, list[str]]:
    events = [event.value for event in table.events(job.id, 1)]
    return "".join(e.get("text", "") for e in events), [e["message"] for e in events if "message" in e]


def test_stdout_and_stderr_are_kept_apart(table, tmp_path):
    job = run(table, ["generate", "-m", "builtin", "--stats", "What is the capital of Italy?"], tmp_path)
    text, notes = output(table, job)
    assert job.state is State.SUCCEEDED and text == "The capital of Italy is Rome.\n"
    assert notes and not any(note.startswith("leap:") for note in notes)


def test_standard_input_is_that_of_the_submitter(table, tmp_path):
    job = run(table, ["generate", "-m", "builtin"], tmp_path, standard_input=b"What is the capital of Italy?")
    assert output(table, job)[0] == "The capital of Italy is Rome.\n"


def test_a_failed_command_has_its_reason_and_exit_code(table, tmp_path):
    job = run(table, ["generate", "-m", "LFM2.5-350M", "hi"], tmp_path)
    assert job.state is State.FAILED and job.error["code"] == 3
    assert "LFM2.5-350M" in job.error["message"]
    assert "leap:" not in job.error["message"] and "error:" not in job.error["message"]


def test_variables_of_the_submitter_count_and_not_the_workers(table, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAP_GENERATE_STATS", "true")
    monkeypatch.setenv("LEAP_API_KEY", "hidden")
    words, configuration = ["config", "get", "options.generate.stats"], JobsConfiguration.from_environment()
    job = command_job(words, "x", tmp_path, Submitter(configuration, dict(os.environ)))
    assert job.parameters["variables"]["LEAP_GENERATE_STATS"] == "true" and "hidden" not in json.dumps(job.parameters)
    assert output(table, run(table, words, tmp_path))[0] == "true\n"
    without = {name: value for name, value in os.environ.items() if name != "LEAP_GENERATE_STATS"}
    monkeypatch.setattr(command_jobs.os, "environ", {**os.environ, "LEAP_GENERATE_STATS": "true"})
    id = table.add([command_job(words, "x", tmp_path, Submitter(configuration, without))])[0]
    attempt = Attempt(table.claim_next("command", ME), ME.owner, table)
    run_attempt(attempt, table, lambda attempt: follow(attempt, table, configuration))
    assert output(table, table.get(id))[0] != "true\n"


def test_a_command_ends_with_its_job(table, tmp_path):
    words = ["generate", "-m", "builtin", "--count", "256", "--max-tokens", "2000", "--temperature", "2", "hi"]
    job = run(table, words, tmp_path, stop_after=1.0)
    assert job.state is State.CANCELLED


def test_processes_of_a_killed_worker_are_ended_and_no_others(leap_home):
    configuration = JobsConfiguration.from_environment()
    configuration.directories.run.mkdir(parents=True, exist_ok=True)
    left, other = (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True) for _ in "ab"
    )
    try:
        traces = {
            "a": json.dumps({"pid": left.pid, "started": start_time(left.pid)}),
            "b": json.dumps({"pid": other.pid, "started": "of an earlier process with this number"}),
            "c": "{",
            "d": json.dumps({"pid": 2**22 + 1, "started": None}),
        }
        for name, text in traces.items():
            (configuration.directories.run / f"{TRACE}{name}.json").write_text(text)
        end_left_commands(configuration)
        until(lambda: left.poll() is not None)
        assert other.poll() is None and not list(configuration.directories.run.glob(f"{TRACE}*"))
    finally:
        for process in (left, other):
            process.kill()
            process.wait()
