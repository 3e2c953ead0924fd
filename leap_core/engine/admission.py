"""Giving waiting requests a slot, with as much of their prompt already in it as can be had."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from .prompt_segments import common_prefix
from .request import Request
from .reuse.sequence_slots import Slot, SlotMemory, checkpoints_for
from .reuse.snapshots import SnapshotStore

WORTH_WAITING = 32
"""Positions from which on it pays to wait for another request that is computing the same prefix."""
WORTH_KEEPING = 64
"""Positions from which on what an idle slot holds is kept in memory before the slot is used for something else."""


class Admission:
    """Chooses slots. ``eog_tokens`` mark positions at which an earlier process may have left a snapshot."""

    def __init__(self, memory: SlotMemory, snapshots: SnapshotStore, eog_tokens: frozenset[int]) -> None:
        self._memory = memory
        self._snapshots = snapshots
        self._eog = eog_tokens

    def admit(self, waiting: deque[Request], ticks: Iterator[int]) -> None:
        """Start as many waiting requests as there are free slots, in order; one that would compute what a running
        request is just computing lets the others pass."""
        for request in list(waiting):
            idle = [slot for slot in self._memory.slots if slot.request is None]
            if not idle:
                return
            source, position = (None, 0) if request.prompt_recorder is not None else self._best_source(request)
            if self._should_wait(request, position):
                continue
            waiting.remove(request)
            fork = self._fork(request, position)
            slot = self._prepare(request, idle, source, position)
            slot.request, slot.variant = request, request.variant
            slot.last_used = next(ticks)
            start = len(slot.keys)
            if not request.generated:
                request.cached = start
            if self._memory.needs_checkpoints or self._snapshots.on_disk:
                due = checkpoints_for(request.prompt, start)
                request.checkpoints_due = due if fork <= start else sorted({*due, fork})

    def _best_source(self, request: Request) -> tuple[Slot | None, int]:
        best: Slot | None = None
        most = 0
        for slot in self._memory.slots:
            position = self._memory.reusable(slot, request)
            # An idle slot that ends there is continued in place, which keeps other slots' contents.
            if position > most or (position == most > 0 and best and best.request and not slot.request):
                best, most = slot, position
        return best, most

    def _fork(self, request: Request, position: int) -> int:
        """Where the request leaves what a slot holds, far beyond what that slot can provide: the next request that
        begins so is spared the way there. 0 for nowhere."""
        if not self._memory.needs_checkpoints or request.prompt_recorder is not None:
            return 0
        alike = [slot.keys for slot in self._memory.slots if slot.variant == request.variant]
        most = max((common_prefix(keys, request.target) for keys in alike), default=0)
        return most if most - position >= WORTH_WAITING and most < len(request.prompt) else 0

    def _should_wait(self, request: Request, position: int) -> bool:
        if request.prompt_recorder is not None:  # it reads nothing that another one computed
            return False
        for slot in self._memory.slots:
            other = slot.request
            if other is None or other.variant != request.variant or len(slot.keys) >= len(other.prompt):
                continue
            shared = min(common_prefix(other.target, request.target), len(request.target) - 1)
            if shared <= len(slot.keys) or shared - position < WORTH_WAITING:
                continue
            due = [p for p in other.checkpoints_due if p <= shared]
            if self._memory.needs_checkpoints and (not due or shared - due[-1] >= WORTH_WAITING):
                other.checkpoints_due = sorted({*other.checkpoints_due, shared} - {len(other.prompt)})
            return True
        return False

    def _prepare(self, request: Request, idle: list[Slot], source: Slot | None, position: int) -> Slot:
        """An idle slot that holds as much of the prompt as possible."""
        stored = None if request.prompt_recorder is not None else self._stored(request, position)
        if stored is not None:
            length, state = stored
            slot = self._take(idle, keep=source)
            if self._memory.load(slot, request.target[:length], request.variant, state):
                return slot
        if source is None or position == 0:
            slot = self._take(idle)
            self._memory.clear(slot)
            return slot
        if source.request is None and (len(idle) == 1 or position * 2 >= len(source.keys)):
            self._memory.cut(source, position)
            return source
        slot = self._take(idle, keep=source)
        self._memory.share(source, slot, position)
        return slot

    def _stored(self, request: Request, position: int) -> tuple[int, bytes] | None:
        """The longest snapshot of the prompt beyond ``position``: (positions, state)."""
        keys = request.target
        ends = [n for n, key in enumerate(keys) if key in self._eog and n > 0]
        limit = len(keys) - 1
        places = [p for p in (*request.prompt.boundaries, *ends) if p <= limit]
        return next(self._snapshots.find(keys, places, request.variant, above=position), None)

    def _take(self, idle: list[Slot], keep: Slot | None = None) -> Slot:
        """The idle slot that was used longest ago; what it held is remembered if that is worth it."""
        slot = min((s for s in idle if s is not keep or len(idle) == 1), key=lambda s: (bool(s.keys), s.last_used))
        if self._snapshots.enabled and len(slot.keys) >= WORTH_KEEPING:
            state = self._memory.whole_state(slot)
            if state is not None:
                self._snapshots.keep_in_memory(slot.keys, state, slot.variant)
        return slot
