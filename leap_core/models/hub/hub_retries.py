"""Retries: how often, after how long, and when to give up."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TypeVar

from ...errors import LeapModelDownloadError

Value = TypeVar("Value")

RETRIES = 5
RETRIES_UNREACHABLE = 1
"""A host that has never answered is tried so often again: this machine is probably offline."""
FIRST_DELAY = 0.5
LONGEST_DELAY = 20.0
LONGEST_RETRY_AFTER = 300.0
"""Seconds. A server that wants more is not waited for."""


class Retryable(Exception):
    """A failure that may pass: the connection broke, or the server asked for patience (``after`` in seconds).

    ``unreachable``: there was no connection at all, so at first contact there is little hope.
    """

    def __init__(self, reason: str, after: float | None = None, *, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.after = after
        self.unreachable = unreachable


class DownloadStopped(LeapModelDownloadError):
    """The download was stopped on request. What has arrived is kept, and the next one goes on from there."""

    def __init__(self) -> None:
        super().__init__("the download was stopped", hint="the same command goes on from where it stopped")


class RetryPolicy:
    """Allows ``retries`` failures in a row, each after twice the delay of the one before; progress resets the count.

    ``stop`` ends every wait with DownloadStopped. ``on_wait(reason, seconds)`` hears of each.
    ``hint``: what to do when it gives up.
    """

    def __init__(
        self,
        stop: threading.Event,
        *,
        retries: int = RETRIES,
        first_delay: float = FIRST_DELAY,
        on_wait: Callable[[str, float], object] | None = None,
        hint: str = "what has arrived is kept; run the same command again later",
    ) -> None:
        self.stop = stop
        self.hint = hint
        self.retries = retries
        self.first_delay = first_delay
        self._on_wait = on_wait
        self._failures = 0
        self._ever_progressed = False
        self._guard = threading.Lock()

    def progressed(self) -> None:
        """Resets the count of failures: something has arrived."""
        self._failures = 0
        self._ever_progressed = True

    def failed(self, error: Retryable) -> None:
        """Waits before the next attempt. Raises LeapModelDownloadError after the last one."""
        if self.stop.is_set():  # the error is that of a connection which was cut to stop it
            raise DownloadStopped
        with self._guard:
            self._failures += 1
            failures = self._failures
        after = error.after
        hopeless = error.unreachable and not self._ever_progressed
        allowed = min(self.retries, RETRIES_UNREACHABLE) if hopeless else self.retries
        if failures > allowed or (after is not None and after > LONGEST_RETRY_AFTER):
            instructions = (
                f", and wants us to wait {after:.0f} s" if after is not None and after > LONGEST_RETRY_AFTER else ""
            )
            tries = f" ({failures} attempts)" if failures > 1 else ""
            raise LeapModelDownloadError(f"{error}{instructions}{tries}", hint=self.hint)
        backoff = min(self.first_delay * 2 ** (failures - 1), LONGEST_DELAY)
        delay = after if after is not None else backoff * random.uniform(0.8, 1.2)
        if self._on_wait is not None:
            self._on_wait(str(error), delay)
        if self.stop.wait(delay):
            raise DownloadStopped

    def run(self, action: Callable[[], Value]) -> Value:
        """Repeats ``action`` until it succeeds or has failed too often."""
        while True:
            if self.stop.is_set():
                raise DownloadStopped
            try:
                value = action()
            except Retryable as error:
                self.failed(error)
            else:
                self.progressed()
                return value
