"""How fast requests are sent: at most so many, and so many tokens, a minute."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

WINDOW = 60.0


@dataclass
class Pace:
    """Limits of one minute, None where there is none. Tokens of an answer are known when it has come, so its request
    was allowed by those before it."""

    requests: int | None = None
    tokens: int | None = None
    window: float = WINDOW
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _sent: deque[float] = field(default_factory=deque, repr=False)
    _spent: deque[tuple[float, int]] = field(default_factory=deque, repr=False)

    def wait(self, leaving: threading.Event) -> bool:
        """Wait until one more request may be sent; False when ``leaving`` was set meanwhile."""
        while True:
            with self._guard:
                rest = self._rest(time.monotonic())
                if rest <= 0:
                    if self.requests is not None:
                        self._sent.append(time.monotonic())
                    return True
            if leaving.wait(min(rest, 1.0)):
                return False

    def spend(self, tokens: int) -> None:
        """Count the tokens of a request and its answer."""
        if self.tokens is not None:
            with self._guard:
                self._spent.append((time.monotonic(), tokens))

    def _rest(self, now: float) -> float:
        """Seconds until the limits allow one more request."""
        while self._sent and now - self._sent[0] >= self.window:
            self._sent.popleft()
        while self._spent and now - self._spent[0][0] >= self.window:
            self._spent.popleft()
        rest = 0.0
        if self.requests is not None and len(self._sent) >= self.requests:
            rest = self._sent[0] + self.window - now
        if self.tokens is not None and sum(count for _, count in self._spent) >= self.tokens:
            rest = max(rest, self._spent[0][0] + self.window - now)
        return rest
