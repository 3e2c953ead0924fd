"""What was announced and not yet read: each message once, in the order in which they came."""

from __future__ import annotations

import threading
from collections.abc import Sequence


class Inbox:
    """Messages from one thread for another; a ``Changes`` that somebody else fills."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heard: dict[str, None] = {}

    def hear(self, message: str) -> None:
        with self._changed:
            self._heard[message] = None
            self._changed.notify_all()

    def wait(self, seconds: float) -> Sequence[str]:
        with self._changed:
            self._changed.wait_for(lambda: self._heard, seconds)
            heard, self._heard = list(self._heard), {}
        return heard

    def close(self) -> None:
        pass
