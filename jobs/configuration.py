"""Where the jobs of one data directory live, and how they are set up by config.toml.

queue_url = "sqlite:///queue.db"             # in the data directory; or redis://…, postgresql://…
[jobs]
download = 2                                 # at once, and so on for generate and batch
idle_minutes = 5                             # how long a worker without work stays
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from leap_core.errors import LeapSerializationError
from leap_core.storage.directories import Directories

from .table.job import BATCH, DOWNLOAD, GENERATE, KINDS

DEFAULT_CONCURRENCY = {DOWNLOAD: 2, GENERATE: 4, BATCH: 1}
MOST_CONCURRENCY = 64
IDLE_SECONDS = 300.0
SQLITE, REDIS, POSTGRESQL = "sqlite:///", ("redis://", "rediss://", "unix://"), ("postgresql://", "postgres://")
QUEUE_SCHEMES = (SQLITE, *REDIS, *POSTGRESQL)
"""What a ``queue_url`` may begin with."""


@dataclass(frozen=True)
class Places:
    """Paths and settings. ``queue_url`` None means the SQLite file ``queue`` in the data directory."""

    directories: Directories
    queue_url: str | None = None
    concurrency: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_CONCURRENCY))
    idle_seconds: float = IDLE_SECONDS

    @staticmethod
    def from_environment(variables: Mapping[str, str] | None = None) -> Places:
        """The places that these variables (the process's own when None) lead to. Raises LeapSerializationError for a
        configuration that cannot be used."""
        directories = Directories.from_environment(variables)
        settings = _read(directories.config_file)
        jobs = settings.get("jobs", {})
        path = directories.config_file
        if not isinstance(jobs, dict):
            raise LeapSerializationError("jobs must be a table", path=str(path))
        concurrency = {kind: jobs.get(kind, DEFAULT_CONCURRENCY[kind]) for kind in KINDS}
        for kind, count in concurrency.items():
            if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_CONCURRENCY:
                raise LeapSerializationError(f"jobs.{kind} must be 1 to {MOST_CONCURRENCY}", path=str(path))
        minutes = jobs.get("idle_minutes", IDLE_SECONDS / 60)
        if not isinstance(minutes, (int, float)) or isinstance(minutes, bool) or not minutes >= 0:
            raise LeapSerializationError("jobs.idle_minutes must be 0 or more", path=str(path))
        url = settings.get("queue_url")
        if url is not None and not isinstance(url, str):
            raise LeapSerializationError("queue_url must be a text", path=str(path))
        return Places(directories, url, concurrency, minutes * 60.0)

    @property
    def table(self) -> Path:
        return self.directories.data / "jobs.db"

    @property
    def queue(self) -> Path:
        return self.directories.data / "queue.db"

    @property
    def worker_lock(self) -> Path:
        return self.directories.run / "worker.lock"

    @property
    def worker_state(self) -> Path:
        return self.directories.run / "worker.json"

    @property
    def worker_log(self) -> Path:
        return self.directories.logs / "worker.log"


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise LeapSerializationError(f"cannot be read: {error}", path=str(path)) from None
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return dict(toml.loads(text))
    except ValueError as error:
        raise LeapSerializationError(str(error), path=str(path)) from None
