"""A small disk, what others may read, and copies of data directories."""

from __future__ import annotations

import errno
import io
import json
import shutil

from jobs.configuration import JobsConfiguration
from jobs.queue import WakeUpQueue
from jobs.table.job import Claim, NewJob, WorkerIdentity
from jobs.table.table import Table
from jobs.worker_log import log


def test_the_write_ahead_log_leaves_room_on_a_small_disk(leap_home):
    """SQLite's own bound is 4 MB: on a disk of 3 the log took all the room, and a job stayed running for ever."""
    with Table(leap_home / "jobs.db", durable=False) as table:
        table.add([NewJob("generate", {"label": "x" * 2000})])
        job = table.claim_next("generate", WorkerIdentity("me", "me", "here"))
        claim = Claim(job.id, job.attempt, "me")
        for n in range(1500):
            table.write(claim, n, [{"type": "chunk", "text": "word"}], {"done": n})
        assert (leap_home / "jobs.db-wal").stat().st_size < 1_500_000


class FullDisk(io.StringIO):
    """A log on a disk without room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_report_lost_to_a_full_disk_is_written_the_next_time(monkeypatch, capfd):
    monkeypatch.setattr("jobs.worker_log._counts", {})
    with monkeypatch.context() as full:
        full.setattr("sys.stderr", FullDisk())
        log("no room")
    log("no room")
    assert "no room" in capfd.readouterr().err


def test_files_with_names_and_tracebacks_are_private(leap_home, leap, monkeypatch):
    leap_home.mkdir(parents=True)
    (leap_home / "queue.db").touch(0o644)
    WakeUpQueue(leap_home / "queue.db").close()
    assert (leap_home / "queue.db").stat().st_mode & 0o077 == 0
    leap.load_error = RuntimeError("a bug")
    assert "a bug in leap" in leap("generate", "hi").stderr
    (trace,) = (leap_home / "logs").glob("error-*.txt")
    assert trace.stat().st_mode & 0o077 == 0


def test_a_copied_data_directory_is_another_worker(leap_home, tmp_path):
    first = JobsConfiguration.from_environment()
    before = first.worker_id
    assert before == JobsConfiguration.from_environment().worker_id
    shutil.copytree(first.directories.data, tmp_path / "aside")
    shutil.rmtree(first.directories.data)
    (tmp_path / "holds-the-inode").mkdir()
    assert first.worker_id != before
    id_file = first.directories.data / "worker-id.json"
    assert id_file.stat().st_mode & 0o077 == 0
    shutil.copy(tmp_path / "aside" / "worker-id.json", id_file)
    assert first.worker_id not in (before, json.loads((tmp_path / "aside" / "worker-id.json").read_text())["id"])


def test_a_cloned_machine_is_another_worker(leap_home, monkeypatch):
    configuration = JobsConfiguration.from_environment()
    before = configuration.worker_id
    monkeypatch.setattr("uuid.getnode", lambda: 0x020000000001)
    assert configuration.worker_id != before
