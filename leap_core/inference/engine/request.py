"""One request on its way through the scheduler: its prompt in segments, its tokens, its frames of sound.

A frame is one code of each codebook. The model makes it from its hidden state instead of its logits, and reads it back
as one row of embeddings at the next position.
"""

from __future__ import annotations

import math
import queue
import struct
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, field
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ...conversation.generator import PromptProgress
from ...conversation.priority import FIRST, INTERACTIVE, LAST, level_of
from ...conversation.responses import GenerationFinishReason
from ...errors import GenerationStats
from ...system.dataclass import dataclass
from ..llama.library import other_engine
from .repetition import PromptLookup, RepetitionWatch
from .request_timeline import Course
from .sampler import Sampler, ScoreRecorder, TokenScore
from .thinking import ThinkingLimit

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from ..constraints.token_constraints import TokenConstraint
    from ..llama.model import LlamaAdapter
    from .snapshots import HeldState


@dataclass(frozen=True)
class Tokens:
    """A run of token ids."""

    ids: tuple[int, ...]

    def position_keys(self) -> list[int]:
        """The ids themselves."""
        return list(self.ids)


class RowSource(Protocol):
    """Where rows of embeddings come from."""

    def find(self) -> NDArray[float32] | None:
        """The rows, where they need not be computed."""
        ...

    def make(self, threads: int) -> NDArray[float32]:
        """The rows, computed with so many threads. Called in the compute thread."""
        ...


@dataclass(frozen=True)
class GivenRows:
    """Rows that are there."""

    rows: NDArray[float32]

    def find(self) -> NDArray[float32]:
        return self.rows

    def make(self, threads: int) -> NDArray[float32]:
        return self.rows


@dataclass(frozen=True, eq=False)
class Embeddings:
    """``length`` rows of embeddings, float32 of the model's width. ``content_key`` names what they depict: equal keys
    promise equal rows. ``source`` has the rows or computes them, when the prompt gets there."""

    length: int
    content_key: bytes
    source: RowSource

    def position_keys(self) -> list[int]:
        """One negative number a row, so that it never equals a token id."""
        digests = (blake2b(self.content_key + n.to_bytes(4, "little"), digest_size=7) for n in range(self.length))
        return [-1 - int.from_bytes(digest.digest(), "little") for digest in digests]


Segment = Tokens | Embeddings


@dataclass(frozen=True)
class PromptTokens:
    """Segments in order, and ``boundaries``: positions that a later prompt is likely to share up to (the ends of its
    messages), in increasing order, each above 0 and below the length."""

    segments: tuple[Segment, ...]
    boundaries: tuple[int, ...] = ()

    @cached_property
    def keys(self) -> list[int]:
        """One number a position: the token id, or a negative number for a row of embeddings."""
        return [key for segment in self.segments for key in segment.position_keys()]

    @property
    def token_ids(self) -> list[int]:
        """The token ids alone, in order; rows of embeddings are left out."""
        return [id for segment in self.segments if isinstance(segment, Tokens) for id in segment.ids]

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def embedding_ranges(self) -> tuple[tuple[int, int, Embeddings], ...]:
        """(start, end, segment) of every run of embeddings."""
        ranges, at = [], 0
        for segment in self.segments:
            length = segment.length if isinstance(segment, Embeddings) else len(segment.ids)
            if isinstance(segment, Embeddings):
                ranges.append((at, at + length, segment))
            at += length
        return tuple(ranges)


def boundaries_of(ids: Sequence[int], eog_tokens: frozenset[int], control_tokens: frozenset[int]) -> list[int]:
    """Where messages end: before the first control token after each end-of-turn token.

    In ``…<|im_end|>\\n<|im_start|>…`` that is the position of ``<|im_start|>``. Works for every template that closes
    its turns with a token that ends a generation.
    """
    boundaries = []
    ended = False
    for position, token in enumerate(ids):
        if ended and token in control_tokens:
            boundaries.append(position)
            ended = False
        if token in eog_tokens:
            ended = True
    return boundaries


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many positions two lists of keys share from the start on."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    low, high = 0, limit  # left[:low] is shared, left[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


Frame = tuple[int, ...]


class FrameSource(Protocol):
    """Makes frames from hidden states. Used by the thread of the compute loop."""

    fingerprint: bytes
    """Names the weights that frames are read with."""

    def frames(self, hidden: NDArray[float32], samplers: Sequence[Any], threads: int) -> list[Frame]:
        """One frame for each row of ``hidden``, shape [requests, width], drawn with that request's sampler and made
        with so many threads."""
        ...

    def embedding(self, frame: Frame) -> NDArray[float32]:
        """The row that the model reads, shape [width]."""
        ...


class FrameTurn(Protocol):
    """Decides what comes next, a token or a frame."""

    wants_frame: bool

    def take_token(self, token: int) -> None:
        """A token was sampled."""
        ...

    def take_frame(self, codes: Frame) -> Frame:
        """A frame was made; returns it as the model has to read it."""
        ...


class FrameSound(Protocol):
    """Sound of a request's frames."""

    def add(self, frame: Frame, *, last: bool) -> None:
        """A frame was made; after the ``last`` one comes a token."""
        ...

    def make(self, threads: int) -> None:
        """Make the sound that is due, with so many threads."""
        ...


@dataclass(eq=False)
class SpeechFrames:
    """What a request speaks with. ``rows``: the frames that it made, by their positions in the target."""

    source: FrameSource
    turn: FrameTurn
    sampler: Any
    sound: FrameSound
    rows: dict[int, NDArray[float32]] = field(default_factory=dict)


def frame_key(frame: Frame, fingerprint: bytes) -> int:
    """The number that represents a frame among the keys of positions: negative, so that it never equals a token."""
    content = b"".join(code.to_bytes(4, "little") for code in frame)
    return -1 - int.from_bytes(blake2b(content, key=fingerprint[:64], digest_size=7).digest(), "little")


@dataclass(frozen=True, eq=False)
class FrameRows(Embeddings):
    """Frames of an earlier answer in a prompt. They have the keys that they had when they were made, so that memory
    which holds them is found again."""

    frames: tuple[Frame, ...] = ()

    @staticmethod
    def of(frames: Sequence[Frame], source: FrameSource) -> FrameRows:
        """The rows of ``frames``, of which there is at least one."""
        import numpy as np

        rows = GivenRows(np.stack([source.embedding(frame) for frame in frames]))
        return FrameRows(len(frames), source.fingerprint, rows, tuple(frames))

    def position_keys(self) -> list[int]:
        return [frame_key(frame, self.content_key) for frame in self.frames]


Adapters: TypeAlias = "tuple[tuple[LlamaAdapter, float], ...]"
"""Adapters that compute a request, with their scales."""


def variant_of(adapters: Adapters) -> bytes:
    """16 bytes that name adapters and their scales; none for none."""
    if not adapters:
        return b""
    digest = blake2b(digest_size=16)
    for adapter, scale in adapters:
        digest.update(adapter.id + struct.pack("<f", scale))
    return digest.digest()


@dataclass(frozen=True)
class SequenceEnd:
    """The last event of a request. ``error`` is set exactly when ``reason`` is ERROR."""

    reason: GenerationFinishReason
    stats: GenerationStats
    error: BaseException | None = None


@dataclass(eq=False)
class Request:
    """A request and its progress. The scheduler's thread writes; the caller reads ``events`` and may ``cancel``.

    ``prompt_recorder`` notes how likely the tokens of the prompt after its first are; then all of the prompt is
    computed. ``watch`` ends the answer when it goes in circles, one of ``stop_tokens`` where it comes. Higher values
    of ``priority`` go first.
    """

    prompt: PromptTokens
    sampler: Sampler
    _: KW_ONLY
    max_tokens: int | None = None
    constraint: TokenConstraint | None = None
    adapters: Adapters = ()
    speech: SpeechFrames | None = None
    prompt_recorder: ScoreRecorder | None = None
    lookup: PromptLookup | None = None
    watch: RepetitionWatch | None = None
    thinking: ThinkingLimit | None = None
    stop_tokens: Collection[int] = ()
    priority: int = INTERACTIVE

    def __post_init__(self) -> None:
        self.variant = variant_of(self.adapters)
        """Names what changes the meaning of equal keys: no state is shared between variants."""
        self.most_keys: float = math.inf if self.max_tokens is None else len(self.prompt) + self.max_tokens
        """Length of ``target`` at which the answer has its most tokens."""
        self.events: queue.SimpleQueue[list[int] | Frame | SequenceEnd] = queue.SimpleQueue()
        """Tokens and frames in order, then one SequenceEnd."""
        self._undelivered: list[int] = []
        self.target = list(self.prompt.keys)
        """All that must be in memory before the next token can be sampled: the prompt, then what was generated."""
        self.checkpoints_due: list[int] = []
        """Positions at which to keep a checkpoint, increasing."""
        self.cached = 0
        """Positions of the prompt that were in memory already."""
        self.read = 0
        """Positions of the prompt that are in memory now."""
        self.cancelled = False
        self.ended = False
        self.wake: Callable[[Request], None] = lambda _: None
        self.priority = min(FIRST, max(LAST, self.priority))
        self.preempted = 0
        """How often it gave its slot to a request of a higher level."""
        self.held: HeldState | None = None
        """What its slot held, while it waits to continue."""
        self.keeps_slot_until = 0.0
        self.was_computed_anew = False
        """What its slot held was lost when it gave it; it does not give it again."""
        self._waited = self._paused = 0.0
        self.aged = 0.0
        """Seconds of waiting before, that count beside the present ones: see ``waiting.risen``."""
        self._computed = self._slot_since = 0.0
        self.course = Course()
        self.created = time.perf_counter()
        self.waiting_since: float | None = self.created
        """None while it has a slot."""
        self._first_token: float | None = None
        self._last_token = 0.0

    def takes_candidates(self, most: int) -> bool:
        """Whether the ``most`` likeliest tokens are all that its next token depends on. One row of them a step: no
        drafts, no scores of a prompt."""
        sampler, others = self.sampler, (self.constraint, self.speech, self.lookup, self.prompt_recorder)
        return not sampler.needs_all_logits and sampler.top_k <= most and all(each is None for each in others)

    @property
    def generated(self) -> int:
        """Tokens and frames generated so far; the end-of-turn token is not counted."""
        return len(self.target) - len(self.prompt.keys)

    @property
    def scores(self) -> list[TokenScore]:
        """How likely the generated tokens were, in order; empty where that was not asked for. Where the prompt is
        scored too, the token that ended the turn is among them."""
        if self.sampler.recorder is None:
            return []
        return self.sampler.recorder.scores[: self.generated + (self.prompt_recorder is not None)]

    @property
    def level(self) -> str:
        """One of ``conversation.priority.LEVELS``."""
        return level_of(self.priority)

    @property
    def seconds_waited(self) -> float:
        """How long it has waited for a slot, all times together. From any thread."""
        since = self.waiting_since
        return self._waited + (0.0 if since is None else time.perf_counter() - since)

    def leave_queue(self, now: float) -> None:
        """It got a slot."""
        if self.waiting_since is not None:
            waited, self.waiting_since = now - self.waiting_since, None
            self._waited += waited
            self.aged += waited
            self._slot_since = now
            if self._first_token is not None:
                self._paused += waited

    def enter_queue(self, now: float, enough: float = 0.0) -> None:
        """It waits for a slot again. Its age starts anew once it has had slots for ``enough`` seconds."""
        self._computed += now - self._slot_since
        if self._computed >= enough:
            self.aged = self._computed = 0.0
        self.waiting_since = now

    @property
    def progress(self) -> PromptProgress:
        """How far the prompt is read, and when: now, or when the answer began. From any thread."""
        cached, until = self.cached, self._first_token or time.perf_counter()
        return PromptProgress(len(self.prompt), cached, max(self.read, cached), until - self.created)

    def score_prompt(self, position: int, logits: NDArray[float32]) -> None:
        """Note how likely the token of the prompt after ``position`` is, unless that is noted already."""
        recorder = self.prompt_recorder
        if recorder is not None and position == len(recorder.scores) and position + 1 < len(self.prompt):
            recorder.before_mask(logits)
            recorder.chosen(self.prompt.keys[position + 1], None)

    def cancel(self) -> None:
        """From any thread: end with INTERRUPTED as soon as possible."""
        self.cancelled = True
        self.wake(self)

    def taken(self, token: int) -> Sequence[int]:
        """The tokens that a sampled one leads to: itself, or those that end reasoning which has spent its budget."""
        instead = None if self.thinking is None else self.thinking.instead_of(token)
        if instead is None:
            return (token,)
        recorder = self.sampler.recorder
        if recorder is not None:
            recorder.scores.pop()
            for each in instead:
                recorder.forced(each)
        return instead

    def note_time(self, now: float) -> bool:
        """A token was sampled; whether it was the first."""
        self._last_token = now
        if self._first_token is not None:
            return False
        self._first_token = now
        return True

    def emit(self, token: int) -> None:
        """Take a generated token; ``deliver`` hands it to the reader."""
        self.target.append(token)
        if self.sampler.penalizes:
            self.sampler.accept(token)
        if self.thinking is not None:
            self.thinking.note(token)
        if self.speech is not None:
            self.speech.turn.take_token(token)
        self._undelivered.append(token)

    def deliver(self) -> None:
        """Hand the tokens since the last time to the reader."""
        if self._undelivered:
            self.events.put(self._undelivered)
            self._undelivered = []

    def emit_frame(self, frame: Frame, threads: int) -> None:
        """Deliver a frame, and let the model read it next. Where there are several ``threads``, the sound is made here,
        between two steps that need them all; a single one leaves it to the reader's."""
        speech = self.speech
        assert speech is not None
        speech.sound.add(frame, last=not speech.turn.wants_frame)
        if threads > 1:
            speech.sound.make(threads)
        speech.rows[len(self.target)] = speech.source.embedding(frame)
        self.target.append(frame_key(frame, speech.source.fingerprint))
        self.deliver()
        self.events.put(frame)

    @property
    def wants_frame(self) -> bool:
        """Whether the next output is read as a frame and not as a token."""
        return self.speech is not None and self.speech.turn.wants_frame

    def finish(self, reason: GenerationFinishReason, error: BaseException | None = None) -> None:
        """Deliver the end; only the first counts."""
        if not self.ended:
            self.ended = True
            self.deliver()
            self.events.put(SequenceEnd(reason, self.stats(), error))

    def stats(self) -> GenerationStats:
        """Counts and speed so far."""
        prompt = max(self.read, self.cached)
        first = self._first_token
        decoding = 0.0 if first is None else self._last_token - first - self._paused
        speed = (self.generated - 1) / decoding if decoding > 0 and self.generated > 1 else 0.0
        return GenerationStats(
            prompt_tokens=prompt,
            completion_tokens=self.generated,
            total_tokens=prompt + self.generated,
            token_per_second=speed,
            cached_prompt_tokens=self.cached,
            time_to_first_token=0.0 if first is None else first - self.created,
            reasoning_tokens=(self.thinking.tokens or None) if self.thinking is not None else None,
            engine=other_engine(),
        )
