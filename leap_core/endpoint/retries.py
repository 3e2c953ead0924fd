"""When an endpoint is asked again, and when all are to leave it alone for a while."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """Times in seconds. ``retries`` of a request that failed, each after about twice the wait of the one before;
    ``held_back``: most that a request waits altogether where it is told to (429). ``connect`` and ``silence`` end a
    wait for the connection, and for the next byte."""

    retries: int = 3
    first_wait: float = 0.5
    longest_wait: float = 20.0
    held_back: float = 600.0
    connect: float = 10.0
    silence: float = 300.0

    def wait(self, failures: int) -> float:
        """The wait after so many failures."""
        return min(self.first_wait * float(2 ** (failures - 1)), self.longest_wait) * random.uniform(0.75, 1.25)


class HoldBack:
    """Until when no request is sent, because the endpoint asked for that: one for all requests of a runner. Used from
    its event loop only."""

    def __init__(self) -> None:
        self._until = 0.0

    def extend(self, seconds: float) -> None:
        """Leave the endpoint alone for so long from now on."""
        self._until = max(self._until, time.monotonic() + seconds)

    async def over(self) -> None:
        """Wait until requests may be sent, not all in the same moment."""
        while (rest := self._until - time.monotonic()) > 0:
            await asyncio.sleep(rest + random.uniform(0, min(rest, 1.0) / 4))
