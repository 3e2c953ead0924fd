"""Starts the worker of a data directory, and finds out whether one runs."""

from __future__ import annotations

from collections.abc import Mapping

from leap_core.background.detached import open_log, start_detached
from leap_core.storage.directories import private_directory
from leap_core.storage.locks import is_locked

from ..configuration import JobsConfiguration


def is_running(configuration: JobsConfiguration) -> bool:
    """Whether a worker holds the lock of this data directory."""
    return is_locked(configuration.worker_lock, shared=True)


def start_worker(configuration: JobsConfiguration, variables: Mapping[str, str] | None = None) -> None:
    """Start a worker with the environment ``variables``. When one runs already, the new one ends by itself."""
    with open_log(configuration.worker_log) as log:
        directory = private_directory(configuration.directories.data)
        start_detached("jobs.worker", configuration.name, log=log, directory=directory, variables=variables)
