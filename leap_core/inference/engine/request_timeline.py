"""How one request goes: what it waited for, and what of its prompt was in memory, noted as it happens."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...system.dataclass import dataclass
from .threads import usable_cores

if TYPE_CHECKING:
    from array import array

    from ...conversation.generator import PromptProgress

MOST_THREADS = 32
"""In a process with more of them it is not looked up how long they waited for a processor."""
LEAST_COMPUTED = 0.2
"""Seconds of computing, from which on it says something how long the threads waited."""
LOOK_AGAIN = 0.25
"""Seconds for which a look at all threads counts: it takes a millisecond, as much as twenty tokens in a crowd."""
_looked: tuple[float, tuple[float, float] | None] = (-LOOK_AGAIN, None)


RUN, STRIDE = 8, 8
"""Two prompts are alike where so many tokens in a row are the same; every STRIDE-th run of the earlier one is tried."""
_FACTORS = np.random.default_rng(8).integers(1 << 62, size=RUN, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def runs_of(keys: array[int], stride: int = 1) -> list[int]:
    """A hash of the RUN keys from every ``stride``-th position on."""
    if len(keys) < RUN:
        return []
    windows = sliding_window_view(np.frombuffer(keys, np.uint64), RUN)[::stride]
    return cast("list[int]", (windows @ _FACTORS).tolist())


@dataclass(frozen=True)
class Computed:
    """The keys of the positions of an earlier request, prompt and answer, and the variant that computed them."""

    keys: array[int]
    variant: bytes

    @cached_property
    def runs(self) -> list[int]:
        """Those from every STRIDE-th position on."""
        return runs_of(self.keys, STRIDE)


class Course:
    """Notes of one request. The scheduler's thread writes."""

    def __init__(self) -> None:
        self.running = self.waiting = self.ahead_tokens = 0
        self.queued: float | None = None
        """Seconds until it got its first slot."""
        self.in_slots = 0
        self.prefix_since: float | None = None
        self.prefix_seconds = 0.0
        """How long another request read what both begin with, while there was a slot."""
        self.earlier: tuple[Computed, ...] = ()
        self._processors, self._begun = _processor_seconds(), time.perf_counter()

    def note_queue(self, running: int, waiting: int, reading: Sequence[PromptProgress]) -> None:
        """These were there when the request came."""
        self.running, self.waiting = running, waiting
        self.ahead_tokens = sum(each.total - each.processed for each in reading)

    def note_prefix(self, now: float) -> None:
        """There is a slot, and another request reads what both begin with."""
        self.prefix_since = now if self.prefix_since is None else self.prefix_since
        self.prefix_seconds = now - self.prefix_since

    def note_start(self, queued: float, earlier: tuple[Computed, ...], in_slots: int) -> None:
        """It gets its first slot after so many seconds; ``in_slots``: positions of its prompt that slots hold."""
        if self.queued is None:
            self.queued, self.earlier, self.in_slots = queued, earlier, in_slots

    def waited_for_processors(self) -> float | None:
        """The share of the time that threads wanted a processor that other processes had; None where that is not
        known."""
        begun, ended = self._processors, _processor_seconds()
        if begun is None or ended is None or ended[0] - begun[0] < LEAST_COMPUTED:
            return None
        offered = usable_cores() * (time.perf_counter() - self._begun)
        return share_lost(ended[0] - begun[0], max(0.0, ended[1] - begun[1]), offered)


def share_lost(computed: float, waited: float, offered: float) -> float:
    """The share of the time that threads lost to other processes: they ``computed`` and ``waited`` for a processor for
    so many seconds, while the processors ``offered`` so many. Seconds that the process got itself were not lost, also
    where its threads waited for each other."""
    return min(waited / (computed + waited), max(0.0, 1.0 - computed / offered))


def _processor_seconds() -> tuple[float, float] | None:
    """How long this process's threads have computed, and waited for a processor, as of lately; None where that is not
    known."""
    global _looked
    now = time.monotonic()
    if now - _looked[0] >= LOOK_AGAIN:
        _looked = (now, _look())
    return _looked[1]


def _look() -> tuple[float, float] | None:
    computed = waited = 0
    with suppress(OSError, ValueError):
        threads = os.listdir("/proc/self/task")
        for thread in threads if len(threads) <= MOST_THREADS else ():
            with suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/schedstat") as file:
                parts = file.read().split()
                computed, waited = computed + int(parts[0]), waited + int(parts[1])
    return (computed / 1e9, waited / 1e9) if computed else None
