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
from dataclasses import field, replace
from pathlib import Path

from leap_core.errors import LeapOptionsError, LeapSerializationError
from leap_core.system.configuration import POSTGRESQL, JobSettings, read_job_settings
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


DEFAULTS = JobSettings()


@dataclass(frozen=True)
class JobsConfiguration:
    """Paths and settings. ``jobs_url``: the PostgreSQL server of table and queue; None means the SQLite files of the
    data directory. ``concurrency``: jobs of each kind that run at once. ``idle_seconds``: how long a worker without
    work stays. ``lease_seconds``: how long a claim on a server holds without a sign of life. ``fetch_models``: the
    worker fetches models that jobs on a server need. ``keep_output_days``: how long the output of jobs that ended is
    kept, 0 means as long as they. ``name``: of the worker, where several run in one data directory. ``webhook``: where
    messages about jobs go; ``webhook_secret`` signs them."""

    directories: Directories
    concurrency: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULTS.at_once))
    idle_seconds: float = DEFAULTS.idle_minutes * 60.0
    jobs_url: str | None = None
    lease_seconds: float = DEFAULTS.lease_seconds
    name: str = DEFAULT_NAME
    fetch_models: bool = False
    keep_output_days: float = DEFAULTS.keep_output_days
    webhook: str | None = None
    webhook_secret: str | None = None

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
        idle = settings.idle_minutes * 60.0
        if url is not None and not settings.idle_minutes_is_set:
            idle = math.inf  # clients of other machines cannot start it again
        return JobsConfiguration(
            directories=directories,
            concurrency=settings.at_once,
            idle_seconds=idle,
            jobs_url=url,
            lease_seconds=settings.lease_seconds,
            name=name,
            fetch_models=settings.fetch_models,
            keep_output_days=settings.keep_output_days,
            webhook=settings.webhook,
            webhook_secret=settings.webhook_secret,
        )

    def named(self, name: str) -> JobsConfiguration:
        """The same for another worker of this data directory."""
        return replace(self, name=name)

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
