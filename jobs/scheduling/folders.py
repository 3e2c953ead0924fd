"""Folders whose new files become jobs. A folder is a row that no worker runs. Its output has a row for each file that
was taken (attempt 0), and its log; both are written in the transaction that queues the file's job, so each file has one
job, whoever is killed when.

A file is taken once by name and content, when it has stopped growing. No two jobs of folders are to
write to one output, and none to a file that is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import count
from pathlib import Path

from leap_core.batch.journal.journal import journal_path
from leap_core.system.files import digest_file

from ..table.job import COMMAND, FOLDER, MALFORMED, Job, NewJob
from ..table.requests import PLACE, CommandRequest, FolderRequest, request_of
from ..table.store_protocol import Row
from ..table.table import Table, dumps, new_id
from ..worker_log import log

QUIET_SECONDS = 1.0
"""A file that looked the same for so long has stopped growing. Its own times may be wrong."""
MOST_AT_ONCE = 100
"""Files that are taken in one look into a folder, so that the worker's other work continues between."""
END_SECONDS = 60.0
"""Failures of jobs are looked for among those that ended so long before the last look."""

Look = tuple[int, int, int, int]
"""A file's size, times of its last write and last change in nanoseconds, and inode."""


class Folders:
    """Looks into the folders of ``table``; one a worker."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._folders: dict[tuple[str, int], _Folder] = {}

    def look(self) -> int:
        """Queue a job for each file that is new and whole; how many."""
        rows = self._table.database.rows(f"SELECT * FROM jobs WHERE state='queued' AND kind='{FOLDER}'")
        before, self._folders, taken = self._folders, {}, 0
        for row in rows:
            try:
                key = row["id"], row["attempt"]
                self._folders[key] = before.get(key) or _Folder(self._table, Job.of_row(row))
                taken += self._folders[key].look()
            except MALFORMED as error:
                self._table.refuse_row(row["id"], error)
        return taken


class _Folder:
    """What is known of a folder between two looks."""

    def __init__(self, table: Table, job: Job) -> None:
        self._table, self._job = table, job
        self._asked: FolderRequest = request_of(job)
        self._directory = Path(self._asked.directory)
        self._growing: dict[str, tuple[Look, float]] = {}
        """How files that may be growing look, and since when."""
        self._settled: dict[str, Look] = {}
        """How files look that need not be read again."""
        self._outputs: set[str] = set()
        """The files that its jobs write, or have written."""
        for row in self._jobs():
            self._outputs.update(request_of(Job.of_row(row)).writes)
        self._waiting: set[str] | None = None
        """The files that jobs of any folder are going to write; None where they must be read from the table."""
        self._failures_seen = 0.0

    def look(self) -> int:
        """Queue a job for each file that is new and whole; how many."""
        self._tell_failures()
        self._waiting = None
        growing, taken = dict[str, tuple[Look, float]](), 0
        try:
            names = [name for name in sorted(os.listdir(self._directory)) if not name.startswith(".")]
        except OSError as error:
            log(f"the folder {self._directory}: {error.strerror}")
            return 0
        for name in names:
            path = self._directory / name
            try:
                status = os.stat(path)
                look = status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
                now = time.monotonic()
                if self._settled.get(name) == look or not stat.S_ISREG(status.st_mode) or not self._fits(name):
                    continue
                before, since = self._growing.get(name, (look, now))
                growing[name] = (look, since if before == look else now)
                if now - growing[name][1] < QUIET_SECONDS or taken >= MOST_AT_ONCE:
                    continue
                taken += self._take(path, _number(name, path)) if self._is_of_folder(path) else 0
                self._settled[name] = look
            except OSError as error:  # removed meanwhile, or not to be read: looked at again
                log(f"{path}: {error.strerror}")
        self._growing = growing
        return taken

    def _fits(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self._asked.patterns)

    def _is_of_folder(self, path: Path) -> bool:
        """Whether a file lies in the folder and is no output of its jobs. One that a link leads out to is not taken."""
        place = os.path.realpath(path)
        if not place.startswith(os.path.join(os.path.realpath(self._directory), "")):
            self._tell(_number(f"link {path.name}"), f"{path.name} is a link that leads out of the folder: not taken")
            return False
        return place not in self._outputs and place not in map(_journal_of, self._outputs)

    def _take(self, path: Path, number: int) -> bool:
        """Queue the file's job, unless it has one."""
        job = self._job_of(path)

        def take() -> bool:
            id = new_id()
            if not self._tell(number, f"{path.name}: job {id}"):
                return False
            self._table.insert(id, job)
            return True

        is_new = self._table.database.transaction(take)
        if is_new:
            self._outputs.update(job.parameters["writes"])
        return is_new

    def _job_of(self, path: Path) -> NewJob:
        asked = self._asked
        values = {"{}": str(path), "{name}": path.name, "{stem}": path.stem}
        arguments = [PLACE.sub(lambda place: values[place[0]], each) for each in asked.arguments]
        written = {n: asked.arguments[n] for n in asked.outputs}
        if not any(PLACE.search(each) for n, each in enumerate(asked.arguments) if n not in written):
            arguments.append(str(path))
        for names in _names_of_outputs(written, values):
            writes = [os.path.realpath(asked.cwd / each.partition("=")[2]) for each in names.values()]
            if all(map(self._is_free, writes)):
                break
        arguments = [names.get(n, each) for n, each in enumerate(arguments)]
        of_file = CommandRequest(
            label=f"{arguments[0]} {path.name}",
            arguments=arguments,
            cwd=asked.cwd,
            variables=asked.variables,
            folder=self._job.id,
            file=path.name,
            writes=writes,
        )
        return NewJob(COMMAND, of_file.to_json(), retries=0)

    def _is_free(self, place: str) -> bool:
        """Whether no file is there, and no job of a folder writes it."""
        if self._waiting is None:
            rows = self._table.database.rows(
                f"SELECT parameters FROM jobs WHERE kind='{COMMAND}' AND state IN ('queued', 'running') "
                """AND parameters LIKE '%"writes":%'"""
            )
            self._waiting = {each for row in rows for each in json.loads(row["parameters"]).get("writes", ())}
        return place not in self._outputs and place not in self._waiting and not os.path.lexists(place)

    def _jobs(self, where: str = "", since: float = 0.0) -> Sequence[Row]:
        """The rows of the jobs of its files."""
        return self._table.database.rows(
            f"SELECT * FROM jobs WHERE kind='{COMMAND}' AND parameters LIKE :folder {where}",
            {"folder": f'%"folder":"{self._job.id}"%', "since": since},
        )

    def _tell_failures(self) -> None:
        since, self._failures_seen = self._failures_seen - END_SECONDS, time.time()
        for job in map(Job.of_row, self._jobs("AND state='failed' AND finished>=:since", since)):
            reason = (job.error or {}).get("message", "failed")
            file = request_of(job).file or job.label
            self._tell(_number(f"failed {job.id} {job.attempt}"), f"{file}: job {job.id} failed: {reason}")

    def _tell(self, number: int, message: str) -> bool:
        """Add a line to the folder's log, unless this number has one or the folder is no longer watched; whether it was
        added."""
        values = {"id": self._job.id, "attempt": self._job.attempt, "number": number}

        def tell() -> bool:
            rows = self._table.database.rows(
                "SELECT (SELECT COUNT(*) FROM events WHERE job=:id AND attempt=:attempt) AS lines FROM jobs "
                "WHERE id=:id AND state='queued' AND NOT EXISTS "
                "(SELECT 1 FROM events WHERE job=:id AND number=:number)",
                values,
            )
            text = dumps([{"type": "notice", "message": message}])
            for row in rows:
                for attempt, key, value in ((0, number, "[]"), (self._job.attempt, row["lines"], text)):
                    self._table.database.change(
                        "INSERT INTO events VALUES (:id, :attempt, :number, :value)",
                        {"id": self._job.id, "attempt": attempt, "number": key, "value": value},
                    )
            return bool(rows)

        return self._table.database.transaction(tell)


def _names_of_outputs(written: Mapping[int, str], values: Mapping[str, str]) -> Iterator[dict[int, str]]:
    """The options of outputs with names for a file, from the one that was asked for on: with the whole name of the file
    in the place of its stem, then with a number, too."""
    yield {n: PLACE.sub(lambda place: values[place[0]], each) for n, each in written.items()}
    whole = {**values, "{stem}": values["{name}"]}
    names = {n: PLACE.sub(lambda place: whole[place[0]], each) for n, each in written.items()}
    yield names
    for number in count(2):
        yield {n: f"-{number}".join(os.path.splitext(each)) for n, each in names.items()}


def _journal_of(output: str) -> str:
    """What a batch keeps beside its output."""
    return str(journal_path(Path(output)))


def _number(text: str, path: Path | None = None) -> int:
    """63 bits that name a text, such as a file's name, and the content of a file."""
    digest = hashlib.blake2b(os.fsencode(text) + b"\0", digest_size=8)
    if path is not None:
        digest_file(digest, path)
    return int.from_bytes(digest.digest(), "big") >> 1
