"""A data directory with a worker on a PostgreSQL server: it stands for a machine."""

from __future__ import annotations

import os
from pathlib import Path

from jobs.client import JobsClient
from jobs.configuration import JobsConfiguration
from jobs.worker_process import WorkerKeeper

from . import processes
from .waiting import until


class Machine:
    """The machine whose data lie in ``home``, on the server at ``url``. ``settings``: lines of the table ``jobs``
    of its config.toml; ``variables``: of its environment, beside the test's."""

    def __init__(
        self, home: Path, url: str, lease: float = 4.0, settings: str = "", variables: dict[str, str] | None = None
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(f"[jobs]\nlease_seconds = {lease}\n{settings}")
        self.home = home
        self.variables = {**os.environ, **(variables or {}), "LEAP_HOME": str(home), "LEAP_JOBS_URL": url}
        self.configuration = JobsConfiguration.from_environment(self.variables)
        self.keeper = WorkerKeeper(self.configuration, self.variables)

    @property
    def log(self) -> str:
        path = self.configuration.worker_log
        return path.read_text() if path.exists() else ""

    def start(self) -> int:
        return int(self.keeper.start()["pid"])

    def stop(self) -> None:
        self.keeper.stop()
        until(lambda: not processes.of_home(self.home))

    def client(self, **given: object) -> JobsClient:
        return JobsClient(self.variables, **given)  # type: ignore[arg-type]
