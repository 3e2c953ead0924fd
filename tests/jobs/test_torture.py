"""The short form of the torture test, and eight who submit at once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter

import pytest

from jobs.client import JobsClient
from jobs.table.job import State
from leap_core.models.builtin import model_path
from tests.support.lengths import lengths

from .torture import ROOT, Torture
from .torture_machines import MachinesTorture

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

SUBMITTER = """
import sys
from jobs.client import JobsClient
from leap_core.conversation.options import GenerationOptions
with JobsClient() as jobs:
    for n in range(int(sys.argv[1])):
        print(jobs.generate(f"Say {n}.", options=GenerationOptions(max_tokens=1)), flush=True)
"""


@pytest.mark.long
def test_nothing_is_lost_or_duplicated_when_processes_are_killed(tmp_path):
    Torture(tmp_path / "torture", rounds=6, lines=60, seed=11).run()


@pytest.mark.long
def test_nothing_is_lost_or_duplicated_over_three_machines(own_postgres, tmp_path):
    MachinesTorture(tmp_path / "machines", own_postgres, acts=3, lines=36, generations=4, seed=3).run()


@lengths(3, 25, "each")
def test_eight_processes_can_submit_concurrently(leap_home, each):
    submitters = [
        subprocess.Popen([sys.executable, "-c", SUBMITTER, str(each)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    ids = [id for submitter in submitters for id in submitter.communicate(timeout=300)[0].split()]
    assert all(submitter.returncode == 0 for submitter in submitters)
    assert len(set(ids)) == len(ids) == 8 * each
    with JobsClient() as jobs:
        deadline = time.monotonic() + 300
        while jobs.table.unfinished() and time.monotonic() < deadline:
            jobs.ensure_worker()
            time.sleep(0.1)
        assert Counter(job.state for job in jobs.list()) == {State.SUCCEEDED: 8 * each}
        assert {job.attempt for job in jobs.list()} == {1}, "one was begun twice"
        assert all([e.value["type"] for e in jobs.events(id)].count("complete") == 1 for id in ids)
        jobs.stop_worker()
