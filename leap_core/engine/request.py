"""One request on its way through the scheduler: what was asked, what was generated, and how it ended."""

from __future__ import annotations

import queue
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

from ..responses import GenerationFinishReason
from ..statistics import GenerationStats
from .frames import Frame, Speech, frame_key
from .prompt_segments import Prompt
from .sampling.lookup_drafts import PromptLookup
from .sampling.repetition import RepetitionWatch
from .sampling.sampler import Sampler
from .sampling.token_scores import ScoreRecorder, TokenScore

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from ..constraints.contract import TokenConstraint
    from ..llama.lora_adapter import LlamaAdapter


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
class Finished:
    """The last event of a request. ``error`` is set exactly when ``reason`` is ERROR."""

    reason: GenerationFinishReason
    stats: GenerationStats
    error: BaseException | None = None


class Request:
    """A request and its progress. The scheduler's thread writes; the caller reads ``events`` and may ``cancel``."""

    def __init__(
        self,
        prompt: Prompt,
        sampler: Sampler,
        *,
        max_tokens: int | None = None,
        constraint: TokenConstraint | None = None,
        adapters: Adapters = (),
        speech: Speech | None = None,
        prompt_recorder: ScoreRecorder | None = None,
        lookup: PromptLookup | None = None,
        watch: RepetitionWatch | None = None,
    ) -> None:
        self.prompt = prompt
        self.prompt_recorder = prompt_recorder
        """Notes how likely the tokens of the prompt after its first are; then all of the prompt is computed."""
        self.adapters = adapters
        self.variant = variant_of(adapters)
        """Names what changes the meaning of equal keys: no state is shared between variants."""
        self.sampler = sampler
        self.max_tokens = max_tokens
        self.constraint = constraint
        self.speech = speech
        self.lookup = lookup
        self.watch = watch
        """Ends the answer when it goes in circles."""
        self.events: queue.SimpleQueue[int | Frame | Finished] = queue.SimpleQueue()
        """Token ids and frames in order, then one Finished."""
        self.target = list(prompt.keys)
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
        self._created = time.perf_counter()
        self._first_token: float | None = None
        self._last_token = 0.0

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

    def note_time(self) -> None:
        """A token was sampled now."""
        self._last_token = time.perf_counter()
        if self._first_token is None:
            self._first_token = self._last_token

    def emit(self, token: int) -> None:
        """Deliver a generated token."""
        self.target.append(token)
        self.sampler.accept(token)
        if self.speech is not None:
            self.speech.turn.take_token(token)
        self.events.put(token)

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
        self.events.put(frame)

    @property
    def wants_frame(self) -> bool:
        """Whether the next output is read as a frame and not as a token."""
        return self.speech is not None and self.speech.turn.wants_frame

    def finish(self, reason: GenerationFinishReason, error: BaseException | None = None) -> None:
        """Deliver the end; only the first counts."""
        if not self.ended:
            self.ended = True
            self.events.put(Finished(reason, self._stats(), error))

    def _stats(self) -> GenerationStats:
        prompt = max(0, self.read - self.cached)
        first = self._first_token
        decoding = 0.0 if first is None else self._last_token - first
        speed = (self.generated - 1) / decoding if decoding > 0 and self.generated > 1 else 0.0
        return GenerationStats(
            prompt_tokens=prompt,
            completion_tokens=self.generated,
            total_tokens=prompt + self.generated,
            token_per_second=speed,
            cached_prompt_tokens=self.cached,
            time_to_first_token=0.0 if first is None else first - self._created,
        )
