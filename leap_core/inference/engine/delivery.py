"""When the readers of answers get what was generated."""

from __future__ import annotations

import time
from collections.abc import Sequence

from .compute_loop import compute_loop
from .slots import Slot

CROWD = 8
"""Answers at once from which on tokens are delivered several at a time."""
DELIVERY_SECONDS = 0.02
"""Between two deliveries then: each wakes the thread of each reader."""
SECONDS_PER_READER = 0.0006
"""Between two deliveries for each reader, so that waking them takes no more than some tenth of the time."""
LONGEST_DELIVERY_SECONDS = 0.05
"""Between two deliveries at most: a text that grows twenty times a second seems to grow all the time."""


class Delivery:
    """Hands new tokens to the readers of the answers in some slots: in a crowd not after every step."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, slots: Sequence[Slot], *, at_once: bool = False) -> None:
        now = time.perf_counter()
        pause = max(DELIVERY_SECONDS, min(LONGEST_DELIVERY_SECONDS, SECONDS_PER_READER * len(slots)))
        if at_once or len(slots) < CROWD or compute_loop.is_shared or now >= self._last + pause:
            self._last = now
            for slot in slots:
                if slot.request is not None:
                    slot.request.deliver()
