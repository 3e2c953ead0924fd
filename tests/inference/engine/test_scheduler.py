"""The scheduler on real llama.cpp: reuse of prefixes, mixing, cancelling, limits, room."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from leap_core.conversation.responses import GenerationFinishReason as Reason
from leap_core.errors import LeapGenerationError, LeapGenerationPromptExceedContextLengthError
from leap_core.inference.engine.compute_loop import compute_loop
from leap_core.inference.engine.request import PromptTokens, Request, SequenceEnd, Tokens
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.llama.context import NO_KV_SLOT
from leap_core.inference.llama.model import LlamaModel

from .conftest import finish, request
from .prompts import embeddings_of

Make = Callable[..., Scheduler]


def words(count: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(300, 1000) for _ in range(count)]


def computed(ended: SequenceEnd) -> int:
    """Prompt tokens that no slot and no snapshot had."""
    return ended.stats.prompt_tokens - ended.stats.cached_prompt_tokens


def run(scheduler: Scheduler, sequence: Request) -> tuple[list[int], int, int]:
    """Tokens, computed and cached prompt tokens of a request that must end well."""
    scheduler.submit(sequence)
    tokens, ended = finish(sequence)
    assert ended.error is None
    return tokens, computed(ended), ended.stats.cached_prompt_tokens


def test_a_continued_conversation_computes_only_new_tokens(make_scheduler: Make) -> None:
    scheduler = make_scheduler()
    first = words(100)
    reply, fresh, cached = run(scheduler, request(first, boundaries=(40, 97)))
    assert (fresh, cached) == (100, 0)
    longer = [*first, *reply, *words(20, seed=1)]
    again, fresh, cached = run(scheduler, request(longer, boundaries=(40, 97, 118)))
    assert fresh == 21 and cached == 100 + len(reply) - 1  # the last token was sampled but never decoded
    assert again == run(make_scheduler(), request(longer))[0]


@pytest.mark.parametrize("kept", [40, 97, 70])
def test_an_edited_history_goes_back_to_a_boundary(make_scheduler: Make, model: LlamaModel, kept: int) -> None:
    scheduler = make_scheduler()
    first = words(100)
    run(scheduler, request(first, boundaries=(40, 97)))
    edited = [*first[:kept], *words(30, seed=2)]
    tokens, fresh, cached = run(scheduler, request(edited, boundaries=(40,)))
    assert cached == (kept if not model.is_hybrid else max(b for b in (40, 97) if b <= kept))
    assert tokens == run(make_scheduler(), request(edited))[0]


def test_regenerating_computes_a_few_tokens(make_scheduler: Make) -> None:
    scheduler = make_scheduler()
    prompt = words(200)
    tokens, *_ = run(scheduler, request(prompt, boundaries=(50, 196)))
    again, fresh, cached = run(scheduler, request(prompt, boundaries=(50, 196)))
    assert again == tokens
    assert fresh <= 4 and cached >= 196


def test_an_unrelated_prompt_leaves_the_other_conversation_cached(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=2)
    one, two = words(80, seed=3), words(80, seed=4)
    replies = [run(scheduler, request(prompt))[0] for prompt in (one, two)]
    for prompt, reply in zip((one, two), replies, strict=True):
        assert run(scheduler, request([*prompt, *reply, *words(5)]))[2] >= 80


@pytest.mark.slow
def test_a_prefix_shared_by_many_requests_is_computed_once(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=8)
    prefix = words(200)
    prompts = [[*prefix, *words(10, seed=n)] for n in range(24)]
    sequences = [request(prompt, max_tokens=4, boundaries=(200,)) for prompt in prompts]
    for sequence in sequences:
        scheduler.submit(sequence)
    ended = [finish(sequence) for sequence in sequences]
    assert sum(computed(end) for _, end in ended) == 200 + 24 * 10
    alone = make_scheduler()
    assert [tokens for tokens, _ in ended] == [run(alone, request(p, max_tokens=4))[0] for p in prompts]


def test_concurrent_identical_prompts_are_computed_once(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=4)
    prompt = words(150)
    sequences = [request(prompt, max_tokens=5) for _ in range(4)]
    for sequence in sequences:
        scheduler.submit(sequence)
    ended = [finish(sequence) for sequence in sequences]
    assert len({tuple(tokens) for tokens, _ in ended}) == 1
    # The first may have begun before the second came, and then two have computed the whole of it.
    assert sum(computed(end) for _, end in ended) <= 2 * 150 + 4


@pytest.mark.slow
def test_soak_every_answer_equals_the_one_generated_alone(make_scheduler: Make) -> None:
    scheduler, alone = make_scheduler(slots=8, context_size=512), make_scheduler(slots=1, context_size=512)
    rng = random.Random(9)
    expected: dict[int, list[int]] = {}
    submitted = []
    for n in range(60):
        shared = words(64, seed=rng.randrange(3))
        prompt = [*shared, *words(rng.randrange(1, 200), seed=100 + n)]
        length = rng.randrange(1, 40)
        seeded = {"temperature": 1.0, "rng_seed": n} if n % 3 == 0 else {}
        expected[n] = run(alone, request(prompt, max_tokens=length, **seeded))[0]
        submitted.append((n, request(prompt, max_tokens=length, boundaries=(64,), **seeded)))
    for n, sequence in submitted:
        scheduler.submit(sequence)
        if n % 7 == 0:
            time.sleep(0.002)
            sequence.cancel()
    for n, sequence in submitted:
        tokens, ended = finish(sequence)
        assert ended.reason in (Reason.MAX_TOKENS, Reason.STOP, Reason.INTERRUPTED)
        assert tokens == (expected[n][: len(tokens)] if ended.reason is Reason.INTERRUPTED else expected[n])
    assert not scheduler.has_work()


def test_cancel_while_decoding_keeps_the_tokens(make_scheduler: Make) -> None:
    scheduler = make_scheduler()
    sequence = request(words(10), max_tokens=1000)
    scheduler.submit(sequence)
    first = sequence.events.get(timeout=30)
    sequence.cancel()
    rest, ended = finish(sequence)
    assert isinstance(first, list) and ended.reason is Reason.INTERRUPTED
    assert ended.stats.completion_tokens == len(rest) + len(first) < 1000


def test_cancel_while_waiting(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=1)
    running, waiting = request(words(10), max_tokens=900), request(words(10, seed=1))
    scheduler.submit(running)
    scheduler.submit(waiting)
    waiting.cancel()
    tokens, ended = finish(waiting)
    assert tokens == [] and ended.reason is Reason.INTERRUPTED
    running.cancel()
    assert finish(running)[1].reason is Reason.INTERRUPTED


@pytest.mark.slow
def test_cancel_during_prefill_does_not_affect_others(make_scheduler: Make) -> None:
    scheduler = make_scheduler(context_size=4096, cells=12000, batch_size=4096)
    short, endless = words(20), {"logit_bias": {2: -100.0, 7: -100.0}}
    expected = run(make_scheduler(), request(short, max_tokens=300, **endless))[0]
    answering = request(short, max_tokens=300, **endless)
    scheduler.submit(answering)
    answering.events.get(timeout=30)
    for n in range(5):
        long = request(words(4000, seed=n), max_tokens=5)
        scheduler.submit(long)
        time.sleep(0.01)
        long.cancel()
        assert finish(long)[1].reason in (Reason.INTERRUPTED, Reason.MAX_TOKENS)
    tokens, ended = finish(answering)
    assert ended.reason is Reason.MAX_TOKENS
    assert tokens == expected[1:]


def test_a_prompt_beyond_the_context_is_refused_before_any_work(make_scheduler: Make) -> None:
    scheduler = make_scheduler(context_size=64)
    with pytest.raises(LeapGenerationPromptExceedContextLengthError) as caught:
        scheduler.submit(request(words(65)))
    assert (caught.value.prompt_tokens, caught.value.context_size) == (65, 64)


def test_the_end_of_the_context_ends_the_answer(make_scheduler: Make) -> None:
    scheduler = make_scheduler(context_size=64, slots=1)
    sequence = request(words(50), max_tokens=None)
    scheduler.submit(sequence)
    tokens, ended = finish(sequence)
    assert ended.reason in (Reason.EXCEED_CONTEXT, Reason.STOP)
    assert len(tokens) <= 15
    if ended.reason is Reason.EXCEED_CONTEXT:
        assert len(tokens) == 15  # 14 more are decoded, and the last one need not be


@pytest.mark.slow
def test_too_few_cells_make_requests_take_turns(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=4, context_size=512, cells=512)
    prompts = [words(200, seed=n) for n in range(4)]
    sequences = [request(prompt, max_tokens=100) for prompt in prompts]
    for sequence in sequences:
        scheduler.submit(sequence)
    for sequence, prompt in zip(sequences, prompts, strict=True):
        tokens, ended = finish(sequence)
        assert ended.error is None and ended.reason in (Reason.MAX_TOKENS, Reason.STOP)
        assert tokens[:10] == run(make_scheduler(), request(prompt, max_tokens=10))[0]


def test_an_error_of_one_request_does_not_affect_others(make_scheduler: Make) -> None:
    class Broken:
        finished = False

        def apply(self, logits: object) -> None:
            raise ZeroDivisionError("broken constraint")

        def accept(self, token: int) -> None: ...

        def forced_tokens(self) -> list[int]:
            return []

    scheduler = make_scheduler()
    good, bad = request(words(30), max_tokens=50), request(words(30, seed=1))
    bad.constraint = Broken()
    scheduler.submit(good)
    scheduler.submit(bad)
    ended = finish(bad)[1]
    assert ended.reason is Reason.ERROR and "broken constraint" in str(ended.error)
    assert finish(good)[1].error is None
    run(scheduler, request(words(30, seed=1)))


def test_closing_ends_everything_with_an_error(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=1)
    running, waiting = request(words(10), max_tokens=900), request(words(10, seed=1))
    scheduler.submit(running)
    scheduler.submit(waiting)
    running.events.get(timeout=30)
    scheduler.close()
    assert finish(running)[1].reason is Reason.ERROR
    assert finish(waiting)[1].reason is Reason.ERROR
    with pytest.raises(LeapGenerationError, match="unloaded"):
        scheduler.submit(request(words(5)))


def test_embeddings_stand_for_their_tokens(make_scheduler: Make, model: LlamaModel) -> None:
    """Rows of the model's own embedding table, given as embeddings, must lead to the same answer."""
    import gguf

    tensor = next(t for t in gguf.GGUFReader(model.path).tensors if t.name == "token_embd.weight")
    table = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(-1, model.width)
    ids = words(60)
    segments = (Tokens(tuple(ids[:20])), embeddings_of(table[ids[20:50]], b"picture"), Tokens(tuple(ids[50:])))
    sequence = request(ids, max_tokens=8)
    mixed = Request(PromptTokens(segments, boundaries=(35,)), sequence.sampler, max_tokens=8)
    scheduler = make_scheduler()
    tokens, fresh, cached = run(scheduler, mixed)
    assert fresh == 60
    assert tokens == run(make_scheduler(), request(ids, max_tokens=8))[0]
    again = Request(PromptTokens(segments, boundaries=(35,)), request(ids).sampler, max_tokens=8)
    assert run(scheduler, again)[0] == tokens and again.cached >= 35
    other = Request(
        PromptTokens((segments[0], embeddings_of(table[ids[20:50]], b"another"), segments[2])),
        request(ids).sampler,
        max_tokens=1,
    )
    run(scheduler, other)
    assert other.cached <= 20


def test_equal_seeds_give_equal_texts(make_scheduler: Make) -> None:
    scheduler = make_scheduler()
    drawn = [run(scheduler, request(words(40), temperature=1.0, rng_seed=5))[0] for _ in range(2)]
    other = run(scheduler, request(words(40), temperature=1.0, rng_seed=6))[0]
    assert drawn[0] == drawn[1] != other


@pytest.mark.slow
def test_two_models_take_turns_in_one_thread(make_scheduler: Make) -> None:
    one, two = make_scheduler(), make_scheduler()
    prompts = [words(40, seed=n) for n in range(4)]
    expected = [run(make_scheduler(), request(prompt, max_tokens=60))[0] for prompt in prompts]
    sequences = [request(prompt, max_tokens=60) for prompt in prompts]
    for n, sequence in enumerate(sequences):
        (one, two)[n % 2].submit(sequence)
    one_first = finish(sequences[0])[0]
    one.close()
    assert one_first == expected[0]
    assert [finish(sequences[n])[0] for n in (1, 3)] == [expected[1], expected[3]]
    assert sum(thread.name == "leap-compute" for thread in threading.enumerate()) == 1


@pytest.mark.slow
def test_a_prompt_reports_its_progress(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=1, batch_size=16)
    run(scheduler, request(words(100), boundaries=(90,), max_tokens=1))
    long = request(words(100) + words(500, seed=1), max_tokens=1)
    assert (long.progress.total, long.progress.processed) == (600, 0)
    scheduler.submit(long)
    seen = [long.progress]
    while seen[-1].processed < 600:
        time.sleep(0.001)
        seen.append(long.progress)
    finish(long)
    done = long.progress
    assert 90 <= done.cached <= 100 and done.processed == done.total == 600
    counts = [each.processed for each in seen]
    assert counts == sorted(counts) and any(done.cached < count < 600 for count in counts)
    assert done == long.progress and 0 < done.seconds < 60  # the clock stops with the first token


@pytest.mark.slow
def test_a_short_prompt_is_answered_while_a_long_one_is_read(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=8, batch_size=64)
    long, short = request(words(1000), max_tokens=1), request(words(34, seed=1), max_tokens=4)
    scheduler.submit(long)
    while not long.read:
        time.sleep(0.001)
    scheduler.submit(short)
    assert finish(short)[1].reason in (Reason.MAX_TOKENS, Reason.STOP)
    assert long.read < 800
    assert finish(long)[1].error is None


def test_no_request_waits_for_a_prompt_longer_than_what_that_saves(make_scheduler: Make) -> None:
    """The first answer left 300 positions of the beginning behind, and the long prompt reads them anew."""
    scheduler = make_scheduler(slots=4)
    run(scheduler, request(words(300), max_tokens=1, boundaries=(290,)))
    known = next(slot for slot in scheduler._memory.slots if slot.keys)
    long = request(words(340) + words(300, seed=1))
    reading = next(slot for slot in scheduler._memory.slots if slot is not known)
    reading.request = long
    assert not scheduler._admission._should_wait(request(words(340) + words(9, seed=2)), 290)
    assert scheduler._admission._should_wait(request(words(340) + words(9, seed=2)), 0)
    reading.request = None


@pytest.mark.slow
def test_a_short_request_is_answered_while_the_cells_are_full(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=4, context_size=1024, cells=1024)
    running = request(words(600), max_tokens=400, logit_bias={2: -100.0, 7: -100.0})
    too_much = request(words(450, seed=1), max_tokens=1)
    scheduler.submit(running)
    running.events.get(timeout=30)
    scheduler.submit(too_much)
    while not scheduler._admissions_held:
        time.sleep(0.001)
    run(scheduler, request(words(20, seed=2), max_tokens=2))
    assert not running.ended
    assert finish(running)[1].error is finish(too_much)[1].error is None


def test_the_same_prompt_counts_the_same_tokens_again(make_scheduler: Make) -> None:
    scheduler = make_scheduler()
    counts = []
    for _ in range(2):
        scheduler.submit(sequence := request(words(100), max_tokens=5, boundaries=(90,)))
        stats = finish(sequence)[1].stats
        counts.append((stats.prompt_tokens, stats.total_tokens))
        assert stats.total_tokens == stats.prompt_tokens + stats.completion_tokens
    assert counts[0] == counts[1] and counts[0][0] == 100 > stats.cached_prompt_tokens >= 90


def test_the_last_token_of_a_prompt_counts_where_its_decode_found_no_room_at_first(
    make_scheduler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decode is run again as it was planned, and then is not the next token of an answer."""
    scheduler, prompt, given = make_scheduler(), words(100), {"max_tokens": 5, "boundaries": (99,)}
    run(scheduler, request(words(50, seed=1)))  # what it leaves is given up for room
    expected = run(scheduler, request(prompt, **given))[0]
    decode, codes = scheduler._context.decode, [NO_KV_SLOT]
    monkeypatch.setattr(scheduler._context, "decode", lambda **how: codes.pop() if codes else decode(**how))
    scheduler.submit(sequence := request(prompt, **given))
    tokens, ended = finish(sequence)
    assert tokens == expected and not codes
    assert (ended.stats.prompt_tokens, ended.stats.cached_prompt_tokens) == (100, 99)


@pytest.mark.slow
def test_steps_without_progress_are_a_stall_and_one_long_step_is_not(
    make_scheduler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leap_core.conversation.generator.STALLED_SECONDS", 0.3)
    scheduler = make_scheduler()
    assert not scheduler.activity().is_stalled
    decode = scheduler._context.decode
    with monkeypatch.context() as patched:
        patched.setattr(scheduler._context, "decode", lambda **given: time.sleep(0.8) or decode(**given))
        scheduler.submit(sequence := request(words(10), max_tokens=1))
        time.sleep(0.5)
        activity = scheduler.activity()
        assert (activity.step, activity.running, activity.slots) == ("decode of 10 positions", 1, 4)
        assert activity.step_seconds > 0.3 and not activity.is_stalled
        finish(sequence)
    with monkeypatch.context() as patched:
        patched.setattr(scheduler, "_decode", lambda parts: time.sleep(0.01))
        patched.setattr(scheduler._planner, "going_on", lambda running: None)
        scheduler.submit(sequence := request(words(10), max_tokens=1))
        deadline = time.monotonic() + 100
        while not scheduler.activity().is_stalled:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finish(sequence)
    assert not scheduler.activity().is_stalled


@pytest.mark.slow
def test_a_long_step_of_another_model_is_not_a_stall(make_scheduler: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leap_core.conversation.generator.STALLED_SECONDS", 0.3)
    busy, waiting = make_scheduler(), make_scheduler()
    begun, release, decode = threading.Event(), threading.Event(), busy._context.decode

    def slow(**given: bool) -> int:
        begun.set()
        release.wait(100)
        return decode(**given)

    monkeypatch.setattr(busy._context, "decode", slow)
    busy.submit(first := request(words(10), max_tokens=1))
    assert begun.wait(100)
    waiting.submit(second := request(words(10), max_tokens=1))
    time.sleep(0.5)
    activity = waiting.activity()
    release.set()
    assert activity.waiting == 1 and activity.step == "step of another model" and not activity.is_stalled
    assert finish(first)[1].error is finish(second)[1].error is None


def test_extreme_options_give_no_warnings_in_batched_sampling(make_scheduler: Make) -> None:
    scheduler = make_scheduler()
    extreme = [request(words(10 + n), max_tokens=3, logit_bias={11: 1e39}) for n in range(4)]
    with compute_loop.changed:  # so that all of them are sampled together
        for each in extreme:
            scheduler.submit(each)
    ends = [finish(each) for each in extreme]
    assert [(tokens, end.error) for tokens, end in ends] == [([11, 11, 11], None)] * 4


def test_a_stopped_prompt_counts_its_computed_tokens(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=1, batch_size=16, context_size=2048)
    long = request(words(1500), max_tokens=1)
    scheduler.submit(long)
    while long.read < 32:
        time.sleep(0.001)
    long.cancel()
    stats = finish(long)[1].stats
    assert 32 <= stats.prompt_tokens == long.read < 1500
    waiting = request(words(100, seed=1))
    waiting.cancel()
    scheduler.submit(waiting)
    assert finish(waiting)[1].stats.prompt_tokens == 0
