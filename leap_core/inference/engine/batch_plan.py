"""What one step decodes: chunks of prompts, next tokens, and media encoded between.

An encoding cannot be interrupted and takes as long as hundreds of tokens. So after each one, requests that are being
answered get as much time as it took before the next begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from ...conversation.priority import LEVELS
from ...errors import LeapError, LeapGenerationError
from ...system.dataclass import dataclass
from ..llama.context import MICRO_BATCH_ON_GPU, LlamaContext
from .request import Embeddings, Request
from .slots import Slot

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

LONG_STEP = 32
"""Positions in a step from which on it reads prompts."""
PROMISE = 0.25
"""Seconds that a chunk of a prompt takes at most beside other requests. So an answer waits less than 0.3 s for its next
token, and a short prompt, read in the step after, 0.5 s for its first."""
PROMISE_BESIDE_HIGHER = 0.1
"""The same for prompts of lower levels beside a request of level interactive."""
PROMISE_PAUSED = 0.5
"""The same for a prompt that is read alone while others wait or pause, or where nothing may interrupt it."""
PROMISE_ALONE = 2.0
"""The same for a prompt that is read alone. A request that arrives interrupts it, and at most this much is repeated."""
ATTENTION_TILE = 64
"""Positions of a chunk from which on llama.cpp computes the attention of f16 keys and values by tiles, which is faster.
A prompt that is read alone has chunks of so many where they take PROMISE_ALONE at most."""
LEAST_CHUNK = 4
"""Positions of a chunk beside other requests, however slow the machine."""
PAUSED_STEPS = 4
"""So many steps after one another are a short prompt's alone, while requests of lower levels pause."""
PAUSED_SECONDS = PAUSED_STEPS * PROMISE_PAUSED
"""A prompt that is read in so long is short."""
UNTIL_KNOWN = 128
"""Positions of a chunk before any was timed."""


class PromptPace:
    """Times the steps that read prompts, and says how long the next may be. ``on_gpu``: what a GPU computes at once
    takes it no longer than a part of that."""

    def __init__(self, *, on_gpu: bool = False) -> None:
        self._speed: float | None = None
        self._largest = self._first = MICRO_BATCH_ON_GPU if on_gpu else UNTIL_KNOWN
        """Half of the positions that a step may have: attention makes the positions of larger steps slower."""
        self._allowed = 0

    def observe(self, positions: int, seconds: float) -> None:
        """Take note of a step of so many positions."""
        if seconds <= 0 or (positions <= LONG_STEP and positions < self._allowed):
            return  # its length is not what takes its time
        self._largest = max(self._largest, positions) if seconds <= 2 * PROMISE_ALONE else positions // 4
        speed = positions / seconds
        self._speed = speed if self._speed is None else self._speed + (speed - self._speed) * 0.3

    def most_positions(self, promise: float, batch_size: int) -> int:
        """Prompt positions of a step that takes ``promise`` seconds at most."""
        is_alone = promise >= PROMISE_PAUSED
        if self._speed is None:
            self._allowed = min(batch_size, self._first if is_alone else LONG_STEP)
        else:
            most = min(batch_size, max(LONG_STEP, 2 * self._largest), int(self._speed * promise))
            is_tile = is_alone and min(batch_size, self._speed * PROMISE_ALONE) >= ATTENTION_TILE
            self._allowed = max(ATTENTION_TILE if is_tile else LONG_STEP + 1 if is_alone else LEAST_CHUNK, most)
        return self._allowed

    def seconds(self, positions: int) -> float:
        """How long a step of so many positions takes; 0 while that is not known."""
        return 0.0 if self._speed is None else positions / self._speed

    def is_short(self, positions: int) -> bool:
        """Whether so many positions are read while lower levels pause."""
        return self._speed is not None and positions <= self._speed * PAUSED_SECONDS


class DeviceSpeed:
    """How fast a GPU reads prompts. Its decodes return before they are computed, so steps are timed together, up to
    the one whose logits are read."""

    def __init__(self) -> None:
        self.value: float | None = None
        """Positions a second."""
        self._positions, self._begun = 0, 0.0

    def observe(self, positions: int, begun: float, *, is_read: bool) -> None:
        """Take note of a step since ``begun``. ``is_read``: its logits were read, so all is computed."""
        if not self._positions:
            self._begun = begun
        self._positions += positions
        if is_read:
            if self._positions >= MICRO_BATCH_ON_GPU:  # of fewer the time is not that of the positions
                speed = self._positions / max(1e-6, time.perf_counter() - self._begun)
                self.value = speed if self.value is None else self.value + (speed - self.value) * 0.3
            self._positions = 0


SCORED_AT_ONCE = 64
"""Most positions of a prompt in a step that says how likely its tokens are: each has logits of the whole vocabulary."""
FEW = 16
"""Positions that count as decoding: the next token, and those that a constraint forced before it."""


class StepOutput(Enum):
    """What is read after the last position of a run."""

    NOTHING = "nothing"
    LOGITS = "logits"
    HIDDEN = "hidden"


@dataclass(eq=False)
class StepPart:
    """A run of positions of one request within a step: ``target[start : start + count]``, all tokens or all
    embeddings.

    ``output`` is NOTHING unless it reaches the end of the target; ``index`` is then where to read it. ``first_scored``:
    where to read the logits after its first position, when there are those of all.
    """

    slot: Slot
    request: Request
    start: int
    count: int
    output: StepOutput
    index: int | None = None
    first_scored: int | None = None
    scores: bool = False
    """Whether the logits after each of its positions are wanted."""
    draft: list[int] = field(default_factory=list)
    """Tokens that may follow the run; ``index`` is then where to read after the run, and the next ones follow it."""

    def add_to(self, context: LlamaContext) -> None:
        """Append the run to the context's batch."""
        slot, has_output = self.slot.index, self.output is not StepOutput.NOTHING
        rows = self._rows() if self.request.prompt.embedding_ranges or self.request.speech else None
        if rows is None:
            tokens = self.request.target[self.start : self.start + self.count]
            every = self.scores or bool(self.draft)
            last = context.add(slot, self.start, tokens + self.draft, output=has_output, outputs_of_all=every)
            index = last - len(self.draft)
            self.first_scored = index - self.count + 1 if self.scores else None
        else:
            index = context.add_embeddings(slot, self.start, rows, output=has_output)
        self.index = index if has_output else None

    @property
    def is_next_token(self) -> bool:
        """Whether it is the next token of an answer, and so will be that of the one after."""
        request = self.request
        is_text = request.speech is None and not request.prompt.embedding_ranges
        is_read = self.start >= len(request.prompt) and not request.checkpoints_due
        return self.count == 1 and self.output is StepOutput.LOGITS and is_text and is_read

    def goes_on(self) -> bool:
        """Turn a run of one token into that of the next one; False where there is none, or not one alone."""
        slot, request = self.slot, self.request
        self.start, self.draft = len(slot.keys), []
        return slot.request is request and len(request.target) - self.start == 1

    @property
    def group(self) -> tuple[bool, bool, bytes]:
        """Parts that differ in it cannot share a decode: (are embeddings, want the hidden state, adapters)."""
        return _is_embeddings(self.request, self.start), self.output is StepOutput.HIDDEN, self.request.variant

    def _rows(self) -> NDArray[float32] | None:
        """The run's embeddings, shape [count, width]; None for tokens."""
        request, end = self.request, self.start + self.count
        for first, last, segment in request.prompt.embedding_ranges:
            if first <= self.start < last:
                encoded = segment.source.find()
                assert encoded is not None, "Encoder lets no request take part whose rows are not there"
                return encoded[self.start - first : end - first]
        if not _is_embeddings(request, self.start):
            return None
        import numpy as np

        assert request.speech is not None
        rows: NDArray[float32] = np.stack([request.speech.rows[position] for position in range(self.start, end)])
        return rows


class Planner:
    """Plans the steps of a context. While all that happens is that each answer grows by a token, the plan stays, and
    nothing is made anew."""

    def __init__(self, context: LlamaContext, pace: PromptPace) -> None:
        self._context, self._pace = context, pace
        self._kept: list[StepPart] = []
        """A step of the next token of each answer; empty while there is no such step."""
        self._sequences: list[int] = []
        self._paused = 0
        """Steps after one another in which lower levels paused."""
        self.is_alone = False
        """Whether the step was planned while no other request was there."""

    def plan(self, running: list[Slot], *, is_alone: bool = False) -> list[list[StepPart]]:
        """The decodes of the next step, as ``plan_step`` gives them. ``is_alone``: no other request is there, and one
        that comes may interrupt the step."""
        self.is_alone = is_alone
        if (kept := self.going_on(running)) is not None:
            return [kept]
        context = self._context
        running = self._without_paused(running)
        alone = PROMISE_ALONE if is_alone else PROMISE_PAUSED
        plan = plan_step(running, context.batch_size, self._pace, alone, apart=context.exact)
        is_kept = len(plan) == 1 and len(plan[0]) == len(running) and all(part.is_next_token for part in plan[0])
        self._kept = plan[0] if is_kept else []
        self._sequences = [part.slot.index for part in self._kept]
        return plan

    def going_on(self, running: list[Slot]) -> list[StepPart] | None:
        """The next step, where it is that of the plan that was kept."""
        kept = self._kept
        return kept if kept and len(kept) == len(running) and all([part.goes_on() for part in kept]) else None

    def _without_paused(self, running: list[Slot]) -> list[Slot]:
        """The slots that take part in the next step. While a short prompt of level interactive is read, requests of
        lower levels pause."""
        higher = [slot for slot in running if is_interactive(slot)]
        unread = [left for slot in higher if (left := _left(slot, None)) > FEW]
        pauses = bool(unread) and len(higher) < len(running) and self._pace.is_short(sum(unread))
        self._paused = self._paused + 1 if pauses and self._paused < PAUSED_STEPS else 0
        return higher if self._paused else running

    def build(self, parts: list[StepPart]) -> None:
        """Make the context's batch of a planned decode."""
        if parts is self._kept and not parts[0].draft:
            tokens = [part.request.target[part.start] for part in parts]
            self._context.add_next(self._sequences, [part.start for part in parts], tokens)
            for index, part in enumerate(parts):
                part.index = index
            return
        self._context.clear()
        for part in parts:
            part.add_to(self._context)


def plan_step(
    running: list[Slot], batch_size: int, pace: PromptPace, alone: float = PROMISE_PAUSED, *, apart: bool = False
) -> list[list[StepPart]]:
    """The decodes of the next step in order, at most ``batch_size`` positions together, and no more of prompts than
    ``pace`` allows for ``alone`` seconds, or for fewer beside others: half of that for the prompt that came first (a
    quarter where another has a higher priority), the rest for the others by priority, the shortest first. llama.cpp
    reads either tokens or embeddings in a decode, gives either logits or hidden states, and computes all with the same
    adapters. ``apart``: each part has a decode of its own."""
    answering: list[tuple[Slot, int | None]] = []
    reading: list[tuple[Slot, int | None]] = []
    for slot in sorted(running, key=lambda slot: slot.last_used):
        request = slot.request
        assert request is not None
        has_stops = request.checkpoints_due or request.prompt.embedding_ranges or request.speech
        stop = _next_stop(request, len(slot.keys)) if has_stops else None
        few = len(request.target) - len(slot.keys) <= FEW and not stop
        (answering if few else reading).append((slot, stop))
    parts: list[StepPart] = []
    room = batch_size
    for slot, stop in answering:
        room -= _append(parts, slot, stop, room)
    if reading:
        is_alone = not answering and len(reading) == 1
        promise = alone if is_alone else _promise([slot for slot, _ in answering], [slot for slot, _ in reading])
        room = min(room, pace.most_positions(promise, batch_size))
        oldest, *others = reading
        left = _left(*oldest)
        few_remain = is_alone and batch_size > 2 * LONG_STEP and room < left < room + LONG_STEP
        if few_remain:  # how many the pace decides, and some types of weights would round them differently
            room = left if left <= batch_size else left - LONG_STEP
        others.sort(key=lambda each: (-_priority(each[0]), _left(each[0], None)))
        is_lower = bool(others) and _priority(others[0][0]) > _priority(oldest[0])
        kept = min(left, room // (4 if is_lower else 2))  # so that short prompts without end do not keep it waiting
        for slot, stop in others:
            room -= _append(parts, slot, stop, room - kept)
        _append(parts, *oldest, room)
    if len(parts) == 1:
        return [parts]
    if apart:
        return [[part] for part in parts]
    groups: dict[tuple[bool, bool, bytes], list[StepPart]] = {}
    for part in parts:
        groups.setdefault(part.group, []).append(part)
    return list(groups.values())


def _promise(answering: list[Slot], reading: list[Slot]) -> float:
    """Seconds that the prompts of a step may take beside others."""
    if any(map(is_interactive, answering)) and not any(map(is_interactive, reading)):
        return PROMISE_BESIDE_HIGHER
    return PROMISE


def _priority(slot: Slot) -> int:
    assert slot.request is not None
    return slot.request.priority


def is_interactive(slot: Slot) -> bool:
    """Whether the request of a slot has the highest level, its own or because it rose by waiting."""
    request = slot.request
    return request is not None and (request.level == LEVELS[0] or time.perf_counter() < request.keeps_slot_until)


def _left(slot: Slot, stop: int | None) -> int:
    """How many positions there are up to ``stop``, or to the end of the target."""
    assert slot.request is not None
    return (stop or len(slot.request.target)) - len(slot.keys)


def _append(parts: list[StepPart], slot: Slot, stop: int | None, room: int) -> int:
    """Add the next run of a slot, up to its next ``stop`` and the space that is left; returns its length."""
    request = slot.request
    assert request is not None
    start = len(slot.keys)
    scores = request.prompt_recorder is not None and start + 1 < len(request.prompt.keys)
    if scores:
        room = min(room, SCORED_AT_ONCE)
    end = min(stop or len(request.target), start + room)
    if end > start:
        output = StepOutput.NOTHING
        if end == len(request.target):
            output = StepOutput.HIDDEN if request.wants_frame else StepOutput.LOGITS
        parts.append(StepPart(slot, request, start, end - start, output, scores=scores))
    return max(0, end - start)


def _next_stop(request: Request, start: int) -> int | None:
    """The next position inside the target at which a run must end: a checkpoint, or the edge of embeddings."""
    if not (request.checkpoints_due or request.prompt.embedding_ranges or request.speech):
        return None
    stops = [position for position in request.checkpoints_due if position > start][:1]
    for first, last, _ in request.prompt.embedding_ranges:
        stops += [edge for edge in (first, last) if edge > start]
    if request.speech is not None and request.speech.rows:
        frames = request.speech.rows
        begin = max(start, len(request.prompt))
        stops += [p for p in range(begin + 1, len(request.target)) if (p in frames) != (p - 1 in frames)][:1]
    return min(stops, default=None)


def _is_embeddings(request: Request, position: int) -> bool:
    if request.speech is not None and position in request.speech.rows:
        return True
    return any(first <= position < last for first, last, _ in request.prompt.embedding_ranges)


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
