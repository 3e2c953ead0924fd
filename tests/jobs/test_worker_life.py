"""When a worker begins and ends: one for a directory, by lock; again after a kill; never without a directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from jobs import worker_process
from jobs.client import JobsClient
from jobs.configuration import JobsConfiguration
from jobs.table.job import NewJob, State
from jobs.worker.worker import Worker
from jobs.worker.worker_loop import LOCAL_SWEEP_SECONDS as SWEEP_SECONDS
from jobs.worker_process import is_running
from leap_core.conversation.options import GenerationOptions
from leap_core.models.builtin import model_path
from leap_core.system.locks import locked
from leap_core.system.processes import start_time

from . import processes
from .torture import ROOT
from .waiting import until

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


def test_only_one_worker_runs_per_directory(jobs, leap_home):
    from jobs.worker_process import start_worker

    first = jobs.start_worker()["pid"]
    for _ in range(3):
        start_worker(jobs.configuration)
    until(lambda: processes.named(leap_home, "jobs.worker") == [first])
    assert jobs.worker()["pid"] == first


def test_a_second_worker_waits_and_ends_with_the_first(leap_home, monkeypatch):
    """It was started while the first was not seen yet, and would stay behind when that one is stopped."""
    monkeypatch.setattr("jobs.worker.worker.LOCK_SECONDS", 60.0)
    second = Worker(JobsConfiguration.from_environment())
    with locked(second.configuration.worker_lock):
        second.configuration.worker_state.write_text("{}", encoding="utf-8")
        thread = threading.Thread(target=second.run)
        thread.start()
        until(lambda: second._met_another)
        second.configuration.worker_state.unlink()  # as a worker does before it gives the lock back
    thread.join(60)
    try:
        assert not thread.is_alive()
    finally:
        second.stop.set()
        thread.join()


def test_a_worker_that_starts_after_the_last_job_ends(leap_home):
    """It was started while another one came up slowly, and would stay when that one has been stopped."""
    from jobs.worker_process import start_worker

    with JobsClient(autostart=False) as jobs:
        jobs.cancel(jobs.generate("Hi"))
        start_worker(jobs.configuration, for_jobs=True)
        until(lambda: processes.of_home(leap_home))
        until(lambda: not processes.of_home(leap_home))
        jobs.start_worker()
        assert jobs.stop_worker()


def test_a_worker_started_after_one_that_was_killed_stays(leap_home, monkeypatch):
    """The killed one left its state file, and whoever asks whether a worker runs holds the lock for a moment."""
    monkeypatch.setattr("jobs.worker.worker.LOCK_SECONDS", 60.0)
    worker = Worker(JobsConfiguration.from_environment())
    thread = threading.Thread(target=worker.run)
    with locked(worker.configuration.worker_lock):
        worker.configuration.worker_state.write_text('{"pid": 1}', encoding="utf-8")
        thread.start()
        until(lambda: worker._met_another)
    try:
        until(lambda: json.loads(worker.configuration.worker_state.read_text(encoding="utf-8"))["pid"] == os.getpid())
        assert thread.is_alive()
    finally:
        worker.stop.set()
        thread.join()


def test_a_worker_that_was_killed_is_not_named_as_the_one_that_runs(leap_home, monkeypatch):
    """Another one holds the lock already, and has not written its state yet."""
    configuration = JobsConfiguration.from_environment()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as killed:
        dead = {"pid": killed.pid, "process": start_time(killed.pid), "started": 1.0}
    mine = {"pid": os.getpid(), "process": start_time(os.getpid()), "started": 2.0}
    configuration.worker_state.parent.mkdir(parents=True, exist_ok=True)
    configuration.worker_state.write_text(json.dumps(dead), encoding="utf-8")
    monkeypatch.setattr(worker_process, "is_running", lambda _: True)
    keeper = worker_process.WorkerKeeper(configuration, os.environ)
    assert keeper.describe() | {"log": ""} == {"running": True, "pid": None, "started": None, "log": ""}
    states = iter([dead, mine])
    monkeypatch.setattr(keeper, "_state", lambda: next(states))
    assert keeper.start()["pid"] == os.getpid()


def test_a_foreground_worker_stays_without_work(jobs, leap_home):
    leap_home.mkdir(parents=True, exist_ok=True)
    (leap_home / "config.toml").write_text("[jobs]\nidle_minutes = 0.001\n")
    command = [sys.executable, "-m", "leap_cli", "jobs", "worker", "--foreground"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as worker:
        until(lambda: is_running(jobs.configuration))
        time.sleep(2.5 * SWEEP_SECONDS)
        assert worker.poll() is None
        worker.terminate()


def heed_hangups() -> None:
    """Where this suite was started by nohup they are ignored, and a child would inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal")
def test_a_closed_terminal_requeues_the_jobs_of_its_worker(leap_home):
    with JobsClient(autostart=False) as jobs:
        command = [sys.executable, "-m", "leap_cli", "jobs", "worker", "--foreground"]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, preexec_fn=heed_hangups) as worker:
            until(lambda: is_running(jobs.configuration))
            id = jobs.generate("Hi", options=GenerationOptions(max_tokens=4000, regex_constraint="[a-z ]{9000}"))
            until(lambda: jobs.get(id).progress)
            worker.send_signal(signal.SIGHUP)
            assert worker.wait(100) == 0
        assert jobs.get(id).state is State.QUEUED
        jobs.cancel(id)
    until(lambda: not processes.of_home(leap_home))


def test_a_worker_without_work_ends_by_itself_and_leaves_no_lock(jobs, leap_home):
    leap_home.mkdir(parents=True, exist_ok=True)
    (leap_home / "config.toml").write_text("[jobs]\nidle_minutes = 0.001\n")
    id = jobs.generate("Hi", options=GenerationOptions(max_tokens=2))
    jobs.wait(id)
    until(lambda: not is_running(jobs.configuration))
    assert not jobs.configuration.worker_state.exists()
    again = jobs.generate("Hi", options=GenerationOptions(max_tokens=2))
    assert jobs.wait(again).state is State.SUCCEEDED


def test_asking_after_a_worker_was_killed_starts_another(jobs, leap_home):
    (id,) = jobs.table.add([NewJob("generate", {"model": "builtin", "messages": [{"role": "user", "content": "Hi"}]})])
    jobs.ensure_worker_for_unfinished()
    assert not is_running(jobs.configuration), "a worker that was stopped stays so"
    jobs.configuration.worker_state.parent.mkdir(parents=True, exist_ok=True)
    jobs.configuration.worker_state.write_text(
        '{"pid": 1}', encoding="utf-8"
    )  # which only one that was killed leaves behind
    jobs.ensure_worker_for_unfinished()
    until(lambda: jobs.table.get(id).state is State.SUCCEEDED)


def test_a_worker_whose_directory_is_removed_ends(jobs, leap_home):
    jobs.start_worker()
    jobs.table.close()

    def removed() -> bool:  # the worker may be writing there
        shutil.rmtree(leap_home, ignore_errors=True)
        return not leap_home.exists()

    until(removed)
    until(lambda: not processes.of_home(leap_home))
    jobs.__init__()
