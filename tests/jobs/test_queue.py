"""The queues: what a message is, and which queues there are."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jobs.configuration import JobsConfiguration
from jobs.queue import Queues, message_id
from leap_core.errors import LeapError, LeapSerializationError, LeapUnavailableError


def test_messages_are_json_of_an_id_and_an_attempt(tmp_path):
    queues = Queues(tmp_path / "queue.db")
    queues.send([("job1", 1, "generate", 0), ("job2", 3, "batch", 5)])
    assert queues.pending() == {message_id("job1", 1), "job2.3"}
    queues.send([(f"many{n}", 1, "download", n) for n in range(3)])
    assert [task.id for task in queues._hueys["download"].pending()] == ["many2.1", "many1.1", "many0.1"]
    queues.close()
    with closing(sqlite3.connect(tmp_path / "queue.db")) as connection:
        rows = connection.execute(
            "SELECT queue, data, priority FROM task WHERE queue <> 'leap-download' ORDER BY id"
        ).fetchall()
    assert [(queue, priority) for queue, _, priority in rows] == [("leap-generate", 0), ("leap-batch", 5)]
    message = json.loads(rows[1][1])
    assert message[:2] == ["job2.3", "jobs.leap-batch"] and ["job2", 3] in message


def test_a_pickle_in_the_queue_runs_nothing(tmp_path):
    queues = Queues(tmp_path / "queue.db")
    huey = queues._hueys["generate"]
    with pytest.raises(ValueError):
        huey.serializer.deserialize(b"\x80\x04\x95\x1b\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins")
    queues.close()


def test_urls_of_queues(tmp_path):
    Queues(tmp_path / "unused.db", f"sqlite:///{tmp_path / 'other.db'}").close()
    assert (tmp_path / "other.db").exists() and not (tmp_path / "unused.db").exists()
    with pytest.raises(LeapSerializationError, match="queue_url"):
        Queues(tmp_path / "queue.db", "amqp://somewhere")
    with pytest.raises(LeapUnavailableError, match="cannot be opened"):
        Queues(tmp_path / "no" / "such" / "queue.db")


def test_a_file_that_is_no_queue_is_not_touched_and_named(tmp_path):
    notes = tmp_path / "mynotes.txt"
    notes.write_text("precious, " * 100)
    with pytest.raises(LeapUnavailableError, match="mynotes.txt cannot be used: file is not a database"):
        Queues(tmp_path / "queue.db", f"sqlite:///{notes}")
    assert notes.read_text() == "precious, " * 100


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_file_that_is_no_queue_is_closed_again(tmp_path):
    notes = tmp_path / "mynotes.txt"
    notes.write_text("precious, " * 100)
    with pytest.raises(LeapUnavailableError) as refused:
        Queues(tmp_path / "queue.db", f"sqlite:///{notes}")
    files = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    assert str(notes) not in files, refused


def test_relative_files_lie_in_the_data_directory(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    Queues(tmp_path / "data" / "queue.db", "sqlite:///q.db").close()
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("q.db")] == ["data/q.db"]


@pytest.mark.skipif(importlib.util.find_spec("redis") is not None, reason="redis is installed")
def test_a_queue_whose_package_is_missing_says_so(tmp_path):
    with pytest.raises(LeapUnavailableError, match="redis"):
        Queues(tmp_path / "queue.db", "redis://localhost")


def test_the_configuration_of_jobs(leap_home):
    leap_home.mkdir(parents=True)
    assert JobsConfiguration.from_environment().concurrency == {
        "download": 2,
        "generate": 4,
        "batch": 1,
        "quantize": 1,
        "command": 4,
    }
    config = leap_home / "config.toml"
    config.write_text('queue_url = "sqlite:////x.db"\n[jobs]\nbatch = 3\nidle_minutes = 0.5\n')
    configuration = JobsConfiguration.from_environment()
    assert (configuration.queue_url, configuration.concurrency["batch"], configuration.idle_seconds) == (
        "sqlite:////x.db",
        3,
        30.0,
    )
    for wrong in (
        "[jobs]\nbatch = 0",
        "[jobs]\nbatch = true",
        "jobs = 1",
        "queue_url = 3",
        "x = ",
        "[jobs]\nidle_minutes = -1",
    ):
        config.write_text(wrong)
        with pytest.raises(LeapError, match="config.toml"):
            JobsConfiguration.from_environment()
