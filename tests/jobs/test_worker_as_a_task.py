"""A worker as a task of a cluster: it ends when nothing is left, or its time is over, and hands back what it has."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from jobs.table.job import State
from jobs.worker import worker as worker_module
from jobs.worker.worker_loop import WorkerLoop
from leap_core.models.builtin import model_path

from .test_many_machines import ENDLESS, SHORT, settings, source
from .waiting import until

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc"),
]


@pytest.fixture
def worker(machine) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``leap jobs worker`` with these arguments; it does not outlive the test."""
    with ExitStack() as started:

        def start(*args: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "leap_cli", "jobs", "worker", *args]
            process = subprocess.Popen(command, env=machine.variables, stderr=subprocess.PIPE, text=True)
            started.enter_context(process)  # closes its pipe and waits
            started.callback(process.kill)
            return process

        yield start


@pytest.fixture
def machine(machines):
    return machines("task", lease=120.0)


def test_until_empty_runs_all_jobs_and_ends(machine, worker, tmp_path):
    source(tmp_path, 40)
    with machine.client() as jobs:
        id = jobs.batch(settings(tmp_path))
        process = worker("--option", "until-empty")
        assert process.wait(100) == 0, process.stderr.read()
        assert jobs.get(id).state is State.SUCCEEDED


def test_a_worker_ends_when_its_time_is_over(machine, worker):
    process = worker("--option", "for=1s")
    assert process.wait(100) == 0
    with machine.client() as jobs:
        late = jobs.generate("Hi", options=SHORT)
        assert jobs.get(late).state is State.QUEUED


def test_a_worker_whose_time_is_over_finishes_its_job_and_starts_no_other(machine, monkeypatch):
    loops: list[WorkerLoop] = []
    monkeypatch.setattr(worker_module, "WorkerLoop", lambda *of: loops.append(WorkerLoop(*of)) or loops[-1])
    with machine.client() as jobs:
        first = jobs.generate("Count.", options=ENDLESS)
        limited = worker_module.Worker(machine.configuration, 1e6)
        thread = threading.Thread(target=limited.run)
        thread.start()
        try:
            until(lambda: jobs.events(first))
            limited._due = 0.0
            until(lambda: loops[0].draining)
            late = jobs.generate("Hi", options=SHORT)
            assert jobs.cancel(first).state is State.CANCELLED
            thread.join(100)
            assert not thread.is_alive() and jobs.get(late).state is State.QUEUED
        finally:
            limited.stop.set()
            thread.join()


@pytest.mark.parametrize("to_all", [False, True], ids=["the worker", "all processes of the task"])
def test_a_terminated_worker_returns_its_leases_at_once(machine, worker, to_all):
    with machine.client() as jobs:
        id = jobs.generate("Count.", options=ENDLESS)
        process = worker("--foreground")
        until(lambda: jobs.events(id))
        if to_all:  # as Slurm does at the end of a task's time
            children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
            for child in children:
                subprocess.run(["kill", "-TERM", child], check=False)
        process.send_signal(signal.SIGTERM)
        until(lambda: jobs.get(id).state is State.QUEUED)
        assert process.wait(60) == 0
        assert not list(jobs.workers()) or not next(iter(jobs.workers())).is_alive
        other = worker("--foreground")
        until(lambda: jobs.get(id).state is State.RUNNING)
        assert jobs.cancel(id).state is State.CANCELLED
        other.terminate()
        assert other.wait(100) == 0
