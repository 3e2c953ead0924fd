"""When a request to an endpoint is sent again, and after what wait."""

from __future__ import annotations

import asyncio
import random
import time

from ...errors import LeapEndpointError, LeapError
from ...system.dataclass import dataclass
from ...system.http import backoff
from .errors import Refusal


@dataclass(frozen=True)
class Patience:
    """Times in seconds. ``retries`` of a request that failed, each after about twice the wait of the one before;
    ``held_back``: most that a request waits altogether where the server asks for it (429). ``connect`` and ``silence``
    end a wait for the connection, and for the next byte."""

    retries: int = 3
    first_wait: float = 0.5
    longest_wait: float = 20.0
    held_back: float = 600.0
    connect: float = 10.0
    silence: float = 300.0

    def wait(self, failures: int) -> float:
        """The wait after so many failures."""
        return backoff(failures, self.first_wait, self.longest_wait)


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


class Retries:
    """One request's tries: how often it was sent and failed, and whether it may be sent again."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._held_until = time.monotonic() + patience.held_back
        self._failures = 0
        self.tries = 0
        self.of_schema: LeapError | None = None
        """With what the endpoint refused the schema, which was then written in another way."""

    def held_back(self, refusal: Refusal, error: LeapError) -> float:
        """Seconds that the endpoint wants to be left alone (status 429). Raises ``error`` when that is too long."""
        self._failures += 1
        wait = refusal.after if refusal.after is not None else self._patience.wait(self._failures)
        if time.monotonic() + wait > self._held_until:
            raise error from None
        return wait

    def wait(self, error: LeapError, after: float | None, *, has_begun: bool) -> float:
        """Seconds until the next try. ``after``: what the endpoint says; ``has_begun``: a part of the answer was
        handed over. Raises ``error`` where no other try may follow."""
        self._failures += 1
        again = isinstance(error, LeapEndpointError) and error.may_pass
        if not again or has_begun or self._failures > self._patience.retries:
            raise error
        if after is not None and after > self._patience.held_back:
            raise error
        return self._patience.wait(self._failures) if after is None else after
