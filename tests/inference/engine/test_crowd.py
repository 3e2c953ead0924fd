"""Many answers at once: sampled together, delivered several tokens at a time, and each as it is alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from leap_core import ChatMessage, GenerationOptions, ModelLoadingOptions
from leap_core.conversation.responses import Chunk, Complete, ReasoningChunk
from leap_core.inference.engine import delivery, scheduler
from leap_core.inference.engine.sampler import Sampler
from leap_core.inference.runner import InProcessRunner
from tests.support.random_models import TINY_LFM2, write_random_model

from .test_thinking import OPENING

REQUESTS = 12
SCHEMA = '{"enum": ["one", "two", "three"]}'
KINDS = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.02},
    {"temperature": 0.9, "top_k": 0},
    {"temperature": 0.7, "logprobs": True},
    {"temperature": 0.7, "repetition_penalty": 1.3},
    {"json_schema_constraint": SCHEMA, "inject_schema_into_prompt": False},
)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory):
    path = write_random_model(tmp_path_factory.mktemp("crowd") / "m.gguf", TINY_LFM2, "q8_0")
    options = ModelLoadingOptions(chat_template=OPENING, context_size=256, slots=REQUESTS, cpu_threads=1)
    with InProcessRunner(Path(path), "m", options) as loaded:
        yield loaded


def answer(runner: InProcessRunner, number: int) -> tuple[list[object], Complete]:
    """The responses of one request, and how it ended; what came in pieces has to be what the message says."""
    options = GenerationOptions(
        rng_seed=number, enable_thinking=True, max_tokens=40, think_budget=number % 3 * 9, **KINDS[number % len(KINDS)]
    )
    responses = list(runner.start([ChatMessage("user", f"Hi {number}")], (), options))
    end = responses[-1]
    assert isinstance(end, Complete)
    pieces = [each.text for each in responses if isinstance(each, Chunk)]
    thoughts = [each.reasoning for each in responses if isinstance(each, ReasoningChunk)]
    assert "".join(pieces) == end.full_message.text
    assert "".join(thoughts).strip() == (end.full_message.reasoning_content or "").strip()
    return responses[:-1], end


@pytest.mark.slow
def test_concurrent_answers_equal_those_generated_alone(
    runner: InProcessRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [answer(runner, number) for number in range(REQUESTS)]
    monkeypatch.setattr(delivery, "DELIVERY_SECONDS", 1e9)  # so that many tokens come together
    monkeypatch.setattr(delivery, "CROWD", 1)  # however late the others begin
    found: dict[int, tuple[list[object], Complete]] = {}
    threads = [
        threading.Thread(target=lambda number=number: found.update({number: answer(runner, number)}))
        for number in range(REQUESTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    for number, (_, end) in enumerate(alone):
        assert found[number][1].full_message == end.full_message and found[number][1].logprobs == end.logprobs
        assert found[number][1].stats.completion_tokens == end.stats.completion_tokens
    assert sum(len(each[0]) for each in found.values()) < sum(len(each[0]) for each in alone), "pieces were joined"


def test_a_failing_request_fails_alone(runner: InProcessRunner, monkeypatch: pytest.MonkeyPatch) -> None:

    prepare = Sampler.prepare

    def failing(self: Sampler, logits, constraint) -> None:
        if self.temperature == 0.123:
            raise ValueError("no")
        prepare(self, logits, constraint)

    monkeypatch.setattr(Sampler, "prepare", failing)
    errors: list[str] = []
    texts: list[str] = []

    def ask(number: int) -> None:
        temperature = 0.123 if number == 5 else 0.5
        options = GenerationOptions(rng_seed=1, max_tokens=10, temperature=temperature, think_budget=0)
        try:
            texts.append(list(runner.start([ChatMessage("user", "Hi")], (), options))[-1].full_message.text)
        except Exception as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(REQUESTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert len(errors) == 1 and "sampling: no" in errors[0] and len(texts) == REQUESTS - 1 and len(set(texts)) == 1


@pytest.mark.slow
def test_no_token_is_held_back_while_a_prompt_is_read(runner: InProcessRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "DELIVERY_SECONDS", 1e9)
    decode, held = scheduler.Scheduler._decode, []

    def noting(self: scheduler.Scheduler, parts) -> bool:
        if any(part.count > scheduler.LONG_STEP for part in parts):
            requests = [slot.request for slot in self._running()]
            held.append((len(requests), sum(len(each._undelivered) for each in requests if each is not None)))
        return decode(self, parts)

    monkeypatch.setattr(scheduler.Scheduler, "_decode", noting)
    options = GenerationOptions(rng_seed=1, max_tokens=100, repetition_detection=False)
    begun = [runner.start([ChatMessage("user", f"Hi {number}")], (), options) for number in range(REQUESTS - 1)]
    long = runner.start([ChatMessage("user", "word " * 60)], (), options)
    for each in (*begun, long):
        list(each)
    assert held and all(count == 0 for _, count in held)


@pytest.mark.slow
def test_no_token_is_held_back_when_another_model_may_run_next(
    runner: InProcessRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "DELIVERY_SECONDS", 1e9)
    monkeypatch.setattr(delivery, "CROWD", 1)
    monkeypatch.setattr(type(scheduler.compute_loop), "is_shared", True)
    step, held = scheduler.Scheduler._step, []

    def noting(self: scheduler.Scheduler) -> None:
        step(self)
        requests = [slot.request for slot in self._running()]
        held.extend(len(each._undelivered) for each in requests if each is not None)

    monkeypatch.setattr(scheduler.Scheduler, "_step", noting)
    options = GenerationOptions(rng_seed=1, max_tokens=20, repetition_detection=False)
    list(runner.start([ChatMessage("user", "Hi")], (), options))
    assert held and not any(held)
