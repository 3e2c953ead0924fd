"""A worker as a task of a cluster: it ends when nothing is left, or its time is over, and hands back what it has."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from jobs.table.job import State
from leap_core.models.builtin import model_path

from .test_many_machines import ENDLESS, SHORT, settings, source
from .waiting import until

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc"),
]


def worker(machine, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "leap_cli", "jobs", "worker", *args]
    return subprocess.Popen(command, env=machine.variables, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def machine(machines):
    return machines("task", lease=120.0)


def test_until_empty_does_all_there_is_and_ends(machine, tmp_path):
    source(tmp_path, 40)
    with machine.client() as jobs:
        id = jobs.batch(settings(tmp_path))
        process = worker(machine, "--until-empty")
        assert process.wait(60) == 0, process.stderr.read()
        assert jobs.get(id).state is State.SUCCEEDED
    process.stderr.close()


def test_when_its_time_is_over_it_ends_with_what_it_has(machine):
    with machine.client() as jobs:
        process = worker(machine, "--for", "3s")
        first = jobs.generate("Hi", options=SHORT)
        assert jobs.wait(first, 30).state is State.SUCCEEDED
        assert process.wait(100) == 0
        late = jobs.generate("Hi", options=SHORT)
        assert jobs.get(late).state is State.QUEUED
    process.stderr.close()


@pytest.mark.parametrize("to_all", [False, True], ids=["the worker", "all processes of the task"])
def test_a_task_that_is_ended_hands_its_leases_back_at_once(machine, to_all):
    with machine.client() as jobs:
        id = jobs.generate("Count.", options=ENDLESS)
        process = worker(machine, "--foreground")
        until(lambda: jobs.events(id))
        if to_all:  # as Slurm does at the end of a task's time
            children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
            for child in children:
                subprocess.run(["kill", "-TERM", child], check=False)
        process.send_signal(signal.SIGTERM)
        until(lambda: jobs.get(id).state is State.QUEUED)
        assert process.wait(60) == 0
        assert not list(jobs.workers()) or not next(iter(jobs.workers())).is_alive
        other = worker(machine, "--for", "1s")
        until(lambda: jobs.get(id).attempt == 2)
        assert jobs.cancel(id).state is State.CANCELLED
        other.wait(100)
    for each in (process, other):
        each.stderr.close()
