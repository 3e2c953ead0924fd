"""Where the jobs of one data directory live, and what config.toml sets for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from leap_core.configuration import IDLE_MINUTES, JOBS_AT_ONCE, read_job_settings
from leap_core.storage.directories import Directories


@dataclass(frozen=True)
class JobsConfiguration:
    """Paths and settings. ``queue_url`` None means the SQLite file ``queue`` in the data directory. ``concurrency``:
    jobs of each kind that run at once. ``idle_seconds``: how long a worker without work stays."""

    directories: Directories
    queue_url: str | None = None
    concurrency: Mapping[str, int] = field(default_factory=lambda: dict(JOBS_AT_ONCE))
    idle_seconds: float = IDLE_MINUTES * 60.0

    @staticmethod
    def from_environment(variables: Mapping[str, str] | None = None) -> JobsConfiguration:
        """The configuration that these variables (the process's own when None) lead to. Raises LeapSerializationError
        for a config.toml that cannot be used."""
        directories = Directories.from_environment(variables)
        settings = read_job_settings(directories.config_file)
        return JobsConfiguration(directories, settings.queue_url, settings.at_once, settings.idle_minutes * 60.0)

    @property
    def table(self) -> Path:
        """The SQLite file of the table of jobs."""
        return self.directories.data / "jobs.db"

    @property
    def queue(self) -> Path:
        """The SQLite file of the queues."""
        return self.directories.data / "queue.db"

    @property
    def inputs(self) -> Path:
        """The directory of inputs that are kept for jobs."""
        return self.directories.data / "batches"

    @property
    def worker_lock(self) -> Path:
        """Held by the worker as long as it lives."""
        return self.directories.run / "worker.lock"

    @property
    def worker_state(self) -> Path:
        """JSON: the worker's pid, start and version. A worker that is killed leaves it behind."""
        return self.directories.run / "worker.json"

    @property
    def worker_log(self) -> Path:
        return self.directories.logs / "worker.log"
