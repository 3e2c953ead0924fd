"""How much of the waiting prompts is read beside running answers: what they are promised is a time."""

from __future__ import annotations

LONG_STEP = 32
"""Positions in a step from which on it reads prompts."""
PROMISE = 0.3
"""Seconds that a running answer waits for a chunk of a prompt."""
PROMISE_IN_A_CROWD = 1.5
"""The same while a third of the requests or more are read: they came together, and the sooner all are read, the larger
are the steps in which all are answered."""
UNTIL_KNOWN = 128
"""Positions of a chunk before any was timed."""


class PromptPace:
    """Times the steps that read prompts, and says how long the next may be."""

    def __init__(self) -> None:
        self._speed: float | None = None

    def observe(self, positions: int, seconds: float) -> None:
        """Take note of a step of so many positions."""
        if positions <= LONG_STEP or seconds <= 0:
            return
        speed = positions / seconds
        self._speed = speed if self._speed is None else self._speed + (speed - self._speed) * 0.3

    def most_positions(self, answering: int, reading: int, batch_size: int) -> int:
        """Prompt positions of a step in which ``answering`` requests wait for their next token and ``reading`` for
        their first."""
        if not answering:
            return batch_size
        if self._speed is None:
            return min(batch_size, UNTIL_KNOWN)
        promise = PROMISE_IN_A_CROWD if 2 * reading >= answering else PROMISE
        return max(LONG_STEP, min(batch_size, int(self._speed * promise)))
