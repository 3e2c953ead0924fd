"""A request of a lower level gives its slot to one of a higher level, and goes on later as if nothing had been."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from leap_core.conversation.options import CacheOptions, GenerationOptions
from leap_core.conversation.priority import BATCH, INTERACTIVE
from leap_core.conversation.responses import GenerationFinishReason as Reason
from leap_core.errors import LeapGenerationError
from leap_core.inference.constraints.compiling import compile_constraint
from leap_core.inference.constraints.delayed_end import DelayedEnd
from leap_core.inference.engine import interruption, waiting
from leap_core.inference.engine.batch_plan import LONG_STEP, StepPart
from leap_core.inference.engine.compute_loop import compute_loop
from leap_core.inference.engine.request import Request, SequenceEnd
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.slots import Admission, Slot, SlotMemory
from leap_core.inference.engine.snapshots import SnapshotStore
from leap_core.inference.llama.context import ABORTED
from leap_core.inference.llama.model import LlamaModel
from tests.support.lengths import lengths
from tests.support.random_models import MEMORY_KINDS, write_random_model

from .conftest import finish, request

Make = Callable[..., Scheduler]
Known = dict[int, list[tuple[int, float]]]
PATIENCE = 100.0
"""Seconds that only a hang takes."""


@pytest.fixture(scope="module", params=MEMORY_KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = tmp_path_factory.mktemp("models") / "model.gguf"
    loaded = LlamaModel(write_random_model(path, MEMORY_KINDS[request.param], "q8_0"))
    yield loaded
    loaded.close()


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "SHARE_OF_TIME", 0)


def words(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(300, 1000) for _ in range(count)]


def asked(prompt: list[int], length: int, priority: int, **given: object) -> Request:
    made = request(prompt, max_tokens=length, boundaries=(20,), logprobs=True, **given)
    made.priority = priority
    return made


def mixes() -> list[object]:
    """Kinds of memory, slots and places of states: a kind has one or four slots, the other mixes are long tests."""
    chosen = []
    for kind, slots, place in itertools.product(MEMORY_KINDS, (1, 2, 4), ("memory", "disk")):
        number = list(MEMORY_KINDS).index(kind)
        usual = (slots, place) == ((1, "memory"), (4, "disk"), (4, "memory"))[number % 3]
        chosen.append(pytest.param(kind, slots, place, marks=() if usual else pytest.mark.long))
    return chosen


def line(n: int) -> Request:
    """A line of a batch: every second one is sampled, with a seed."""
    temperature = float(n % 2)
    return asked(words(30 + 17 * (n % 5), n), 30 + n % 20, BATCH, temperature=temperature, rng_seed=n)


@pytest.fixture(scope="module")
def lines_alone(model: LlamaModel) -> Known:
    """What this model says to a line that is computed alone, as far as a test has asked for it."""
    return {}


def alone_of(make_scheduler: Make, known: Known, lines: int) -> list[list[tuple[int, float]]]:
    for n in range(lines):
        if n not in known:
            (fresh := make_scheduler(slots=1)).submit(sequence := line(n))
            known[n] = told(sequence)
            fresh.close()
    return [known[n] for n in range(lines)]


def told(sequence: Request) -> list[tuple[int, float]]:
    tokens, ended = finish(sequence)
    assert ended.error is None, ended.error
    return list(zip(tokens, [score.logprob for score in sequence.scores], strict=True))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


class Stops:
    """Stops a scheduler before its first step in which each of the conditions holds, in this order."""

    def __init__(self, scheduler: Scheduler, *conditions: Callable[[], bool]) -> None:
        self._conditions, self._decode = list(conditions), scheduler._context.decode
        self._reached, self._over = threading.Semaphore(0), threading.Semaphore(0)
        scheduler._context.decode = self._step  # type: ignore[method-assign]

    def _step(self, **given: bool) -> int:
        if self._conditions and self._conditions[0]():
            self._conditions.pop(0)
            self._reached.release()
            assert self._over.acquire(timeout=PATIENCE)
        return self._decode(**given)

    @contextmanager
    def next(self) -> Iterator[None]:
        """The scheduler goes on when this is left."""
        assert self._reached.acquire(timeout=PATIENCE), "the condition has not come to hold"
        try:
            yield
        finally:
            self._over.release()


def preempted(scheduler: Scheduler, victim: Request, stops: Stops) -> Request:
    """A request for which ``victim`` has just left its slot, where the scheduler stops next."""
    before = victim.preempted
    with stops.next():
        scheduler.submit(other := asked(words(25, 99), 500, INTERACTIVE))
    wait_until(lambda: victim.preempted > before or victim.ended)
    assert victim.preempted > before
    return other


@pytest.mark.slow
@pytest.mark.parametrize("cache", [CacheOptions(), CacheOptions.in_memory(), "disk", "nowhere"])
def test_preempted_lines_of_a_batch_equal_those_alone(
    make_scheduler: Make, lines_alone: Known, tmp_path: Path, cache: object
) -> None:
    lines = 8
    alone = alone_of(make_scheduler, lines_alone, lines)
    options = cache if isinstance(cache, CacheOptions) else CacheOptions(max_bytes_memory=0)
    if cache == "disk":
        options = CacheOptions(tmp_path, enabled=True, max_bytes_memory=0)
    scheduler = make_scheduler(slots=2, cache=options)
    batch = [line(n) for n in range(lines)]
    times = range(10, 25 * lines, 15)
    stops = Stops(scheduler, *(lambda n=n: sum(each.generated for each in batch) > n for n in times))
    for each in batch:
        scheduler.submit(each)
    chats = [asked(words(20, 50 + n), 3, INTERACTIVE) for n in times]
    for chat in chats:
        with stops.next():
            scheduler.submit(chat)
    for chat in chats:
        finish(chat)
    assert [told(each) for each in batch] == alone
    assert sum(each.preempted for each in batch) >= 5
    assert scheduler.activity().preemptions == sum(each.preempted for each in batch)


@pytest.mark.slow
def test_a_preempted_answer_with_a_schema_resumes(make_scheduler: Make, model: LlamaModel) -> None:
    schema = '{"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 90, "maxItems": 90}'

    def shaped() -> Request:
        options = GenerationOptions(json_schema_constraint=schema, temperature=1.0, rng_seed=3)
        compiled = compile_constraint(options, (), model, parser=None, reasoning_open=False, room=900)
        assert compiled is not None
        made = asked(words(40, 1), 900, BATCH, temperature=1.0, rng_seed=3)
        made.constraint = compiled.constraint
        return made

    (fresh := make_scheduler(slots=1)).submit(sequence := shaped())
    alone = finish(sequence)[0]
    scheduler, sequence = make_scheduler(slots=1), shaped()
    stops = Stops(scheduler, *(lambda tokens=tokens: sequence.generated > tokens for tokens in (5, 30, 60)))
    scheduler.submit(sequence)
    for _ in range(3):
        preempted(scheduler, sequence, stops).cancel()
    assert finish(sequence)[0] == alone and sequence.preempted == 3
    fresh.close()


def test_a_preempted_answer_within_min_tokens_resumes(make_scheduler: Make, model: LlamaModel) -> None:
    def endless() -> Request:
        made = asked(words(40, 1), 80, BATCH, temperature=1.0, rng_seed=3)
        made.constraint = DelayedEnd(None, model.eog_tokens, range(300, model.n_tokens), least=30, endless=True)
        made.stop_tokens = range(300, model.n_tokens)
        return made

    (fresh := make_scheduler(slots=1)).submit(sequence := endless())
    alone = finish(sequence)[0]
    assert all(token < 300 for token in alone[:30]) and not model.eog_tokens & set(alone)
    scheduler, sequence = make_scheduler(slots=1), endless()
    stops = Stops(scheduler, *(lambda tokens=tokens: sequence.generated > tokens for tokens in (5, 25)))
    scheduler.submit(sequence)
    for _ in range(2):
        preempted(scheduler, sequence, stops).cancel()
    assert finish(sequence)[0] == alone and sequence.preempted == 2
    fresh.close()


@pytest.mark.slow
def test_a_preempted_prompt_resumes_where_it_was(make_scheduler: Make) -> None:
    def asks() -> Request:
        return asked(words(900, 4), 8, BATCH, temperature=1.0, rng_seed=1)

    (fresh := make_scheduler(slots=1)).submit(sequence := asks())
    alone = told(sequence)
    scheduler, sequence = make_scheduler(slots=1, batch_size=48), asks()
    stops = Stops(scheduler, lambda: sequence.read > 48)
    scheduler.submit(sequence)
    other = preempted(scheduler, sequence, stops)
    read = sequence.read
    assert sequence.progress.processed == read < 900
    other.cancel()
    assert told(sequence) == alone
    assert sequence.cached == 0 and sequence.progress.processed == 900
    fresh.close()


@pytest.mark.slow
@lengths(4, 20)
def test_a_short_prompt_interrupts_the_chunk_of_a_long_one(
    make_scheduler: Make, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(interruption, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(interruption, "SHARE_LOST", 0)
    asks = [lambda: asked(words(900, 4), 8, 0, temperature=1.0, rng_seed=1), lambda: asked(words(30, 5), 8, 0)]
    alone = []
    for ask in asks:
        (fresh := make_scheduler(slots=1)).submit(sequence := ask())
        alone.append(told(sequence))
        fresh.close()
    scheduler = make_scheduler(slots=3, context_size=1024)
    codes, decode = [], scheduler._context.decode
    monkeypatch.setattr(scheduler._context, "decode", lambda **given: codes.append(decode(**given)) or codes[-1])
    for turn in range(rounds):
        for slot in scheduler._memory.slots:
            scheduler._memory.clear(slot)
        scheduler.submit(long := asks[0]())
        wait_until(lambda long=long: scheduler._interruption._request is long or long.ended)
        scheduler.submit(short := asks[1]())
        assert [told(long), told(short)] == alone, turn
        wait_until(lambda: not scheduler.has_work())
    assert codes.count(ABORTED) >= 2
    assert len(codes) > codes.count(ABORTED) + rounds


def test_a_prompt_of_a_lower_level_or_a_long_one_waits_for_the_chunk(
    make_scheduler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = make_scheduler(slots=2)
    inside = scheduler._interruption
    with compute_loop.changed:
        running = asked(words(400, 1), 3, INTERACTIVE)
        inside._request = running
        for other in (asked(words(5, 2), 3, BATCH), asked(words(300, 2), 3, INTERACTIVE)):
            inside.make_way(other)
            assert not inside.makes_way and not scheduler._context.is_aborting
        inside.make_way(asked(words(80, 2), 3, INTERACTIVE))
        assert inside.makes_way and scheduler._context.is_aborting
        inside.makes_way = False
        inside.make_way(asked(words(8, 2), 3, INTERACTIVE))
        assert not inside.makes_way, "one after another would let the long prompt never end"
        assert not inside.may_make_way, "and so its chunks are short for a while"
        inside._not_before, inside._ends = 0.0, time.perf_counter() + PATIENCE
        inside.make_way(asked(words(300, 2), 3, BATCH))
        assert not inside.makes_way, "its level is lower"
        inside.make_way(asked(words(300, 2), 3, INTERACTIVE))
        assert inside.makes_way, "the chunk takes longer than a prompt is to wait"
        inside._request = None
        inside.reset()
    assert not scheduler._context.is_aborting


def test_a_request_during_the_preparation_of_a_chunk_does_not_wait_for_it(
    make_scheduler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = make_scheduler(slots=2)
    long, other = asked(words(400, 1), 3, INTERACTIVE), asked(words(300, 2), 3, INTERACTIVE)
    build, decode = scheduler._planner.build, scheduler._context.decode
    came: list[bool] = []
    at_decode: list[bool] = []

    def submit_and_build(parts: list[StepPart]) -> None:
        if not came and parts[0].count > LONG_STEP:
            came.append(scheduler._planner.is_alone)
            scheduler.submit(other)
        build(parts)

    def note_and_decode(**given: bool) -> int:
        if came:
            at_decode.append(scheduler._planner.is_alone)
        return decode(**given)

    monkeypatch.setattr(scheduler._planner, "build", submit_and_build)
    monkeypatch.setattr(scheduler._context, "decode", note_and_decode)
    scheduler.submit(long)
    told(long), told(other)
    assert came == [scheduler._interruption.may_make_way] and not at_decode[0]


def test_the_youngest_request_of_the_lowest_level_is_preempted(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=3)
    running = [asked(words(20, n), 400, priority) for n, priority in enumerate([-10, -20, -20])]
    first, second = asked(words(20, 7), 400, -10), asked(words(20, 8), 400, -20)
    begun = [lambda each=each: each.generated > 0 for each in (*running, first)]
    stops = Stops(scheduler, *begun, lambda: first.generated > 9)
    scheduler.submit(running[0])
    for each in (running[1], running[2], first):
        with stops.next():
            scheduler.submit(each)
    with stops.next():
        assert [each.preempted for each in running] == [0, 0, 1] and running[2].waiting_since is not None
        scheduler.submit(second)
    with stops.next():
        assert second.waiting_since is not None and second.generated == 0, "nobody runs whose level is lower"
        activity = scheduler.activity()
        assert activity.waiting_by_level == {"batch": 2}
        assert '"waiting_by_level": {"batch": 2}' in json.dumps(asdict(activity)), "as /health sends it"
        for each in [*running, first, second]:
            each.cancel()
    assert all(finish(each)[1].reason is Reason.INTERRUPTED for each in [*running, first, second])


@pytest.mark.parametrize("memory", [512 * 1024**2, 0])
def test_a_preempted_request_can_be_cancelled(make_scheduler: Make, tmp_path: Path, memory: int) -> None:
    scheduler = make_scheduler(slots=1, cache=CacheOptions(tmp_path, enabled=True, max_bytes_memory=memory))
    sequence = line(3)
    stops = Stops(scheduler, lambda: sequence.generated > 3, lambda: sequence.preempted > 0)
    scheduler.submit(sequence)
    other = preempted(scheduler, sequence, stops)
    with stops.next():
        sequence.cancel()
    tokens, ended = finish(sequence)
    assert ended.reason is Reason.INTERRUPTED and len(tokens) == sequence.generated == ended.stats.completion_tokens
    assert scheduler._snapshots._held_bytes == 0
    other.cancel()
    finish(other)
    scheduler.submit(again := line(3))
    assert finish(again)[0][: len(tokens)] == tokens


def test_closing_ends_a_preempted_request(make_scheduler: Make) -> None:
    scheduler = make_scheduler(slots=1)
    sequence = line(3)
    stops = Stops(scheduler, lambda: sequence.generated > 3, lambda: sequence.preempted > 0)
    scheduler.submit(sequence)
    preempted(scheduler, sequence, stops)
    closing = threading.Thread(target=scheduler.close)
    with stops.next():
        closing.start()
        wait_until(lambda: bool(scheduler._closing))
    closing.join()
    assert isinstance(finish(sequence)[1].error, LeapGenerationError)


def test_a_lost_saved_state_is_computed_again(make_scheduler: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed anew, in the order in which it was computed."""
    (fresh := make_scheduler(slots=1)).submit(sequence := line(3))
    alone = told(sequence)
    monkeypatch.setattr(SnapshotStore, "take", lambda self, held: self.drop(held))
    scheduler = make_scheduler(slots=1)
    for n in range(2):
        if n:
            monkeypatch.setattr(SlotMemory, "load", lambda self, slot, *_: self.clear(slot))
        sequence = line(3)
        stops = Stops(scheduler, lambda sequence=sequence: sequence.generated > 3)
        scheduler.submit(sequence)
        preempted(scheduler, sequence, stops).cancel()
        assert told(sequence) == alone
    fresh.close()


def test_nothing_is_preempted_without_space_for_its_state_if_bits_would_change(
    make_scheduler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scheduler, "_recomputes_alike", False)
    scheduler, sequence = make_scheduler(slots=1, cache=CacheOptions(max_bytes_memory=0)), line(3)
    stops = Stops(scheduler, lambda: sequence.generated > 3)
    scheduler.submit(sequence)
    with stops.next():
        scheduler.submit(chat := asked(words(20, 7), 4, INTERACTIVE))
    told(chat)
    assert not sequence.preempted and sequence.ended
    told(sequence)


def test_a_state_that_does_not_fit_is_not_saved_in_each_step(
    make_scheduler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(Scheduler, "_recomputes_alike", False)
    saved = []
    monkeypatch.setattr(SnapshotStore, "hold", lambda *given: saved.append(given))
    scheduler, sequence = make_scheduler(slots=1), line(3)
    stops = Stops(scheduler, lambda: sequence.generated > 3)
    scheduler.submit(sequence)
    with stops.next():
        scheduler.submit(chat := asked(words(20, 7), 4, INTERACTIVE))
    told(sequence)
    told(chat)
    assert len(saved) == 1 and scheduler.activity().preemptions == 0


def test_a_request_that_cannot_be_given_a_slot_ends(make_scheduler: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler(slots=1)

    def prepare(*_: object) -> Slot:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Admission, "_prepare", prepare)
        scheduler.submit(sequence := line(3))
        error = sequence.events.get(timeout=PATIENCE)
    assert isinstance(error, SequenceEnd) and "MemoryError" in str(error.error)
    scheduler.submit(again := line(2))
    told(again)


def test_a_state_that_cannot_be_loaded_is_computed_again(make_scheduler: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler(slots=1)
    scheduler.submit(sequence := line(3))
    alone = told(sequence)
    sequence = line(3)
    stops = Stops(scheduler, lambda: sequence.generated > 3)
    scheduler.submit(sequence)
    other = preempted(scheduler, sequence, stops)

    def load(*_: object) -> bool:
        raise MemoryError

    monkeypatch.setattr(SlotMemory, "load", load)
    other.cancel()
    assert told(sequence) == alone and scheduler._snapshots._held_bytes == 0


def test_many_requests_do_not_save_states_in_every_step(make_scheduler: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 3600.0)
    scheduler = make_scheduler(slots=2)
    batch = [line(n) for n in range(4)]
    stops = Stops(scheduler, lambda: any(each.generated > 2 for each in batch))
    for each in batch:
        scheduler.submit(each)
    with stops.next():
        for chat in (chats := [asked(words(20, 50 + n), 5, INTERACTIVE) for n in range(6)]):
            scheduler.submit(chat)
    for each in [*batch, *chats]:
        told(each)
    assert sum(each.preempted for each in batch) == 1


@pytest.mark.slow
def test_cancelled_and_preempted_at_any_time(make_scheduler: Make, lines_alone: Known) -> None:
    """Requests of three levels come and leave; those that stay say what they say alone."""
    rng = random.Random(1)
    alone = alone_of(make_scheduler, lines_alone, 8)
    scheduler = make_scheduler(slots=2, cache=CacheOptions.in_memory(60_000))
    staying = {n: line(n) for n in range(8)}
    stop = threading.Event()

    def bother() -> None:
        while not stop.is_set():
            other = asked(words(rng.randrange(5, 90), rng.randrange(30)), 40, rng.choice([0, 10]))
            scheduler.submit(other)
            stop.wait(rng.random() * 0.01)
            other.cancel()
            while not isinstance(other.events.get(timeout=PATIENCE), SequenceEnd):
                pass

    threads = [threading.Thread(target=bother) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for each in staying.values():
            scheduler.submit(each)
        assert [told(each) for each in staying.values()] == alone
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert sum(each.preempted for each in staying.values()) > 3
    assert scheduler._snapshots._held_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize(("model", "slots", "place"), mixes(), indirect=["model"])
def test_any_mix_of_priorities_cancels_and_lengths(
    make_scheduler: Make, tmp_path: Path, slots: int, place: str
) -> None:
    """Each request ends once, and says what it says alone or the beginning of that."""
    rng = random.Random(slots)
    kinds = [(rng.randrange(2, 300), rng.randrange(20, 120), n) for n in range(6)]

    def ask(kind: int) -> Request:
        length, most, seed = kinds[kind]
        priority = rng.choice([100, 0, -5, -10, -20, -20, -20, -100])
        return asked(words(length, seed), most, priority, temperature=float(seed % 2), rng_seed=seed)

    (fresh := make_scheduler(slots=1)).submit(sequence := ask(0))
    alone = [told(sequence)]
    for kind in range(1, len(kinds)):
        fresh.submit(sequence := ask(kind))
        alone.append(told(sequence))
    memory = 400_000 if place == "memory" else 0
    cache = CacheOptions(tmp_path if place == "disk" else None, enabled=True, max_bytes_memory=memory)
    scheduler = make_scheduler(slots=slots, cache=cache, batch_size=48)
    sent: list[tuple[int, Request]] = []
    for _ in range(10 * slots):
        sent.append((kind := rng.randrange(len(kinds)), ask(kind)))
        scheduler.submit(sent[-1][1])
        wait_until(lambda: scheduler.activity().waiting < 3)
        time.sleep(rng.random() * 0.01)
        if rng.random() < 0.3:
            rng.choice(sent)[1].cancel()
    for kind, each in sent:
        tokens, end = finish(each)
        assert end.error is None and each.events.empty() and end.stats.completion_tokens == len(tokens)
        expected = [token for token, _ in alone[kind]]
        assert tokens == (expected[: len(tokens)] if end.reason is Reason.INTERRUPTED else expected)
        scores = [score.logprob for score in each.scores]
        assert scores == [score for _, score in alone[kind]][: len(scores)]
    wait_until(lambda: not scheduler.has_work())
    assert scheduler._snapshots._held_bytes == 0 and scheduler.activity().waiting == 0
    assert scheduler.activity().preemptions == sum(each.preempted for _, each in sent) > 0


def test_a_recomputed_request_is_not_preempted_again(make_scheduler: Make) -> None:
    """Or chats that come again and again would have a long prompt read again and again."""
    scheduler = make_scheduler(slots=1, cache=CacheOptions(max_bytes_memory=0))
    if not scheduler._recomputes_alike:
        pytest.skip("it never gives its slot")
    sequence = asked(words(40, 11), 300, BATCH)
    stops = Stops(scheduler, lambda: sequence.generated > 3)
    scheduler.submit(sequence)
    preempted(scheduler, sequence, stops).cancel()
    wait_until(lambda: sequence.waiting_since is None)
    scheduler.submit(chat := asked(words(20, 7), 4, INTERACTIVE))
    told(chat)
    assert sequence.ended and sequence.preempted == 1
    told(sequence)
