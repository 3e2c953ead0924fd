"""What another version of leap has written: jobs that this one cannot read, and tables of another layout."""

from __future__ import annotations

import pytest

from jobs.table import claims
from jobs.table import row_reading as reading
from jobs.table.job import GENERATE, VERSION, NewJob, WorkerIdentity
from jobs.table.table import Table
from leap_core.errors import LeapError


def test_a_worker_leaves_jobs_of_a_newer_version_to_others(place, monkeypatch):
    with Table(place) as table:
        (id,) = table.add([NewJob(GENERATE, {})])
        worker = WorkerIdentity("w", "w", "machine")
        for module in (claims, reading):
            monkeypatch.setattr(module, "VERSION", VERSION - 1)
        assert table.claim_next(GENERATE, worker) is None
        monkeypatch.undo()
        claimed = table.claim_next(GENERATE, worker)
        assert claimed is not None and claimed.id == id


def test_a_table_of_another_version_is_refused_and_stays(place):
    with Table(place) as table:
        (id,) = table.add([NewJob("generate", {})])
        database = table.database
        change = "UPDATE schema_version SET version=version+1" if database.is_shared else "PRAGMA user_version=99"
        database.change(change)
        with pytest.raises(LeapError, match="is of version .*, and this leap keeps version"):
            Table(place)
        assert table.get(id) is not None
