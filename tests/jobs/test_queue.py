"""The queue: what a message is, and where the queue is."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jobs.configuration import JobsConfiguration
from jobs.queue import WakeUpQueue
from jobs.table.job import KINDS
from leap_core.errors import LeapError, LeapUnavailableError


def test_messages_are_json_of_a_kind_an_id_and_an_attempt(tmp_path):
    queue = WakeUpQueue(tmp_path / "queue.db")
    queue.send([("job1", 1, "generate", 0), ("job2", 3, "batch", 5)])
    assert [tuple(each) for each in queue.pending()] == [("batch", "job2", 3), ("generate", "job1", 1)]
    queue.close()
    with closing(sqlite3.connect(tmp_path / "queue.db")) as connection:
        rows = connection.execute("SELECT queue, data, priority FROM task ORDER BY priority").fetchall()
    assert [(queue, priority) for queue, _, priority in rows] == [("leap", 0), ("leap", 5)]
    assert ["batch", "job2", 3] in json.loads(rows[1][1])


def test_many_jobs_of_a_kind_are_one_message(tmp_path):
    woken: list[str] = []
    queue = WakeUpQueue(tmp_path / "queue.db", wake=woken.append)
    queue.send([(f"many{n}", 1, "download", n) for n in range(1000)])
    assert [tuple(each) for each in queue.pending()] == [("download", "many0", 1)]
    queue.drain()
    assert woken == ["download"] and queue.pending() == []
    queue.close()


def test_a_flood_of_messages_becomes_one_query_for_every_kind(tmp_path):
    woken: list[str] = []
    queue = WakeUpQueue(tmp_path / "queue.db", wake=woken.append)
    for n in range(100):
        queue.send([(f"job{n}", 1, "generate", 0)])
    queue.drain()
    assert len(woken) < 100 and set(woken) == set(KINDS) and queue.pending() == []
    queue.close()


@pytest.mark.parametrize("message", [["nosuch", "id", 1], [["generate"], "id", 1]])
def test_a_message_without_a_kind_wakes_nothing(tmp_path, message):
    woken: list[str] = []
    queue = WakeUpQueue(tmp_path / "queue.db", wake=woken.append)
    queue.send([(message[1], message[2], "generate", 0)])
    with closing(sqlite3.connect(tmp_path / "queue.db")) as connection, connection:
        (data,) = connection.execute("SELECT data FROM task").fetchone()
        connection.execute("UPDATE task SET data=?", (data.replace(b'"generate"', json.dumps(message[0]).encode()),))
    queue.drain()
    assert woken == [] and queue.pending() == []
    queue.close()


def test_a_pickle_in_the_queue_runs_nothing(tmp_path):
    queue = WakeUpQueue(tmp_path / "queue.db")
    with pytest.raises(ValueError):
        queue._huey.serializer.deserialize(b"\x80\x04\x95\x1b\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins")
    queue.close()


def test_a_file_that_cannot_be_made_is_named(tmp_path):
    with pytest.raises(LeapUnavailableError, match="such/queue.db cannot be opened"):
        WakeUpQueue(tmp_path / "no" / "such" / "queue.db")


def test_psycopg_is_not_imported_and_can_be_afterwards():
    check = "import sys, jobs.queue; assert 'psycopg' not in sys.modules; import psycopg"
    pytest.importorskip("psycopg")
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_file_that_is_not_a_queue_is_recreated(tmp_path):
    place = tmp_path / "queue.db"
    place.write_text("no database, " * 100)
    WakeUpQueue(place).close()
    files = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    assert not [name for name in files if name.startswith(str(place))]


def test_the_configuration_of_jobs(leap_home):
    leap_home.mkdir(parents=True)
    assert JobsConfiguration.from_environment().concurrency == {
        "download": 2,
        "generate": 4,
        "transcribe": 4,
        "batch": 1,
        "function": 1,
        "command": 4,
    }
    config = leap_home / "config.toml"
    config.write_text("[jobs]\nbatch = 3\nidle_minutes = 0.5\n")
    configuration = JobsConfiguration.from_environment()
    assert (configuration.concurrency["batch"], configuration.idle_seconds) == (3, 30.0)
    for wrong in (
        "[jobs]\nbatch = 0",
        "[jobs]\nbatch = true",
        "jobs = 1",
        "jobs_url = 3",
        "x = ",
        "[jobs]\nidle_minutes = -1",
    ):
        config.write_text(wrong)
        with pytest.raises(LeapError, match="config.toml"):
            JobsConfiguration.from_environment()
