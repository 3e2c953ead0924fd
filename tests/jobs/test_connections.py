"""How many of a server's connections leap takes."""

from __future__ import annotations

import sys
import time

import pytest

from jobs.table.job import State
from leap_core.models.builtin import model_path

from .test_many_machines import ENDLESS, settings, source
from .waiting import until

OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname=current_database() AND application_name LIKE 'leap%'"


@pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet")
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_worker_and_a_command_use_one_connection_each(machines, jobs_url, tmp_path):
    import psycopg

    source(tmp_path, 40)
    worker, laptop = machines("worker"), machines("laptop")
    worker.start()
    most = 0
    with laptop.client() as jobs, psycopg.connect(jobs_url, autocommit=True) as observer:
        until(lambda: observer.execute(OPEN).fetchone() == (2,))
        endless = jobs.generate("Count.", options=ENDLESS)
        batch = jobs.batch(settings(tmp_path))
        while not (jobs.get(batch).state.is_final and jobs.events(endless)):
            most = max(most, observer.execute(OPEN).fetchone()[0])
            time.sleep(0.02)
        assert jobs.get(batch).state is State.SUCCEEDED, jobs.get(batch).error
        assert jobs.cancel(endless).state is State.CANCELLED
    assert most == 2, "the worker's, and this client's"
