"""What each sequence of a context holds, how a prompt reuses it, which request gets which, and encoded media kept by
content.

LFM2's memory is hybrid: a KV cache that can be cut anywhere, and convolutions whose state cannot. So at the positions a
later prompt may return to, a *checkpoint* of the convolutions is kept (82 KB at 350M); restoring one and then cutting
the KV cache brings a slot back to that position. On a GPU checkpoints stay there, as far as there is space.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Keys
from typing import TYPE_CHECKING

from ..llama.context import LlamaContext
from .request import PromptTokens, Request, common_prefix

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from .snapshots import SnapshotStore

MOST_CHECKPOINTS = 64
LATEST_BOUNDARIES = 3
BOUNDARY_SPACING = 256
"""A long prompt gets checkpoints after its first message, its latest ones, and this many tokens apart: each costs a
decode that ends exactly there."""

SPACING_ON_GPU = 2048
"""The same on a GPU, and at least BOUNDARY_SPACING on one that computes so many tokens in more than SPACING_SECONDS:
against that the decodes between take little."""
SPACING_SECONDS = 0.15

PLACE_SPACING = 64
"""The same among the last BOUNDARY_SPACING tokens, where the question is."""
SHORT_QUESTION = 48
"""A question about a text that comes before it has at least about so many tokens, with what closes its message."""

LEAST_KEPT = 32
"""Positions that are computed anew as fast as a decode ends at a checkpoint among them."""

WORTH_WAITING = 32
"""Positions from which on it pays to wait for another request that is computing the same prefix."""
ROOM_OF_AN_ANSWER = 256
"""Cells that a request is to find for its answer where the others need all they can get."""
WORTH_KEEPING = 64
"""Positions from which on what an idle slot holds is kept in memory before the slot is used for something else."""


Checkpoint = bytes | int
"""A state of the recurrent layers: a copy, or the number of one that the context keeps."""


class Slot:
    """One llama.cpp sequence: the keys of the positions it holds, its checkpoints, and the request that uses it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.keys: list[int] = []
        self.variant = b""
        """The variant of the requests that computed the positions."""
        self.checkpoints: dict[int, Checkpoint] = {}
        self.request: Request | None = None
        self.last_used = 0


class SlotMemory:
    """All slots of a context, and the operations on what they hold."""

    def __init__(self, context: LlamaContext) -> None:
        self._context = context
        self._hybrid = context.model.is_hybrid
        self.on_gpu = context.model.on_gpu
        self.spacing = SPACING_ON_GPU
        """Positions between checkpoints of a long prompt on a GPU."""
        self.needs_checkpoints = self._hybrid
        self.slots = [Slot(index) for index in range(context.slots)]

    def reusable(self, slot: Slot, request: Request, least: int = 1) -> int:
        """How many positions of a request ``slot`` can provide, 0 where they are fewer than ``least``. The last one is
        always computed anew: its logits are wanted."""
        keys = request.target
        if slot.variant != request.variant or len(slot.keys) < least or slot.keys[least - 1] != keys[least - 1]:
            return 0
        shared = min(common_prefix(slot.keys, keys), len(keys) - 1)
        if shared < least:
            return 0
        shared = min(shared, self._context.in_order(slot.index))
        if not self._hybrid or shared == len(slot.keys):
            return max(0, shared) if self._context.sees(slot.index, shared) else 0
        return max((position for position in slot.checkpoints if position <= shared), default=0)

    def most_shared(self, request: Request) -> int:
        """Positions of a request that a slot holds, whether or not the slot can provide them."""
        alike = [slot.keys for slot in self.slots if slot.variant == request.variant]
        return max((common_prefix(keys, request.target) for keys in alike), default=0)

    def cut(self, slot: Slot, position: int) -> bool:
        """Bring a slot back to ``position``; False (and the slot empty) when llama.cpp refuses."""
        if position == len(slot.keys):
            return True
        state = slot.checkpoints.get(position)
        if position == 0 or (self._hybrid and state is None):
            self.clear(slot)
            return position == 0
        return self.roll_back(slot, position, state)

    def roll_back(self, slot: Slot, position: int, state: Checkpoint | None) -> bool:
        """Like ``cut``, with the state of the recurrent layers at ``position`` given (None where there are none)."""
        if isinstance(state, int):
            self._context.put_back(slot.index, state, position)
        else:
            sound = not self._hybrid or position == 0
            if state is not None:
                sound = self._context.restore(slot.index, state, positions=position, partial=True)
            if not (sound and self._context.truncate(slot.index, position)):
                self.clear(slot)
                return False
        del slot.keys[position:]
        self._set_checkpoints(slot, {p: s for p, s in slot.checkpoints.items() if p <= position})
        return True

    def share(self, source: Slot, target: Slot, position: int) -> bool:
        """Let ``target`` begin with the first ``position`` positions of ``source``, without computing or copying."""
        self._context.copy(source.index, target.index)
        target.keys, target.variant = list(source.keys), source.variant
        self._set_checkpoints(target, dict(source.checkpoints))
        return self.cut(target, position)

    def clear(self, slot: Slot) -> None:
        """Empty a slot."""
        self._context.forget(slot.index)
        slot.keys = []
        self._set_checkpoints(slot, {})

    def _set_checkpoints(self, slot: Slot, checkpoints: dict[int, Checkpoint]) -> None:
        """Replace the checkpoints of a slot. States that the context keeps for no slot any more are dropped."""
        before = {state for state in slot.checkpoints.values() if isinstance(state, int)}
        slot.checkpoints = checkpoints
        if before:
            held = {state for each in self.slots for state in each.checkpoints.values() if isinstance(state, int)}
            for state in before - held:
                self._context.drop_state(state)

    def free_cells(self, count: int, idle: Keys[Slot]) -> bool:
        """Whether there are so many free cells, once idle slots are emptied for it, the one used longest ago first."""
        for slot in sorted(idle, key=lambda slot: slot.last_used):
            if self._context.room >= count:
                return True
            self.clear(slot)
        return self._context.room >= count

    def pick_candidates(self, slot: Slot, request: Request) -> None:
        """Have the likeliest tokens of a request picked on the device, where they are all that it takes."""
        self._context.candidates.pick(slot.index, request.takes_candidates(self._context.candidates.most))

    def partial_state(self, slot: Slot) -> bytes | None:
        """The state that cannot be cut, or None for models that have none."""
        return self._context.save(slot.index, partial=True) if self._hybrid and slot.keys else None

    def checkpoint(self, slot: Slot) -> None:
        """Keep a checkpoint of a slot as it is. The first (the system prompt's) outlives the later ones."""
        if not (self._hybrid and slot.keys):
            return
        dropped = sorted(slot.checkpoints)[1] if len(slot.checkpoints) >= MOST_CHECKPOINTS else None
        dropped = len(slot.keys) if len(slot.keys) in slot.checkpoints else dropped
        self._set_checkpoints(slot, {p: s for p, s in slot.checkpoints.items() if p != dropped})
        kept = self._context.keep_state(slot.index)
        slot.checkpoints[len(slot.keys)] = self._context.save(slot.index, partial=True) if kept is None else kept

    def set_speed(self, speed: float) -> None:
        """A GPU reads so many positions of prompts a second."""
        spacing = SPACING_ON_GPU
        while spacing > max(BOUNDARY_SPACING, speed * SPACING_SECONDS):
            spacing //= 2  # so that wider places are also among the narrower ones
        self.spacing = spacing

    def whole_state(self, slot: Slot) -> bytes | None:
        """Everything a slot holds, for a snapshot; None where it is not what another computation would give."""
        if self._context.in_order(slot.index) < len(slot.keys):
            return None
        return self._context.save(slot.index, partial=False)

    def load(self, slot: Slot, keys: Keys[int], variant: bytes, state: bytes) -> bool:
        """Fill a slot from a snapshot of ``keys``; False (and the slot empty) when llama.cpp refuses it."""
        self.clear(slot)
        if not self._context.restore(slot.index, state, positions=len(keys), partial=False):
            self.clear(slot)
            return False
        slot.keys, slot.variant = list(keys), variant
        self.checkpoint(slot)
        return True


def checkpoints_for(
    prompt: PromptTokens, start: int, *, on_gpu: bool = False, spacing: int = SPACING_ON_GPU
) -> list[int]:
    """Where after ``start`` to keep checkpoints of a prompt: at ends of its messages, and in long ones at places that
    depend on nothing but the position, so that another question about the same text finds them."""
    if on_gpu:
        last = prompt.boundaries[-1:]
        kept = {*prompt.boundaries[:1], *last, *range(spacing, len(prompt), spacing)}
        return sorted(place for place in kept if max(start, LEAST_KEPT - 1) < place < len(prompt))
    boundaries = [b for b in prompt.boundaries if max(start, LEAST_KEPT - 1) < b < len(prompt)]
    kept = set(boundaries[-LATEST_BOUNDARIES:])
    kept.update(b for b in prompt.boundaries[:1] if b in boundaries)
    if len(prompt) > 2 * BOUNDARY_SPACING:
        kept.update(range(BOUNDARY_SPACING, len(prompt), BOUNDARY_SPACING))
        end = (len(prompt) - 1) // PLACE_SPACING * PLACE_SPACING
        kept.update(range(end, len(prompt) - BOUNDARY_SPACING, -PLACE_SPACING))
    return sorted(place for place in kept if place > start)


def disk_places(prompt: PromptTokens) -> list[int]:
    """Where a prompt is kept for other processes: after its first message, at a place before a question that may end
    it, and at its end but for the last position, which is always computed."""
    before = (len(prompt) - 1 - SHORT_QUESTION) // PLACE_SPACING * PLACE_SPACING
    places = {*prompt.boundaries[:1], before, len(prompt) - 1}
    return sorted(place for place in places if LEAST_KEPT <= place < len(prompt))


MOST_BYTES = 256 * 1024 * 1024
"""A picture of 256 tokens takes 1 MiB in a model of width 1,024, and 2 MiB in one of 2,048."""


class MediaCache:
    """Rows of embeddings by content key, least recently used first out beyond ``most_bytes``. Any thread may call."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._guard = threading.Lock()
        self._rows: OrderedDict[bytes, NDArray[float32]] = OrderedDict()
        self._bytes = 0
        self.encoded = 0
        """How many pictures or pieces of sound were encoded so far."""

    def find(self, key: bytes) -> NDArray[float32] | None:
        """The rows of a medium, or None."""
        with self._guard:
            rows = self._rows.get(key)
            if rows is not None:
                self._rows.move_to_end(key)
            return rows

    def keep(self, key: bytes, rows: NDArray[float32]) -> None:
        """Remember rows that were just encoded."""
        with self._guard:
            self.encoded += 1
            previous = self._rows.pop(key, None)
            self._bytes += rows.nbytes - (0 if previous is None else previous.nbytes)
            self._rows[key] = rows
            while self._bytes > self._most_bytes and self._rows:
                _, dropped = self._rows.popitem(last=False)
                self._bytes -= dropped.nbytes

    def __contains__(self, key: bytes) -> bool:
        with self._guard:
            return key in self._rows


class CachedRows:
    """The rows of one medium: from the cache, or by ``encode`` (which gets a number of threads). Once had, they stay
    as long as the prompt that needs them."""

    def __init__(self, cache: MediaCache, key: bytes, encode: Callable[[int], NDArray[float32]]) -> None:
        self._cache, self._key, self._encode = cache, key, encode
        self._rows: NDArray[float32] | None = None

    def find(self) -> NDArray[float32] | None:
        """The rows, unless they have to be encoded."""
        if self._rows is None:
            self._rows = self._cache.find(self._key)
        return self._rows

    def make(self, threads: int) -> NDArray[float32]:
        """Encode. In the compute thread."""
        rows = self.find()
        if rows is None:
            self._rows = rows = self._encode(threads)
            self._cache.keep(self._key, rows)
        return rows


class Admission:
    """Chooses slots. ``eog_tokens`` mark positions at which an earlier process may have left a snapshot."""

    def __init__(self, memory: SlotMemory, snapshots: SnapshotStore, eog_tokens: frozenset[int]) -> None:
        self._memory = memory
        self._snapshots = snapshots
        self._eog = eog_tokens

    def admit(
        self,
        ordered: Iterable[Request],
        ticks: Iterator[int],
        on_begin: Callable[[Request], object],
        room: int | None = None,
    ) -> None:
        """Start as many of these requests as there are free slots, in order; one that would compute what a running
        request is just computing lets the others pass. ``room``: start only those that need so many cells at most."""
        for request in ordered:
            if room is not None and len(request.target) + ROOM_OF_AN_ANSWER > room:
                continue
            idle = [slot for slot in self._memory.slots if slot.request is None]
            if not idle:
                return
            if request.held is not None:
                if not self._memory.free_cells(request.held.positions, idle) and len(idle) < len(self._memory.slots):
                    continue
                resumed = self._resumed(request, idle)
                if resumed is not None:
                    on_begin(request)
                    self._occupy(resumed, request, ticks)
                    continue
            source, position = self.source_of(request)
            if self._should_wait(request, position):
                request.course.note_prefix(time.perf_counter())
                continue
            on_begin(request)
            request.was_computed_anew = request.preempted > 0
            fork = self._fork(request, position)
            slot = self._prepare(request, idle, source, position)
            self._occupy(slot, request, ticks)
            start = len(slot.keys)
            if not request.generated and not request.preempted:
                request.cached = start
            if self._memory.needs_checkpoints or self._snapshots.on_disk:
                memory = self._memory
                due = []
                if memory.needs_checkpoints:
                    due = checkpoints_for(request.prompt, start, on_gpu=memory.on_gpu, spacing=memory.spacing)
                if self._snapshots.on_disk:
                    due = sorted({*due, *(place for place in disk_places(request.prompt) if place > start)})
                request.checkpoints_due = due if fork <= start else sorted({*due, fork})

    def _occupy(self, slot: Slot, request: Request, ticks: Iterator[int]) -> None:
        slot.request, slot.variant = request, request.variant
        self._memory.pick_candidates(slot, request)
        slot.last_used = next(ticks)

    def _resumed(self, request: Request, idle: list[Slot]) -> Slot | None:
        """An idle slot with what the request held when it was preempted; None where that is lost. Then the request is
        computed anew."""
        held, request.held = request.held, None
        assert held is not None
        slot = self._take(idle)
        state = self._snapshots.take(held)
        if state is None:
            return None
        loaded = self._memory.load(slot, request.target[: held.positions], request.variant, state)
        return slot if loaded else None

    def can_begin(self, request: Request) -> bool:
        """Whether a request would start if there were a free slot."""
        return request.held is not None or not self._should_wait(request, self.source_of(request)[1])

    def source_of(self, request: Request) -> tuple[Slot | None, int]:
        """The slot that provides most of a request, and how many positions."""
        return (None, 0) if request.prompt_recorder is not None else self._best_source(request)

    def _best_source(self, request: Request) -> tuple[Slot | None, int]:
        best: Slot | None = None
        most = 0
        for slot in self._memory.slots:
            # An idle slot that ends there is continued in place, which keeps other slots' contents.
            is_better = best is not None and best.request is not None and slot.request is None
            least = most if is_better else most + 1
            position = self._memory.reusable(slot, request, least)
            if position >= least:
                best, most = slot, position
        return best, most

    def _fork(self, request: Request, position: int) -> int:
        """Where the request leaves what a slot holds, far beyond what that slot can provide: the next request that
        begins so is spared the way there. 0 for nowhere."""
        if not self._memory.needs_checkpoints or request.prompt_recorder is not None:
            return 0
        most = self._memory.most_shared(request)
        return most if most - position >= WORTH_WAITING and most < len(request.prompt) else 0

    def _should_wait(self, request: Request, position: int) -> bool:
        if request.prompt_recorder is not None:  # it reads nothing that another one computed
            return False
        for slot in self._memory.slots:
            other = slot.request
            if other is None or other.variant != request.variant or len(slot.keys) >= len(other.prompt):
                continue
            shared = min(common_prefix(other.target, request.target), len(request.target) - 1)
            saved, awaited = shared - position, shared - len(slot.keys)
            if awaited <= 0 or saved < max(WORTH_WAITING, awaited):
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
        regular = range(PLACE_SPACING, limit, PLACE_SPACING) if self._snapshots.on_disk else ()
        places = [p for p in (*request.prompt.boundaries, *ends, *regular, limit) if p <= limit]
        return next(self._snapshots.find(keys, places, request.variant, above=position), None)

    def _take(self, idle: list[Slot], keep: Slot | None = None) -> Slot:
        """The idle slot that was used longest ago; what it held is remembered if that is worth it."""
        slot = min((s for s in idle if s is not keep or len(idle) == 1), key=lambda s: (bool(s.keys), s.last_used))
        if self._snapshots.enabled and len(slot.keys) >= WORTH_KEEPING:
            state = self._memory.whole_state(slot)
            if state is not None:
                self._snapshots.keep_in_memory(slot.keys, state, slot.variant)
        return slot
