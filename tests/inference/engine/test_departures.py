"""Requests that are cancelled while their prompts are read, beside others: no answer changes, none waits for ever."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import pytest

from leap_core.conversation.responses import GenerationFinishReason as Reason
from leap_core.errors import LeapGenerationError
from leap_core.inference.engine.batch_plan import StepPart
from leap_core.inference.engine.request import Request
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.llama.context import ABORTED
from leap_core.inference.llama.model import LlamaModel
from tests.support.lengths import lengths
from tests.support.random_models import MEMORY_KINDS, write_random_model

from .conftest import finish, request
from .test_same_bits import asked, told, words

Make = Callable[..., Scheduler]


@pytest.fixture(scope="module", params=MEMORY_KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = tmp_path_factory.mktemp("models") / "model.gguf"
    loaded = LlamaModel(write_random_model(path, MEMORY_KINDS[request.param], "q8_0", seed=8))
    yield loaded
    loaded.close()


QUESTIONS = [(words(length, n), 12, n) for n, length in enumerate((8, 20, 40, 65, 120, 300))]


def alone(make_scheduler: Make) -> list[list[tuple[int, float]]]:
    """The answer of a fresh scheduler to each question."""
    answers = []
    for question in QUESTIONS:
        fresh = make_scheduler(slots=1)
        fresh.submit(sequence := asked(*question))
        answers.append(told(sequence))
    return answers


def before_decodes(scheduler: Scheduler, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``act`` happen between the plan of each step and its decode, when a client may leave."""
    build = scheduler._planner.build

    def hooked(parts: list[StepPart]) -> None:
        act()
        build(parts)

    monkeypatch.setattr(scheduler._planner, "build", hooked)


def test_a_slow_cancel_does_not_end_a_later_decode(make_scheduler: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cancelling thread is as slow as can be: it marks the request before a step and wakes the scheduler in the
    next one."""
    scheduler = make_scheduler()
    answering, leaving = request(words(8, 1), max_tokens=12), request(words(200, 2))
    moments: list[Callable[[], object]] = [lambda: setattr(leaving, "cancelled", True), lambda: leaving.wake(leaving)]
    both = threading.Event()

    def act() -> None:
        assert both.wait(100)
        if moments and any(slot.request is leaving for slot in scheduler._memory.slots) or len(moments) == 1:
            moments.pop(0)()

    before_decodes(scheduler, act, monkeypatch)
    scheduler.submit(answering)
    scheduler.submit(leaving)
    both.set()
    assert finish(leaving)[1].reason is Reason.INTERRUPTED
    tokens, ended = finish(answering)
    assert ended.reason is Reason.MAX_TOKENS and len(tokens) == 12 and not moments


@pytest.mark.slow
@lengths(10, 40)
def test_answers_beside_cancelled_prompts_are_unchanged(
    make_scheduler: Make, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """Each long prompt is cancelled just before a decode, or a moment later within it."""
    expected = alone(make_scheduler)
    scheduler = make_scheduler(slots=8, context_size=2048, batch_size=256)
    rng = random.Random(3)
    leaving: list[Request] = []

    def act() -> None:
        for slot in scheduler._memory.slots:
            if slot.request in leaving and rng.random() < 0.5:
                leaving.remove(slot.request)
                if rng.random() < 0.5:
                    slot.request.cancel()
                else:
                    threading.Timer(rng.uniform(0, 0.004), slot.request.cancel).start()

    before_decodes(scheduler, act, monkeypatch)
    for turn in range(rounds):
        chosen = rng.sample(range(len(QUESTIONS)), rng.choice((1, 2, 3)))
        sequences = [asked(*QUESTIONS[n]) for n in chosen]
        prompt = words(rng.randrange(1, 120), turn % 3) + words(rng.randrange(100, 800), 50 + turn)
        long = request(prompt, max_tokens=400)
        leaving.append(long)
        for sequence in rng.sample([*sequences, long], len(sequences) + 1):
            scheduler.submit(sequence)
        for n, sequence in zip(chosen, sequences, strict=True):
            assert told(sequence) == expected[n], (turn, n)
        assert finish(long)[1].reason is not Reason.ERROR, "on a busy machine it may end before it is cancelled"


def test_a_decode_aborted_without_reason_is_repeated(make_scheduler: Make) -> None:
    expected = alone(make_scheduler)
    scheduler = make_scheduler()
    for n, question in enumerate(QUESTIONS[2:5], 2):
        scheduler._context.abort()
        scheduler.submit(sequence := asked(*question))
        assert told(sequence) == expected[n]


def test_a_request_whose_decodes_are_all_aborted_fails(make_scheduler: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler()
    with monkeypatch.context() as patched:
        patched.setattr(scheduler._context, "decode", lambda **_: ABORTED)
        scheduler.submit(sequence := request(words(60, 1)))
        ended = finish(sequence)[1]
        assert isinstance(ended.error, LeapGenerationError) and "aborted" in str(ended.error)
    scheduler.submit(sequence := request(words(60, 1)))
    assert finish(sequence)[1].error is None
