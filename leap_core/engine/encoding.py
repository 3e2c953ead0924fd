"""When pictures and sound are encoded: one piece a step, between decodes, and never for longer than the others wait.

An encoding cannot be interrupted and takes as long as hundreds of tokens. So after each one, requests that are being
answered get as much time as it took before the next begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..errors import LeapError, LeapGenerationError
from .prompt_segments import Embeddings
from .reuse.sequence_slots import Slot

MOST_TURN_SECONDS = 2.0
"""That others get after one encoding."""


class Encoder:
    """Encodes what the prompts of running requests need next. ``threads`` gives how many to compute with."""

    def __init__(self, threads: Callable[[], int], clock: Callable[[], float] = time.perf_counter) -> None:
        self._threads = threads
        self._clock = clock
        self._next_time = 0.0

    def encode_next(self, running: list[Slot], fail: Callable[[Slot, LeapGenerationError], object]) -> list[Slot]:
        """Encode one medium if it is time; returns the slots that can take part in the next decode."""
        reading = [slot for slot in running if slot.request and slot.request.prompt.embedding_ranges]
        waiting = [slot for slot in reading if (medium := _next_medium(slot)) and medium.source.find() is None]
        if not waiting:
            return running
        ready = [slot for slot in running if slot not in waiting]
        if ready and self._clock() < self._next_time:
            return ready
        slot = min(waiting, key=lambda slot: slot.last_used)
        medium = _next_medium(slot)
        assert medium is not None
        start = self._clock()
        try:
            medium.source.make(self._threads())
        except LeapError as error:
            failure = error if isinstance(error, LeapGenerationError) else LeapGenerationError(error.message)
            fail(slot, failure)
            return ready
        except Exception as error:
            fail(slot, LeapGenerationError(f"encoding: {error}"))
            return ready
        now = self._clock()
        self._next_time = now + min(now - start, MOST_TURN_SECONDS)
        return [*ready, slot]


def _next_medium(slot: Slot) -> Embeddings | None:
    """The medium whose rows a slot has to read next."""
    assert slot.request is not None
    position = len(slot.keys)
    for start, end, segment in slot.request.prompt.embedding_ranges:
        if start <= position < end:
            return segment
    return None
