"""How fast a model has been lately."""

from __future__ import annotations

import time
from collections import deque

LATELY_SECONDS = 60.0


class Throughput:
    """Tokens of all answers, over the time in which at least one was being generated. Used from one thread."""

    def __init__(self) -> None:
        self.total = 0
        """Tokens of all answers so far."""
        self._answers = 0
        self._busy_since = 0.0
        self._tokens = 0
        self._past: deque[tuple[float, float, int]] = deque()

    def begin(self) -> None:
        """An answer began to come."""
        if self._answers == 0:
            self._busy_since, self._tokens = time.monotonic(), 0
        self._answers += 1

    def add(self, tokens: int) -> None:
        """Some tokens came."""
        self._tokens += tokens
        self.total += tokens

    def end(self) -> None:
        """An answer ended."""
        self._answers -= 1
        if self._answers == 0:
            now = time.monotonic()
            self._past.append((now, now - self._busy_since, self._tokens))
            self._forget(now)

    def tokens_per_second(self) -> float | None:
        """Over the last minute; over the last answers where that was quiet, and None before the first."""
        now = time.monotonic()
        self._forget(now)
        seconds = sum(length for _, length, _ in self._past)
        tokens = sum(count for _, _, count in self._past)
        if self._answers:
            seconds, tokens = seconds + now - self._busy_since, tokens + self._tokens
        return tokens / seconds if tokens and seconds > 0 else None

    def _forget(self, now: float) -> None:
        while len(self._past) > 1 and self._past[0][0] < now - LATELY_SECONDS:
            self._past.popleft()
