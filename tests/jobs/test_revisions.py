"""Leap is updated while a worker of the revision before runs: the newer one takes its place, the older steps back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jobs import worker_process
from jobs.client import JobsClient
from jobs.configuration import JobsConfiguration
from jobs.table import claims
from jobs.table import row_reading as reading
from jobs.table.job import GENERATE, NewJob, State, WorkerIdentity
from jobs.table.table import Table
from jobs.worker_process import is_running
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapError
from leap_core.models.builtin import model_path

from . import processes
from .torture import ROOT
from .waiting import until

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]
OLDER = (
    "from jobs import worker_process; worker_process.REVISION[-1] -= 1; from jobs.worker.worker import main; main([])"
)


@pytest.fixture
def older(leap_home):
    """A worker of an older leap."""
    with JobsClient(autostart=False) as jobs, subprocess.Popen([sys.executable, "-c", OLDER], cwd=ROOT) as worker:
        until(lambda: is_running(jobs.configuration) and jobs.worker()["pid"])
        yield worker
        worker.terminate()
        worker.wait()

        def ended() -> bool:  # the one that takes its place may just be coming up
            jobs.stop_worker()
            return not processes.of_home(leap_home)

        until(ended)


def test_a_wait_ends_though_a_worker_of_an_older_leap_runs(older):
    with JobsClient() as jobs:
        id = jobs.generate("Hi", options=GenerationOptions(max_tokens=2))
        assert jobs.wait(id, 60).state is State.SUCCEEDED
        until(lambda: older.poll() is not None)


def test_starting_a_worker_ends_one_of_an_older_leap_and_its_jobs_are_done(older):
    with JobsClient(autostart=False) as jobs:
        options = GenerationOptions(max_tokens=2000, regex_constraint="[a-z ]{9000}")
        id = jobs.generate("Hi", options=options)
        until(lambda: jobs.get(id).progress)
        assert jobs.start_worker()["pid"] != older.pid
        assert older.wait(30) == 0
        until(lambda: jobs.get(id).state.is_final or jobs.get(id).attempt == 2)  # it may end while the worker drains
        jobs.cancel(id)


def test_an_older_worker_that_ends_while_one_looks_is_not_the_new_one(leap_home, monkeypatch):
    older, newer = {"pid": 1, "revision": [0]}, {"pid": 2, "revision": worker_process.REVISION}
    states = iter([older, older, older, {}, newer])
    keeper = worker_process.WorkerKeeper(JobsConfiguration.from_environment(os.environ), os.environ)
    monkeypatch.setattr(keeper, "_state", lambda: next(states, newer))
    monkeypatch.setattr(worker_process, "is_running", lambda _configuration: True)
    monkeypatch.setattr(worker_process, "start_worker", lambda *_: None)
    assert keeper.start()["pid"] == 2


def test_starting_a_worker_ends_one_of_an_older_leap_that_has_nothing_to_do(older):
    with JobsClient(autostart=False) as jobs:
        started = jobs.start_worker()
        assert started["pid"] not in (None, older.pid) and older.wait(30) == 0
        assert jobs.worker()["pid"] == started["pid"]


def test_a_job_that_an_older_leap_stored_is_done_though_its_options_have_other_names_now(jobs):
    options = {"max_tokens": 40, "loop_stop": False, "finish_shape": True, "free_white_space": True}
    schema = {"json_schema_constraint": '{"type": "object", "properties": {"name": {"type": "string"}}}'}
    messages = [{"role": "user", "content": "Ada"}]
    for loading in ({"lookup": True}, {"exact": True}):
        stored = {"model": "builtin", "loading": loading, "options": {**options, **schema}, "messages": messages}
        (id,) = jobs.submit([NewJob(GENERATE, stored)])
        assert jobs.wait(id, 60).state is State.SUCCEEDED, jobs.get(id).error


def test_a_worker_of_an_older_leap_leaves_jobs_of_this_one_to_others(place, monkeypatch):
    with Table(place) as table:
        (id,) = table.add([NewJob(GENERATE, {})])
        worker = WorkerIdentity("w", "w", "machine")
        for module in (claims, reading):
            monkeypatch.setattr(module, "VERSION", worker_process.REVISION[-1] - 1)
        assert table.claim_next(GENERATE, worker) is None
        monkeypatch.undo()
        claimed = table.claim_next(GENERATE, worker)
        assert claimed is not None and claimed.id == id


def test_a_command_of_an_older_leap_leaves_a_newer_worker_alone(jobs, monkeypatch):
    pid = jobs.start_worker()["pid"]
    monkeypatch.setattr(worker_process, "REVISION", [0])
    assert jobs.start_worker()["pid"] == pid
    jobs.ensure_worker()
    assert jobs.worker()["pid"] == pid


def test_a_table_of_another_version_is_refused_and_stays(place):
    with Table(place) as table:
        (id,) = table.add([NewJob("generate", {})])
        database = table.database
        change = "UPDATE schema_version SET version=version+1" if database.is_shared else "PRAGMA user_version=99"
        database.change(change)
        with pytest.raises(LeapError, match="is of version .*, and this leap keeps version"):
            Table(place)
        assert table.get(id) is not None


def test_a_worker_without_a_state_is_not_of_an_older_leap():
    assert not worker_process.is_of_older_leap({})
