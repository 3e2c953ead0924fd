"""Fetches models that jobs on a server wait for and this machine lacks, where its settings allow that."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from leap_core.addresses import without_secrets_of
from leap_core.errors import LeapError
from leap_core.models.download.by_digest import fetch_by_digest
from leap_core.models.hub.hub_retries import DownloadStopped

from .worker_log import log, log_traceback

AGAIN_SECONDS = 600.0
"""How long a model is left alone that could not be fetched."""


class ModelFetching:
    """Fetches one model at a time, in a thread. ``fetched`` is called there after each."""

    def __init__(self, fetched: Callable[[], object]) -> None:
        self._fetched = fetched
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._not_before: dict[str, float] = {}

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, lacking: Sequence[tuple[str, str]]) -> None:
        """Fetch the first of these models, (SHA-256, origin), unless one is being fetched."""
        now = time.monotonic()
        due = [each for each in lacking if self._not_before.get(each[0], now) <= now]
        if due and not self.is_busy and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, args=due[0], name="leap-fetch-model", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Give up; what has arrived stays, and a later download goes on from there."""
        self._stop.set()

    def _run(self, digest: str, origin: str) -> None:
        self._not_before[digest] = time.monotonic() + AGAIN_SECONDS
        try:
            fetch_by_digest(digest, origin, os.environ, stop=self._stop, on_begin=_log_beginning)
            del self._not_before[digest]
        except DownloadStopped:
            return
        except (LeapError, ValueError, OSError) as error:
            reason = without_secrets_of(origin, str(error))
            log(f"the model {digest[:12]}, which jobs wait for, is not fetched: {reason}")
        except Exception:
            log_traceback()
        self._fetched()


def _log_beginning(name: str) -> None:
    log(f"fetching {name}, which jobs wait for")
