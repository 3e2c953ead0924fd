"""The password of a server is written nowhere: not in messages, logs, command lines, rows or unit files."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.service_files import unit_file
from jobs.table.job import NewJob, State
from jobs.table.postgres import PostgresDatabase, without_secrets
from jobs.table.postgres_schema import VERSION
from jobs.table.table import Table
from leap_cli.display.jobs import doing
from leap_core.conversation.options import GenerationOptions
from leap_core.models.builtin import model_path
from tests.support.lengths import lengths

from . import processes
from .machines import Machine
from .waiting import until

SECRET, PROMPT = "geheim", "parrots of Peru"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet")
@lengths(False, True, "waits")
def test_a_password_and_a_prompt_are_written_only_where_needed(own_postgres, tmp_path, leap, monkeypatch, waits):
    """``waits``: until the worker has noticed, after half a minute, that its server is gone."""
    monkeypatch.setattr("jobs.table.postgres.FIRST_RETRY_SECONDS", 1.0)
    url = own_postgres.get_uri().replace("postgres:@", f"postgres:{SECRET}@")
    assert SECRET in url
    machine = Machine(tmp_path / "machine", url)
    leap.variables.update(LEAP_JOBS_URL=url, LEAP_HOME=str(machine.home))
    told: list[str] = []

    def run(*arguments: str) -> str:
        done = leap(*arguments)
        told.extend((done.stdout, done.stderr))
        return done.stdout

    try:
        machine.start()
        with machine.client() as jobs:
            id = jobs.generate(PROMPT, options=GenerationOptions(max_tokens=2))
            assert jobs.wait(id, 60).state is State.SUCCEEDED
            rows = [str(jobs.table.database.rows(f"SELECT * FROM {name}")) for name in ("jobs", "workers", "events")]
        told += processes.of_home(machine.home).values()
        in_json = ["config", "get", "jobs_url", "--format", "json"]  # as text it is the value itself
        for arguments in (["doctor"], ["config", "list"], in_json, ["jobs", "workers"]):
            run(*arguments)
        assert f"LEAP_JOBS_URL={without_secrets(url)}" in run("jobs", "worker", "--print-unit")
        run("jobs", "worker", "--print-unit", "launchd")
        own_postgres.stop()
        if waits:
            until(lambda: machine.log)
        run("doctor")
    finally:
        own_postgres.start()
        machine.stop()
    logs = [path.read_text() for path in (machine.home / "logs").iterdir()]
    assert any(logs) >= waits and not [text for text in (*told, *rows, *logs) if SECRET in text]
    assert not [text for text in logs if PROMPT in text], "prompts stay in the database"
    shutil.rmtree(machine.home)


def test_shown_addresses_keep_what_is_not_secret():
    address = "postgresql://me:a@db/jobs?sslmode=verify-full&password=b&sslrootcert=/ca.pem&sslpassword=c"
    assert without_secrets(address) == "postgresql://me@db/jobs?sslmode=verify-full&sslrootcert=/ca.pem"
    assert without_secrets("postgresql://db/jobs") == "postgresql://db/jobs"
    unit = unit_file("systemd", None, "second", address)
    assert "sslmode=verify-full" in unit and "EnvironmentFile=" in unit and "me:" not in unit
    assert "EnvironmentFile" not in unit_file("systemd", None)
    assert "<string>postgresql://db/jobs</string>" in unit_file("launchd", "/h", None, "postgresql://db/jobs")


def test_the_remainder_of_a_batch_is_reported(tmp_path: Path):
    with Table(tmp_path / "jobs.db") as table:
        (id,) = table.add([NewJob("batch", {"label": "x"})])
        job = table.get(id)
    assert job is not None
    progress = {"done": 30, "total": 120, "unit": "lines", "eta": 90.0}
    running = replace(job, state=State.RUNNING, progress=progress)
    assert doing(running) == f"{id} batch running 30 of 120 lines (1m 30s left)"
    assert doing(job) == f"{id} batch queued"


def test_doctor_checks_the_server_and_its_clock(jobs_url, leap, monkeypatch):
    leap.variables["LEAP_JOBS_URL"] = jobs_url

    def checks() -> dict[str, dict[str, object]]:
        return {check["check"]: check for check in json.loads(leap("doctor", "--format", "json").stdout)}

    sound = checks()
    assert sound["jobs' server"]["state"] == "ok" and sound["jobs' server"]["facts"]["schema"] == VERSION
    assert (sound["workers"]["state"], sound["workers"]["detail"]) == ("warning", "none is alive")
    facts = PostgresDatabase.server_facts
    monkeypatch.setattr(PostgresDatabase, "server_facts", lambda self: facts(self) | {"clock_lead_seconds": 90.0})
    late = checks()["jobs' server"]
    assert late["state"] == "warning" and "differs from this machine's by +90 s" in late["detail"]


def test_tls_options_are_those_of_libpq(leap):
    """The parameter reaches libpq, which refuses it; a server is not needed for that."""
    leap.variables["LEAP_JOBS_URL"] = "postgresql://127.0.0.1:9/db?sslmode=never-heard-of"
    done = leap("jobs", "list")
    assert done.code == 10 and "sslmode" in done.stderr
