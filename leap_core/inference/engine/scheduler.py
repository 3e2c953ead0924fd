"""Many requests over one context: each step decodes chunks of prompts together with the next token of every live
request.

Requests that speak make frames of sound from hidden states where others sample tokens from logits; llama.cpp gives one
or the other, so a step with both has a decode for each.

A request waits for a slot (``waiting`` has the order, and says who gives a slot to a request of a higher level), starts
from the longest prefix that any slot or snapshot holds (``slots``), and is prefilled in chunks, so that a long prompt
delays running answers by one chunk at most. All work on the context happens in the thread of the compute loop; requests
are submitted and cancelled from any.

    submit -> waiting -> admit: a slot -> [ plan_step -> decode -> advance: a token or a frame ]* -> finish
                                          cancelled, closed or failed at any place ends it there
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from ...conversation.generator import Activity
from ...conversation.responses import GenerationFinishReason as Reason
from ...errors import LeapGenerationError, LeapGenerationPromptExceedContextLengthError
from ..llama.context import ABORTED, NO_KV_SLOT, LlamaContext
from .batch_plan import FEW, LONG_STEP, DeviceSpeed, Encoder, Planner, PromptPace, StepOutput, StepPart
from .batch_sampling import FEWEST_ROWS, BatchSampler
from .compute_loop import FORKED, compute_loop
from .delivery import Delivery
from .interruption import Interruption
from .prompt_comparison import ComputedLately
from .repetition import PromptLookup
from .request import Request
from .sampler import Sampler, no_numbers
from .slots import Admission, Slot, SlotMemory, disk_places
from .snapshots import SnapshotStore
from .threads import ThreadGovernor, usable_cores
from .waiting import GUARD_SECONDS, Preemption, WaitingOrder

if TYPE_CHECKING:
    from ..constraints.masks import MaskFiller

ENCODED_SECONDS = 0.1
"""A step of the encoder that took longer has encoded something."""
MOST_VOICE_THREADS = 4
"""The voice's matrices are small: more threads would wait for each other more than they compute."""


class Scheduler:
    """Runs requests over ``context``; ``context_size`` is the most tokens of one request."""

    def __init__(self, context: LlamaContext, snapshots: SnapshotStore, *, context_size: int, threads: int) -> None:
        self._context = context
        self._memory = SlotMemory(context)
        self._snapshots = snapshots
        self.context_size = context_size
        self._admission = Admission(self._memory, snapshots, context.model.eog_tokens)
        self._governor = ThreadGovernor(threads)
        self._pace, self._device_speed = PromptPace(on_gpu=context.model.on_gpu), DeviceSpeed()
        self._planner = Planner(context, self._pace)
        self._eog = context.model.eog_tokens
        self._batch_sampler = BatchSampler(context.model.n_tokens)
        self._deliver = Delivery()
        self._lately = ComputedLately()
        self._waiting: deque[Request] = deque()
        self._order = WaitingOrder()
        self._preemption = Preemption()
        self._starting: Request | None = None
        """The request that gets a slot just now."""
        self._closing = ""
        self._interruption = Interruption(context)
        self._unasked_aborts = 0
        self._step_begun: tuple[int, float] | None = None
        """The positions of the decode that runs (0 for an encoding), and since when."""
        self._progressed = time.perf_counter()
        self._admissions_held = False
        self._ticks = count(1)
        compute_loop.add(self)

    def submit(self, request: Request) -> None:
        """Queue a request. Raises before any work when its prompt is longer than the context, or after ``close``."""
        if len(request.prompt) > self.context_size:
            trained = self._context.model.trained_context
            raise LeapGenerationPromptExceedContextLengthError(len(request.prompt), self.context_size, trained=trained)
        if not len(request.prompt):
            raise LeapGenerationError("the prompt is empty")
        request.wake = self._interruption.update
        activity = self.activity()
        request.course.note_queue(activity.running, activity.waiting, activity.reading)
        with compute_loop.changed:
            if self._closing:
                raise compute_loop.closed_error(self._closing)
            if not self.has_work():
                self._progressed = time.perf_counter()
            self._waiting.append(request)
            holders = [slot.request for slot in self._memory.slots]
            if any(holder is None or holder.priority < request.priority for holder in holders):
                self._interruption.make_way(request)
            compute_loop.changed.notify_all()

    def close(self) -> None:
        """End everything; what still runs finishes with an error. Returns when the context is no longer in use."""
        with compute_loop.changed:
            self._closing = self._closing or "the model is unloaded"
            self._interruption.close()
        compute_loop.remove(self)
        self._end_all("the model was unloaded during the generation")
        self._snapshots.close()

    def disown(self) -> None:
        """In a forked child: end everything."""
        self._closing = FORKED
        self._end_all(FORKED)

    def _end_all(self, text: str) -> None:
        for request in [slot.request for slot in self._running() if slot.request] + list(self._waiting):
            request.finish(Reason.ERROR, compute_loop.closed_error(text))

    def _running(self) -> list[Slot]:
        return [slot for slot in self._memory.slots if slot.request is not None]

    def has_work(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self._waiting) or any(slot.request is not None for slot in self._memory.slots)

    def activity(self) -> Activity:
        """What is done at the moment. From any thread."""
        begun, progressed, now = self._step_begun, self._progressed, time.perf_counter()
        running = [request for slot in self._memory.slots if (request := slot.request) is not None]
        step = None if begun is None else f"decode of {begun[0]} positions" if begun[0] else "encoding"
        if begun is None and (other := compute_loop.other_step(self)) is not None:
            step, begun = "step of another model", (0, other)
        return Activity(
            waiting=len(self._waiting),
            running=len(running),
            slots=len(self._memory.slots),
            step=step,
            step_seconds=0.0 if begun is None else now - begun[1],
            still_seconds=now - progressed,
            aborting=self._context.is_aborting,
            waiting_by_level=dict(Counter(request.level for request in list(self._waiting))),
            preemptions=self._preemption.count,
            reading=tuple(each.progress for each in running if each.read < len(each.prompt)),
        )

    def interrupt(self) -> None:
        """End the running decode at once. From any thread."""
        self._interruption.close()

    def step(self) -> None:
        """Admit, decode one batch, deliver. For the compute loop."""
        try:
            self._step()
        except Exception as error:  # one request must not take the scheduler down with it
            text = str(error) or type(error).__name__
            failure = error if isinstance(error, LeapGenerationError) else LeapGenerationError(text)
            if self._starting is not None:  # it left the queue and has no slot yet
                self._starting.finish(Reason.ERROR, failure)
            for slot in self._memory.slots:  # a decode that failed may have spoiled what it did not compute, too
                if slot.request is not None:
                    self._fail(slot, failure)
                else:
                    self._memory.clear(slot)
        finally:
            self._step_begun = self._starting = None

    def _step(self) -> None:
        self._drop_cancelled()
        if self._waiting:
            self._admit()
        ready = self._running()
        if (kept := self._planner.going_on(ready)) and self._goes_on(kept):
            return
        if any(slot.request is not None and slot.request.prompt.embedding_ranges for slot in ready):
            self._deliver(ready, at_once=True)
            begun = time.perf_counter()
            self._step_begun = 0, begun
            ready = self._encoder.encode_next(ready, self._fail)
            if time.perf_counter() - begun > ENCODED_SECONDS:
                self._progressed = time.perf_counter()
        on_gpu = self._context.model.on_gpu
        has_company = len(self._running()) > 1 or self._waiting or compute_loop.is_shared
        for parts in self._planner.plan(ready, is_alone=not has_company and self._interruption.may_make_way):
            if parts[0].request.lookup is not None:
                self._draft(parts, parts[0].request.lookup)
            if any(part.count > LONG_STEP for part in parts):  # what is held back would wait for a long step
                self._deliver(ready, at_once=True)
            started, computed = time.perf_counter(), time.process_time()
            size = sum(part.count + len(part.draft) for part in parts)
            self._step_begun = size, started
            if not self._decode(parts):
                return  # the other decodes were planned for a memory that is different now
            self._progressed = time.perf_counter()
            seconds = self._progressed - started
            if on_gpu:  # it computes until the logits are read
                self._deliver(ready)
            hidden = parts[0].output is StepOutput.HIDDEN  # then all of them: see ``plan_step``
            if any(part.count > FEW or part.output is StepOutput.NOTHING for part in parts):
                self._pace.observe(size, seconds)
            if size <= LONG_STEP and not hidden:
                self._governor.observe(size, seconds, time.process_time() - computed)
            for part in parts:
                self._advance(part)
            self._sample_all(parts)
            if on_gpu and size > LONG_STEP:
                self._time_device(size, started, parts)
            if hidden:
                self._speak(parts)
            if hidden and size <= LONG_STEP:  # frames take as long as the model itself, and suffer more in a crowd
                self._governor.observe(-size, time.perf_counter() - started, time.process_time() - computed)
        if not on_gpu:
            self._deliver(ready)

    def _goes_on(self, parts: list[StepPart]) -> bool:
        """A step in which each answer grows by a token; False where there may be more to do. It does of ``_step`` what
        is needed then: what a step looks at comes back from main memory."""
        if parts[0].request.lookup is not None or self._context.model.on_gpu or self._context.candidates:
            return False
        computed, started = time.process_time(), time.perf_counter()
        self._step_begun = len(parts), started
        self._planner.build(parts)
        self._context.set_threads(self._governor.threads)
        if self._settle(self._context.decode(), parts):
            self._progressed = time.perf_counter()
            if len(parts) <= LONG_STEP:
                self._governor.observe(len(parts), self._progressed - started, time.process_time() - computed)
            for part in parts:
                part.slot.keys.append(part.request.target[part.start])
            (self._sample_all if len(parts) >= FEWEST_ROWS else self._accept_all)(parts)
            self._deliver([part.slot for part in parts])
        return True

    def _time_device(self, size: int, started: float, parts: list[StepPart]) -> None:
        self._device_speed.observe(size, started, is_read=any(part.output is not StepOutput.NOTHING for part in parts))
        if self._device_speed.value is not None:
            self._memory.set_speed(self._device_speed.value)

    def _admit(self) -> None:
        """Give free slots to waiting requests; where there is none, perhaps that of a request of a lower level."""
        running, now = self._running(), time.perf_counter()
        waiting = [request for request in list(self._waiting) if not request.cancelled]  # others append meanwhile
        first = None
        if len(running) == len(self._memory.slots):
            first = self._preempt(waiting, running, now)
            if first is None:
                return
        ordered = self._order.sorted(waiting, now)
        if first is not None:
            ordered = [first, *(request for request in ordered if request is not first)]
        room = self._context.room if self._admissions_held else None
        self._admission.admit(ordered, self._ticks, self._begins, room)
        self._starting = None

    def _begins(self, request: Request) -> None:
        request.course.note_start(request.seconds_waited, self._lately.all(), self._memory.most_shared(request))
        self._waiting.remove(request)
        self._starting = request
        self._order.begins(request, list(self._waiting), time.perf_counter())

    def _preempt(self, waiting: list[Request], running: list[Slot], now: float) -> Request | None:
        """Free a slot for the first waiting request of a higher level than a running one; None where none is to be
        freed now."""
        lowest = min(slot.request.priority for slot in running if slot.request is not None)
        higher = [request for request in waiting if request.priority > lowest]
        if not higher or self._admissions_held:
            return None
        request = min(higher, key=lambda each: (-each.priority, each.created))
        slot = self._preemption.victim(request, running, now)
        if slot is None or not self._admission.can_begin(request):
            return None
        done = self._suspend(slot)
        if done and self._admission.source_of(request)[0] is not slot:
            self._memory.clear(slot)
        self._preemption.note(now, time.perf_counter(), done=done)
        return request if done else None

    def _suspend(self, slot: Slot) -> bool:
        """Let the request of a slot wait, to continue later with the same bits; False where that cannot be."""
        request = slot.request
        assert request is not None
        if slot.keys:
            state = self._memory.whole_state(slot)
            request.held = None if state is None else self._snapshots.hold(slot.keys, state, slot.variant)
            if request.held is None and not self._recomputes_alike:
                return False
        request.deliver()
        request.preempted += 1
        self._release(slot)
        self._send_back(request)
        return True

    def _send_back(self, request: Request) -> None:
        request.enter_queue(time.perf_counter(), GUARD_SECONDS)
        self._waiting.append(request)

    @cached_property
    def _recomputes_alike(self) -> bool:
        """Whether tokens that are read again, many at once, give the bits that they gave one by one."""
        from ..gguf.header import read_gguf_header

        model = self._context.model
        return not model.on_gpu and (self._context.exact or read_gguf_header(model.path).is_alike)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self._governor.threads_for_long_step)

    @cached_property
    def _masks(self) -> MaskFiller:
        from ..constraints.masks import MaskFiller

        return MaskFiller(usable_cores(), self._context.model.n_tokens)

    def _draft(self, parts: list[StepPart], lookup: PromptLookup) -> None:
        """Let a request that runs alone verify a draft with its next token. Beside others their positions are worth
        more; and llama.cpp cuts a batch of unequal runs into several, of which it can take back only the last."""
        part = parts[0]
        if part.count != 1 or part.output is not StepOutput.LOGITS or len(self._running()) > 1:
            return
        request = part.request
        left = int(min(self.context_size, request.most_keys)) - len(request.target)
        if request.watch is not None:
            left = min(left, request.watch.room)
        part.draft = lookup.draft(request.target, min(self._context.rollback, left - 1), self._eog)

    def _drop_cancelled(self) -> None:
        for request in [s for s in list(self._waiting) if s.cancelled]:  # others append meanwhile
            self._waiting.remove(request)
            self._snapshots.drop(request.held)
            request.finish(Reason.INTERRUPTED)
        for slot in self._memory.slots:
            if slot.request and slot.request.cancelled:
                self._finish(slot, Reason.INTERRUPTED)

    def _decode(self, parts: list[StepPart]) -> bool:
        """Run a planned step. False when it did not happen and must be planned anew."""
        self._planner.build(parts)
        prefilling = [part for part in parts if part.count > LONG_STEP]
        governor = self._governor
        self._context.set_threads(governor.threads_for_long_step() if prefilling else governor.threads)
        hidden = parts[0].output is StepOutput.HIDDEN
        self._context.set_adapters(parts[0].request.adapters)
        if not prefilling or len(parts) > 1 or self._context.model.on_gpu:  # only a processor can be interrupted
            return self._settle(self._context.decode(hidden=hidden), parts)
        state = self._memory.partial_state(parts[0].slot)
        with self._interruption.allowed(parts[0].request, self._pace.seconds(parts[0].count)):
            if self._planner.is_alone and self._waiting:  # it came before it could interrupt
                return False
            code = self._context.decode(hidden=hidden)
        return self._settle(code, parts, state)

    def _settle(self, code: int, parts: list[StepPart], state: bytes | None = None) -> bool:
        """Whether the step happened; where it did not, the memory is ready for another plan. ``state``: of the one part
        of a step that may be interrupted, before it."""
        if code == ABORTED:
            if len(parts) == 1 and (parts[0].request.cancelled or self._interruption.makes_way):
                self._memory.roll_back(parts[0].slot, len(parts[0].slot.keys), state)
            elif not self._interruption.is_closed:
                self._repair(parts)
            return False
        self._unasked_aborts = 0
        if code == NO_KV_SLOT:
            self._make_room(parts)
            return False
        return True

    def _repair(self, parts: list[StepPart]) -> None:
        """A decode was aborted that nobody asked to end: compute everything again, once; then fail its requests."""
        self._unasked_aborts += 1
        self._interruption.reset()
        for slot in self._memory.slots:
            self._memory.clear(slot)
        if self._unasked_aborts > 1:
            for part in parts:
                self._fail(part.slot, LeapGenerationError("llama.cpp aborted the computation"))

    def _make_room(self, parts: list[StepPart]) -> None:
        """The shared cells are full: forget idle slots, oldest first; then send the youngest request of the lowest
        level back to wait; the last one left has met the end of the context."""
        idle = [slot for slot in self._memory.slots if slot.request is None and slot.keys]
        if idle:
            self._memory.clear(min(idle, key=lambda slot: slot.last_used))
            return
        running = self._running()
        youngest = max(running, key=lambda slot: (-slot.request.priority if slot.request else 0, slot.last_used))
        request = youngest.request
        assert request is not None
        if len(running) == 1:
            self._finish(youngest, Reason.EXCEED_CONTEXT)
            return
        request.deliver()
        youngest.request = None
        self._memory.clear(youngest)
        self._send_back(request)
        self._admissions_held = True  # until a request ends, or it would be sent back again at once

    def _advance(self, part: StepPart) -> None:
        slot, request = part.slot, part.request
        if part.first_scored is not None:
            for n in range(part.count):
                request.score_prompt(part.start + n, self._context.logits(part.first_scored + n))
        slot.keys += request.target[part.start : part.start + part.count]
        if part.start < len(request.prompt.keys):
            request.read = max(request.read, min(len(slot.keys), len(request.prompt.keys)))
        if request.checkpoints_due and request.checkpoints_due[0] == len(slot.keys):
            request.checkpoints_due.pop(0)
            self._memory.checkpoint(slot)
            if self._snapshots.on_disk and len(slot.keys) in disk_places(request.prompt):
                self._keep_on_disk(slot)

    def _sample_all(self, parts: list[StepPart]) -> None:
        """Sample the next token of each part that has logits."""
        due = [part for part in parts if part.output is StepOutput.LOGITS]
        candidates = self._context.candidates
        if candidates and (picked := [part for part in due if part.slot.index in candidates]):
            self._accept_all(picked, self._sample_candidates(picked))
            due = [part for part in due if part.slot.index not in candidates]
        self._accept_all(due, self._sample_together(due) if len(due) >= FEWEST_ROWS else None)

    def _accept_all(self, parts: list[StepPart], tokens: Sequence[int | None] | None = None) -> None:
        """Take the token of each part, or sample it where it has none yet."""
        now = time.perf_counter()
        for part, token in zip(parts, tokens or [None] * len(parts), strict=True):
            try:
                if token is not None:
                    self._accept(part.slot, part.request, token, now)
                elif part.slot.request is part.request and part.index is not None:
                    self._sample(part, part.index)
            except Exception as error:
                self._fail_sampling(part, error)

    def _sample_candidates(self, parts: list[StepPart]) -> list[int | None]:
        """The next token of each part, of whose tokens the device has picked the likeliest."""
        tokens, logits = self._context.candidates.read([part.index for part in parts if part.index is not None])
        found = self._batch_sampler.sample_candidates(tokens, logits, [part.request.sampler for part in parts])
        for part in (part for part, token in zip(parts, found, strict=True) if token is None):
            self._fail_sampling(part, no_numbers())
        return found

    def _fail_sampling(self, part: StepPart, error: Exception) -> None:
        self._fail(part.slot, error, "sampling")

    def _sample_together(self, due: list[StepPart]) -> list[int | None]:
        """The next token of each part; None for those that cannot be sampled together with others."""
        tokens: list[int | None] = [None] * len(due)
        logits = self._context.logits_of([part.index for part in due if part.index is not None])
        if logits is None:  # the logits of all positions of a prompt lie between
            return tokens
        if self._context.model.on_gpu:  # a processor that computes the model takes far longer for that
            constraints = [part.request.constraint for part in due]
            self._masks.fill(each.next_grammar for each in constraints if each is not None)
        rows: list[int] = []
        samplers: list[Sampler] = []
        for row, part in enumerate(due):
            request, sampler = part.request, part.request.sampler
            if sampler.is_extreme or not self._batch_sampler.accepts(sampler):
                continue
            if sampler.changes_logits or request.constraint is not None:
                try:
                    sampler.prepare(logits[row], request.constraint)
                except Exception as error:
                    self._fail_sampling(part, error)
                    continue
            rows.append(row)
            samplers.append(sampler)
        if rows:
            whole = logits if len(rows) == len(due) else logits[rows]
            found = self._batch_sampler.sample(whole, samplers)
            for row, sampler, values, token in zip(rows, samplers, whole, found, strict=True):
                try:
                    tokens[row] = sampler.choose(values) if token is None else token
                except LeapGenerationError as error:
                    self._fail_sampling(due[row], error)
        return tokens

    def _sample(self, part: StepPart, index: int) -> None:
        """Sample the next token, and as long as a draft has foretold it, the one after."""
        slot, request, lookup = part.slot, part.request, part.request.lookup
        for n in range(len(part.draft) + 1):
            token = request.sampler.sample(self._context.logits(index + n), request.constraint)
            if n < len(part.draft) and token == part.draft[n]:
                slot.keys.append(token)
                self._accept(slot, request, token, time.perf_counter())
                continue
            if part.draft and lookup is not None:
                lookup.learn(len(part.draft), n)
                if n < len(part.draft) and not self._context.take_back(slot.index, len(slot.keys)):
                    self._memory.clear(slot)  # then all is computed anew
            return self._accept(slot, request, token, time.perf_counter())
        return None

    def _accept(self, slot: Slot, request: Request, token: int, now: float) -> None:
        """Take a token sampled at ``now``, and with it the tokens that its constraint leaves no choice about."""
        is_first = request.note_time(now)
        constraint = request.constraint
        if constraint is None and request.thinking is None:
            self._take(slot, request, token)
        else:
            tokens = deque(request.taken(token))
            while tokens and self._take(slot, request, tokens.popleft()):
                if constraint is not None and not tokens:
                    if constraint.finished:
                        return self._finish(slot, Reason.STOP)
                    tokens.extend(self._forced(request))
        if is_first:
            request.deliver()  # also in a crowd
        return None

    def _take(self, slot: Slot, request: Request, token: int) -> bool:
        """Take the next token; whether the answer continues."""
        if token in self._eog:
            self._finish(slot, Reason.STOP)
            return False
        request.emit(token)
        if request.constraint is not None:
            request.constraint.accept(token)
        if token in request.stop_tokens:
            self._finish(slot, Reason.STOP)
        elif len(request.target) >= request.most_keys:
            self._finish(slot, Reason.MAX_TOKENS)
        elif len(request.target) > self.context_size:
            self._finish(slot, Reason.EXCEED_CONTEXT)
        elif request.watch is not None and request.watch.goes_in_circles(token):
            self._finish(slot, Reason.REPETITION)
        return slot.request is request

    def _forced(self, request: Request) -> list[int]:
        """The tokens that come next without any choice, where they need no score of their own."""
        recorder = request.sampler.recorder
        if request.constraint is None or (recorder is not None and recorder.of_forced):
            return []
        tokens = request.constraint.forced_tokens()
        if recorder is not None:
            for token in tokens:
                recorder.forced(token)
        return tokens

    def _speak(self, parts: list[StepPart]) -> None:
        """Make the next frames of requests from their hidden states, as many at once as share a source."""
        by_source: dict[int, list[StepPart]] = {}
        for part in parts:
            assert part.request.speech is not None
            by_source.setdefault(id(part.request.speech.source), []).append(part)
        for group in by_source.values():
            try:
                self._make_frames(group)
            except Exception as error:
                for part in group:
                    if part.slot.request is part.request:
                        self._fail(part.slot, error, "speaking")

    def _make_frames(self, parts: list[StepPart]) -> None:
        import numpy as np

        speeches = [part.request.speech for part in parts if part.request.speech is not None]
        hidden = np.stack([self._context.hidden_state(part.index or 0) for part in parts])
        threads = min(self._governor.threads, MOST_VOICE_THREADS)
        frames = speeches[0].source.frames(hidden, [speech.sampler for speech in speeches], threads)
        for part, speech, frame in zip(parts, speeches, frames, strict=True):
            request = part.request
            request.note_time(time.perf_counter())
            request.emit_frame(speech.turn.take_frame(frame), threads)
            if request.max_tokens is not None and request.generated >= request.max_tokens:
                self._finish(part.slot, Reason.MAX_TOKENS)
            elif len(request.target) > self.context_size:
                self._finish(part.slot, Reason.EXCEED_CONTEXT)

    def _finish(self, slot: Slot, reason: Reason) -> None:
        request = slot.request
        assert request is not None
        self._release(slot)
        self._lately.add(slot.keys, slot.variant)
        request.finish(reason)
        if reason is not Reason.INTERRUPTED:
            self._keep_on_disk(slot)

    def _fail(self, slot: Slot, error: Exception, work: str = "computing") -> None:
        error = error if isinstance(error, LeapGenerationError) else LeapGenerationError(f"{work}: {error}")
        request = slot.request
        assert request is not None
        self._release(slot)
        self._memory.clear(slot)
        request.finish(Reason.ERROR, error)

    def _release(self, slot: Slot) -> None:
        slot.request = None
        slot.last_used = next(self._ticks)
        self._admissions_held = False

    def _keep_on_disk(self, slot: Slot) -> None:
        if not self._snapshots.on_disk or self._snapshots.has_on_disk(slot.keys, slot.variant):
            return
        state = self._memory.whole_state(slot)
        if state is not None:
            self._snapshots.keep_on_disk(slot.keys, state, slot.variant)
