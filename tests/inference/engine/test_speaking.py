"""Requests that make frames of sound among their tokens, beside requests that do not.

The frames come from a stand-in that reads them off the hidden state, so that a wrong state, a stale row or a mixed-up
request changes all that follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_core.conversation.responses import GenerationFinishReason as Reason
from leap_core.errors import LeapGenerationError
from leap_core.inference.engine.request import (
    Frame,
    FrameRows,
    PromptTokens,
    Request,
    SequenceEnd,
    SpeechFrames,
    Tokens,
    frame_key,
)
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.threads import ThreadGovernor

from .conftest import finish, request

WIDTH = 64
TEXT = list(range(300, 340))
Event = int | tuple[int, ...]


class Source:
    """Two codes a frame: where the hidden state is largest and smallest."""

    fingerprint = b"stand-in"

    def __init__(self) -> None:
        self.batches: list[int] = []
        self._table = np.random.default_rng(2).standard_normal((2, WIDTH, WIDTH)).astype(np.float32)

    def frames(self, hidden: NDArray[np.float32], samplers: Sequence[Any], threads: int) -> list[Frame]:
        self.batches.append(len(hidden))
        return [(int(row.argmax()), int(row.argmin())) for row in hidden]

    def embedding(self, frame: Frame) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._table[0, frame[0]] + self._table[1, frame[1]]
        return row


class Slow(Source):
    SECONDS = 0.02

    def frames(self, hidden: NDArray[np.float32], samplers: Sequence[Any], threads: int) -> list[Frame]:
        time.sleep(self.SECONDS)
        return super().frames(hidden, samplers, threads)


class Sound:
    """Notes which frames there were, ``!`` after the last before a token."""

    def __init__(self) -> None:
        self.frames = ""
        self.threads: list[int] = []

    def add(self, frame: Frame, *, last: bool) -> None:
        self.frames += "f!" if last else "f"

    def make(self, threads: int) -> None:
        self.threads.append(threads)


class Turn:
    """``pattern``: "t" for a token and "f" for a frame, over and over."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._taken = 0

    @property
    def wants_frame(self) -> bool:
        return self._pattern[self._taken % len(self._pattern)] == "f"

    def take_token(self, token: int) -> None:
        self._taken += 1

    def take_frame(self, codes: Frame) -> Frame:
        self._taken += 1
        return codes


SOURCE = Source()


def speaking(ids: list[int], pattern: str = "ttffft", max_tokens: int = 24, **given: Any) -> Request:
    made = request(ids, max_tokens, **given)
    made.speech = SpeechFrames(SOURCE, Turn(pattern), None, Sound())  # type: ignore[arg-type]
    return made


def events(made: Request) -> tuple[list[Event], SequenceEnd]:
    return finish(made)  # type: ignore[return-value]


def test_tokens_and_frames_come_in_the_order_of_the_turn(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler()
    made = speaking(TEXT)
    scheduler.submit(made)
    items, end = events(made)
    assert end.reason is Reason.MAX_TOKENS and end.stats.completion_tokens == len(items) == 24
    assert "".join("t" if isinstance(item, int) else "f" for item in items) == "ttffft" * 4
    assert len(set(items)) > 8, "each state leads to another frame"


def test_the_voice_gets_each_frame_and_a_mark_at_the_last_before_text(
    make_scheduler: Callable[..., Scheduler],
) -> None:
    made = speaking(TEXT, "ttffft", 12)
    make_scheduler().submit(made)
    events(made)
    assert isinstance(made.speech, SpeechFrames) and made.speech.sound.frames == "fff!fff!"  # type: ignore[attr-defined]


def test_the_thread_governor_counts_the_full_time_of_frames(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[int, float]] = []
    monkeypatch.setattr(ThreadGovernor, "observe", lambda _, size, seconds, computing: steps.append((size, seconds)))
    made = speaking(TEXT, "ttffft", 12)
    assert made.speech is not None
    made.speech.source = Slow()
    make_scheduler().submit(made)
    events(made)
    sizes = [size for size, _ in steps]
    assert sizes.count(-1) == 6 and sizes.count(1) >= 4
    assert all(seconds >= Slow.SECONDS for size, seconds in steps if size == -1)


def test_the_first_frame_is_delivered_at_once(make_scheduler: Callable[..., Scheduler]) -> None:
    """The prompt's own last position may be read as a hidden state."""
    made = speaking(TEXT, "f", 3)
    make_scheduler().submit(made)
    assert all(isinstance(item, tuple) for item in events(made)[0])


@pytest.mark.slow
def test_speaking_and_text_requests_in_one_context_do_not_change_each_other(
    make_scheduler: Callable[..., Scheduler],
) -> None:
    def requests() -> list[Request]:
        patterns = ("ttffft", "f", "tf", "ffft")
        spoken = [speaking([*TEXT, 400 + n], pattern) for n, pattern in enumerate(patterns)]
        return [*spoken, *(request([*TEXT[:10], 500 + n], 30) for n in range(3))]

    scheduler = make_scheduler(slots=1)
    alone = []
    for made in requests():
        scheduler.submit(made)
        alone.append(events(made)[0])
    scheduler = make_scheduler(slots=8)
    SOURCE.batches.clear()
    together = requests()
    for made in together:
        scheduler.submit(made)
    assert [events(made)[0] for made in together] == alone
    assert max(SOURCE.batches) > 1, "frames of several requests are made at once"


@pytest.mark.slow
def test_a_requeued_speaking_request_resumes_unchanged(make_scheduler: Callable[..., Scheduler]) -> None:
    def pair() -> list[Request]:
        return [speaking([*TEXT, 400 + n], "tfffft", 150) for n in range(2)]

    roomy = make_scheduler(cells=2048)
    expected = []
    for made in pair():
        roomy.submit(made)
        expected.append(events(made)[0])
    tight = make_scheduler(slots=2, cells=256, context_size=256)  # for one of them, not for both
    both = pair()
    for made in both:
        tight.submit(made)
    assert [events(made)[0] for made in both] == expected


def test_the_next_turn_finds_its_frames_in_memory(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler()
    first = speaking(TEXT, "ttffft", 18)
    scheduler.submit(first)
    items, _ = events(first)
    segments: list[Any] = [Tokens(tuple(TEXT))]
    for item in items:
        segments.append(Tokens((item,)) if isinstance(item, int) else FrameRows.of([item], SOURCE))
    segments.append(Tokens((350, 351, 352)))
    prompt = PromptTokens(tuple(segments))
    assert prompt.keys[: len(first.target)] == first.target

    def second() -> Request:
        made = speaking([1], "tf", 8)
        made.prompt, made.target = prompt, list(prompt.keys)
        return made

    warm = second()
    scheduler.submit(warm)
    warm_items, end = events(warm)
    assert end.stats.cached_prompt_tokens >= len(first.target) - 1
    fresh = make_scheduler()
    cold = second()
    fresh.submit(cold)
    cold_items, end = events(cold)
    assert end.stats.cached_prompt_tokens == 0
    assert warm_items == cold_items


def test_frames_of_other_weights_have_other_keys() -> None:
    assert frame_key((1, 2), b"a") != frame_key((1, 2), b"b") != frame_key((2, 1), b"b")
    assert frame_key((1, 2), b"a") == frame_key((1, 2), b"a") < 0


def test_penalties_apply_only_to_text_tokens(make_scheduler: Callable[..., Scheduler]) -> None:
    made = speaking(TEXT, "tff", 30, repetition_penalty=1.3, temperature=0.7, rng_seed=4)
    make_scheduler().submit(made)
    assert events(made)[1].reason is Reason.MAX_TOKENS


def test_the_end_of_the_context_ends_the_audio(make_scheduler: Callable[..., Scheduler]) -> None:
    made = speaking(TEXT, "f", 500)
    make_scheduler(context_size=64).submit(made)
    items, end = events(made)
    assert end.reason is Reason.EXCEED_CONTEXT and len(items) == 64 - len(TEXT) + 1


def test_a_request_can_be_cancelled_among_frames(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(context_size=2000)
    made = speaking(TEXT, "f", 1900)
    scheduler.submit(made)
    for _ in range(5):
        assert isinstance(made.events.get(timeout=30), tuple)
    made.cancel()
    _, end = events(made)
    assert end.reason is Reason.INTERRUPTED
    after = request(TEXT, 4)
    scheduler.submit(after)
    assert events(after)[1].reason is Reason.MAX_TOKENS


@pytest.mark.parametrize("failure", [LeapGenerationError("no voice"), ValueError("shapes")])
def test_a_failing_voice_fails_only_its_own_requests(
    make_scheduler: Callable[..., Scheduler], failure: Exception
) -> None:
    class Broken(Source):
        def frames(self, hidden: NDArray[np.float32], samplers: Sequence[Any], threads: int) -> list[Frame]:
            raise failure

    scheduler = make_scheduler()
    broken, text, spoken = speaking(TEXT, "tf"), request(TEXT[:20], 40), speaking(TEXT[:30], "tf")
    broken.speech = SpeechFrames(Broken(), Turn("tf"), None, Sound())  # type: ignore[arg-type]
    for made in (broken, text, spoken):
        scheduler.submit(made)
    _, end = events(broken)
    assert end.reason is Reason.ERROR and str(failure) in str(end.error)
    assert events(text)[1].reason is events(spoken)[1].reason is Reason.MAX_TOKENS
