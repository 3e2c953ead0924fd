"""Folders whose new files become jobs. A folder is a row that no worker runs; what was taken from it is its output, a
row a file, written in the transaction that queues the file's job: so each file has one job, whoever is killed when.

A file is taken once by name and content, when it has stopped growing.
"""

from __future__ import annotations

import hashlib
import os
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from leap_core.schemas.json_values import JsonObject

from ..table.job import COMMAND, FOLDER, Job, NewJob
from ..table.table import Table, dumps, new_id
from .worker_log import log

QUIET_SECONDS = 1.0
"""A file that was not written to for so long, and looks the same twice, has stopped growing."""
PIECE = 1024 * 1024

Look = tuple[int, int]
"""A file's size, and when it was last written to, in nanoseconds."""


class Folders:
    """Looks into the folders of ``table``; one a worker."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._looks: dict[str, dict[str, Look]] = {}
        """By folder, the files that were growing when they were last looked at."""
        self._taken: dict[str, dict[str, Look]] = {}
        """By folder, those that need not be read again."""

    def look(self) -> int:
        """Queue a job for each file that is new and whole; how many."""
        rows = self._table.database.rows(f"SELECT * FROM jobs WHERE state='queued' AND kind='{FOLDER}'")
        return sum(self._look_into(Job.of_row(row)) for row in rows)

    def _look_into(self, folder: Job) -> int:
        directory, patterns = Path(folder.parameters["directory"]), folder.parameters["patterns"]
        before, taken = self._looks.get(folder.id, {}), self._taken.setdefault(folder.id, {})
        now: dict[str, Look] = {}
        count = 0
        try:
            names = [name for name in sorted(os.listdir(directory)) if not name.startswith(".")]
        except OSError as error:
            log(f"the folder {directory}: {error.strerror}")
            return 0
        for name in (each for each in names if any(fnmatch(each, pattern) for pattern in patterns)):
            path = directory / name
            try:
                status = os.stat(path)
                look = (status.st_size, status.st_mtime_ns)
                if taken.get(name) == look or not path.is_file():
                    continue
                if before.get(name) != look or time.time() - status.st_mtime < QUIET_SECONDS:
                    now[name] = look
                    continue
                number = _number(name, path)
            except OSError as error:  # removed meanwhile, or not to be read: looked at again
                log(f"{path}: {error.strerror}")
                continue
            count += self._take(folder, path, number)
            taken[name] = look
        self._looks[folder.id] = now
        return count

    def _take(self, folder: Job, path: Path, number: int) -> bool:
        """Queue the file's job, unless it has one."""
        job = _job_of(folder, path)

        def take() -> bool:
            id = new_id()
            told = [{"type": "notice", "message": f"{path.name}: job {id}"}]
            is_new = self._table.database.change(
                "INSERT INTO events VALUES (:folder, :attempt, :number, :value) "
                "ON CONFLICT (job, attempt, number) DO NOTHING",
                {"folder": folder.id, "attempt": folder.attempt, "number": number, "value": dumps(told)},
            )
            if is_new:
                self._table.insert(id, job)
            return bool(is_new)

        return self._table.database.transaction(take)


def _number(name: str, path: Path) -> int:
    """63 bits that name a file by its name and content."""
    digest = hashlib.blake2b(os.fsencode(name) + b"\0", digest_size=8)
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return int.from_bytes(digest.digest(), "big") >> 1


def _job_of(folder: Job, path: Path) -> NewJob:
    parameters: dict[str, Any] = folder.parameters
    places = {"{}": str(path), "{name}": path.name, "{stem}": path.stem}
    arguments = []
    for argument in parameters["arguments"]:
        for place, value in places.items():
            argument = argument.replace(place, value)
        arguments.append(argument)
    if arguments == parameters["arguments"]:
        arguments.append(str(path))
    values: JsonObject = {"label": f"{arguments[0]} {path.name}", "do": "leap", "arguments": arguments}
    values |= {"cwd": parameters["cwd"], "variables": parameters["variables"], "folder": folder.id}
    return NewJob(COMMAND, values, retries=0)
