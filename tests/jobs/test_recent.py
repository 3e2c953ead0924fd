"""A quick look at the table of jobs, as TAB has it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from jobs.table import recent
from jobs.table.job import NewJob, State
from jobs.table.table import Table

from .torture import ROOT


def complete(url: str) -> list[str]:
    """What TAB offers after ``leap jobs cancel``."""
    variables = {**os.environ, "LEAP_JOBS_URL": url, "_LEAP_COMPLETE": "bash", "_LEAP_LINE": "leap jobs cancel "}
    command = [sys.executable, "-m", "leap_cli"]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60, check=True)
    return [line.split("\t")[1] for line in done.stdout.splitlines() if line.startswith("plain")]


def test_the_newest_jobs_of_a_state_are_listed_with_labels(place, monkeypatch):
    monkeypatch.setattr(recent, "SERVER_SECONDS", 60.0)
    with Table(place) as table:
        parameters = {"label": 'say "ä"\\', "messages": ["x" * 10_000]}
        first, second = (table.add([NewJob("generate", parameters)])[0] for _ in range(2))
        table.request_cancel(first)
    assert [(job.id, job.state, job.label) for job in recent.newest(place)] == [
        (second, "queued", 'say "ä"\\'),
        (first, "cancelled", 'say "ä"\\'),
    ]
    assert [job.id for job in recent.newest(place, [State.CANCELLED.value])] == [first]


def test_ids_are_completed_over_a_server_without_waiting_for_an_unreachable_one(jobs_url, leap_home):
    pytest.importorskip("psycopg")
    with Table(jobs_url) as table:
        ids = list(table.add([NewJob("generate", {"label": "x"})] * 3))
    assert complete(jobs_url) in (ids[::-1], [])  # a busy machine may be too slow for TAB
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert complete(f"postgresql://127.0.0.1:{silent.getsockname()[1]}/jobs") == []
    assert complete("postgresql://127.0.0.1:9/jobs") == [] == complete(jobs_url.replace("leap_", "none_"))
