"""Where the jobs of one data directory live, and how they are set up by config.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from leap_core.configuration import IDLE_MINUTES, JOBS_AT_ONCE, read_job_settings
from leap_core.storage.directories import Directories


@dataclass(frozen=True)
class Places:
    """Paths and settings. ``queue_url`` None means the SQLite file ``queue`` in the data directory."""

    directories: Directories
    queue_url: str | None = None
    concurrency: Mapping[str, int] = field(default_factory=lambda: dict(JOBS_AT_ONCE))
    idle_seconds: float = IDLE_MINUTES * 60.0

    @staticmethod
    def from_environment(variables: Mapping[str, str] | None = None) -> Places:
        """The places that these variables (the process's own when None) lead to. Raises LeapSerializationError for a
        configuration that cannot be used."""
        directories = Directories.from_environment(variables)
        settings = read_job_settings(directories.config_file)
        return Places(directories, settings.queue_url, settings.at_once, settings.idle_minutes * 60.0)

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

