"""Where the jobs of one data directory live, and what config.toml sets for them."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import socket
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from leap_core.errors import LeapOptionsError, LeapSerializationError
from leap_core.system.configuration import POSTGRESQL, JobSettings, default_of, read_job_settings
from leap_core.system.dataclass import dataclass
from leap_core.system.directories import Directories, private_directory
from leap_core.system.files import replacing

FILE = "worker-id.json"
MULTICAST = 1 << 40
"""The bit of a hardware address that represents none: Python draws a random one in each process then."""


def identity_of(data: Path) -> str:
    """The name, made when it is asked for first. A copy gets another one: the file says which directory on which
    machine it was made for."""
    path = private_directory(data) / FILE
    place = [str(data.resolve()), data.stat().st_ino, _hardware()]
    with suppress(OSError, ValueError, KeyError, TypeError):
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["place"] == place:
            return str(value["id"])
    id = secrets.token_hex(8)
    with replacing(path, mode=0o600) as file:
        file.write(json.dumps({"id": id, "place": place}).encode())
    return id


def _hardware() -> int | None:
    node = uuid.getnode()
    return None if node & MULTICAST else node


JOBS_URL_VARIABLE = "LEAP_JOBS_URL"
DEFAULT_NAME = "worker"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class JobsConfiguration(JobSettings):
    """Settings and paths. ``name``: of the worker, where several run in one data directory."""

    directories: Directories
    name: str = DEFAULT_NAME

    @staticmethod
    def from_environment(variables: Mapping[str, str] | None = None, *, name: str = DEFAULT_NAME) -> JobsConfiguration:
        """The configuration that these variables (the process's own when None) lead to. Raises LeapSerializationError
        for a config.toml that cannot be used."""
        variables = os.environ if variables is None else variables
        directories = Directories.from_environment(variables)
        settings = read_job_settings(directories.config_file)
        url = variables.get(JOBS_URL_VARIABLE) or settings.jobs_url
        if url is not None and not url.startswith(POSTGRESQL):
            raise LeapSerializationError(f"it begins with none of {', '.join(POSTGRESQL)}", path="jobs_url")
        if NAME.fullmatch(name) is None:
            raise LeapOptionsError("name", f"{name!r} is not letters, digits, dots, dashes and underscores")
        return JobsConfiguration(**{**vars(settings), "jobs_url": url}, directories=directories, name=name)

    def named(self, name: str) -> JobsConfiguration:
        """The same for another worker of this data directory."""
        return replace(self, name=name)

    @property
    def idle_seconds(self) -> float:
        """How long a worker without work stays; one of a server for ever, which clients cannot start again."""
        if self.idle_minutes is not None:
            return self.idle_minutes * 60.0
        return math.inf if self.is_shared else float(default_of("jobs.idle_minutes")) * 60.0

    @property
    def is_shared(self) -> bool:
        """Whether the jobs lie on a server that other machines use too."""
        return self.jobs_url is not None

    @property
    def table(self) -> Path:
        """The SQLite file of the table of jobs."""
        return self.directories.jobs_file

    @property
    def table_place(self) -> Path | str:
        """Where the table of jobs is."""
        return self.table if self.jobs_url is None else self.jobs_url

    @property
    def queue(self) -> Path:
        """The SQLite file of the queue."""
        return self.directories.data / "queue.db"

    @property
    def inputs(self) -> Path:
        """The directory of inputs that are kept for jobs."""
        return self.directories.data / "batches"

    def keeps(self, path: Path) -> bool:
        """Whether a file is in ``inputs``, and is no link to another one."""
        return path.is_absolute() and path.resolve() == self.inputs.resolve() / path.name

    @property
    def machine(self) -> str:
        """The name of this machine, as other machines see it in the table."""
        return socket.gethostname()

    @property
    def worker_id(self) -> str:
        """The lasting name of this worker: its machine, data directory and own name."""
        return f"{self.machine}:{identity_of(self.directories.data)}:{self.name}"

    @property
    def _stem(self) -> str:
        return self.name if self.name == DEFAULT_NAME else f"{DEFAULT_NAME}-{self.name}"

    @property
    def worker_lock(self) -> Path:
        """Held by the worker as long as it lives."""
        return self.directories.run / f"{self._stem}.lock"

    @property
    def worker_state(self) -> Path:
        """JSON: the worker's pid, start and version, written again each second. A worker that is killed leaves it."""
        return self.directories.run / f"{self._stem}.json"

    @property
    def worker_log(self) -> Path:
        return self.directories.logs / f"{self._stem}.log"
