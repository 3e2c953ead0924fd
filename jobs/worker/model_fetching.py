"""Fetches models that jobs on a server wait for and this machine lacks, where its settings allow that."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from leap_core.addresses import without_secrets_of
from leap_core.errors import LeapError, LeapModelDownloadError
from leap_core.models.download.downloading import Download
from leap_core.models.download.plan import DownloadPlan
from leap_core.models.hub.retries import DownloadStopped
from leap_core.models.installed.model_store import Store
from leap_core.models.references.digest_names import ModelDigests
from leap_core.models.references.origins import read_origin

from ..configuration import JobsConfiguration
from .log import log, log_traceback

AGAIN_SECONDS = 600.0
"""How long a model is left alone that could not be fetched."""


class ModelFetching:
    """Fetches one model at a time, in a thread. ``fetched`` is called there after each."""

    def __init__(self, configuration: JobsConfiguration, fetched: Callable[[], object]) -> None:
        self._directories, self._fetched = configuration.directories, fetched
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
            self._fetch(digest, origin)
            del self._not_before[digest]
        except DownloadStopped:
            return
        except (LeapError, ValueError, OSError) as error:
            reason = without_secrets_of(origin, str(error))
            log(f"the model {digest[:12]}, which jobs wait for, is not fetched: {reason}")
        except Exception:
            log_traceback()
        self._fetched()

    def _fetch(self, digest: str, origin: str) -> None:
        reference, quantization, revision = read_origin(origin)
        download = Download(stop=self._stop, variables={**os.environ}, cwd=self._directories.data)
        plan = download.plan(reference, quantization, revision)
        if plan is None:
            raise LeapModelDownloadError(f"{reference} is a file of another machine")
        self._check(plan, digest)
        log(f"fetching {plan.name}, which jobs wait for")
        model = download.run(reference, quantization, revision)
        if (found := ModelDigests(self._directories).of(model.path)) != digest:
            raise LeapModelDownloadError(f"{plan.name} has the SHA-256 {found} there")

    def _check(self, plan: DownloadPlan, digest: str) -> None:
        """Raises LeapModelDownloadError for what would not be the model, or would replace another one."""
        offered = plan.files[0].remote.sha256
        if offered not in (None, digest):
            raise LeapModelDownloadError(f"{plan.name} has the SHA-256 {offered} there")
        if any(model.name == plan.name and model.state == "ready" for model in Store.of(self._directories).installed()):
            raise LeapModelDownloadError(f"another file is here as {plan.name}")
