"""Drafts looked up in the sequence change how fast an answer comes, and never what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from leap_core.conversation.options import CacheOptions, GenerationOptions
from leap_core.conversation.responses import GenerationFinishReason
from leap_core.inference.engine.batch_plan import StepOutput, StepPart
from leap_core.inference.engine.repetition import LONG_DRAFT, PROSE, SHORT_DRAFT, PromptLookup, RepetitionWatch
from leap_core.inference.engine.request import Request
from leap_core.inference.engine.sampler import Sampler
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.slots import Slot
from leap_core.inference.engine.snapshots import SnapshotStore
from leap_core.inference.llama.context import AttentionSettings, LlamaContext
from leap_core.inference.llama.model import LlamaModel

from .conftest import finish
from .prompts import prompt_of
from .test_scheduler import words


class Copying(Sampler):
    """Says a text, then what the model says."""

    def __init__(self, options: GenerationOptions, text: list[int]) -> None:
        super().__init__(options)
        self._text = list(text)

    def sample(self, logits, constraint=None) -> int:
        chosen = super().sample(logits, constraint)
        return self._text.pop(0) if self._text else chosen


@pytest.fixture
def make(model: LlamaModel) -> Iterator[Callable[[int], Scheduler]]:
    made = []

    def scheduler(rollback: int = LONG_DRAFT) -> Scheduler:
        context = LlamaContext(
            model,
            cells=2048,
            slots=2,
            batch_size=256,
            threads=1,
            attention=AttentionSettings(False, "f32", "f32"),
            rollback=rollback,
        )
        store = SnapshotStore(CacheOptions(), b"0123456789abcdef")
        made.append((Scheduler(context, store, context_size=1024, threads=1), context))
        return made[-1][0]

    yield scheduler
    for scheduler_, context in made:
        scheduler_.close()
        context.close()


def ask(
    ids: list[int], *, lookup: bool, max_tokens: int = 96, text: list[int] | None = None, **sampling: float
) -> Request:
    options = GenerationOptions(**{"temperature": 0.0, "top_k": 0, "min_p": 0.0, "rng_seed": 3, **sampling})
    sampler = Sampler(options, ids) if text is None else Copying(options, text)
    return Request(prompt_of(ids, (40,)), sampler, max_tokens=max_tokens, lookup=PromptLookup() if lookup else None)


def answer(scheduler: Scheduler, request: Request) -> list[int]:
    scheduler.submit(request)
    return finish(request)[0]


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7}, {"temperature": 0.9, "repetition_penalty": 1.3}])
def test_drafts_do_not_change_the_answer(make, sampling) -> None:
    ids = words(30) * 4
    plain = answer(make(0), ask(ids, lookup=False, **sampling))
    request = ask(ids, lookup=True, **sampling)
    assert answer(make(), request) == plain
    assert request.lookup is not None


@pytest.mark.slow
def test_an_edited_text_takes_fewer_steps_and_leaves_memory_correct(make) -> None:
    ids = words(120)
    text = [(token if n % 17 else 20 + n) for n, token in enumerate(ids)]
    plain = answer(make(0), ask(ids, lookup=False, max_tokens=160, text=text))
    assert plain[:120] == text
    scheduler = make()
    steps = []
    decode = scheduler._decode
    scheduler._decode = lambda parts: steps.append(len(parts[0].draft)) or decode(parts)  # type: ignore[method-assign]
    request = ask(ids, lookup=True, max_tokens=160, text=text)
    assert answer(scheduler, request) == plain  # what follows the copy is the model's, from all that it has read
    assert request.lookup is not None and request.lookup.accepted > 60
    assert request.lookup.accepted < request.lookup.drafted and len(steps) < 160 - request.lookup.accepted + 5
    again = ids + plain + words(5)  # the next turn continues in place; then one that goes back to a checkpoint
    for turn in (again, ids[:60] + words(9)):
        assert answer(scheduler, ask(turn, lookup=True, max_tokens=20)) == answer(
            make(0), ask(turn, lookup=False, max_tokens=20)
        )


def test_two_concurrent_answers_equal_those_alone(make) -> None:
    prompts = [words(20) * 4, words(25) * 3]
    alone = [answer(make(0), ask(ids, lookup=False, max_tokens=40)) for ids in prompts]
    scheduler = make()
    requests = [ask(ids, lookup=True, max_tokens=40) for ids in prompts]
    for request in requests:
        scheduler.submit(request)
    assert [finish(request)[0] for request in requests] == alone


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_the_answer_ends_at_its_stop_or_limit(make, most) -> None:
    ids = words(40)
    request = ask(ids, lookup=True, max_tokens=most, text=ids)
    assert answer(make(), request) == ids[:most]


def test_a_repetitive_answer_ends_after_its_draft(make: Callable[..., Scheduler]) -> None:
    ids, scheduler = words(60, 1), make()
    request = ask(ids, lookup=True, max_tokens=900, text=words(5, 9) * 180)
    request.watch = RepetitionWatch(lambda token: b" word")
    scheduler.submit(request)
    tokens, end = finish(request)
    assert end.reason is GenerationFinishReason.REPETITION and len(tokens) == PROSE[0]
    assert request.lookup is not None and request.lookup.accepted > 200
    scheduler.submit(after := ask([*request.target, 5], lookup=False, max_tokens=4))
    tokens = finish(after)[0]
    assert after.cached >= len(request.target) - 1, "what the answer left is used again"
    assert tokens == answer(make(0), ask([*request.target, 5], lookup=False, max_tokens=4))


def test_drafts_come_from_the_longest_match_and_stop_after_rejections() -> None:
    lookup = PromptLookup()
    keys = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 90, 1, 2, 3]
    assert lookup.draft(keys, 9, ()) == [4, 5, 6][:SHORT_DRAFT]
    assert lookup.draft(keys, 2, ()) == [4, 5] and lookup.draft(keys, 9, {5}) == [4] and lookup.draft(keys, 0, ()) == []
    assert lookup.draft([*keys, *range(4, 10)], 9, ()) == list(range(10, 10 + LONG_DRAFT))
    for _ in range(2):
        lookup.learn(3, 0)
    assert lookup.draft([*keys, *range(4, 10)], 9, ()) == []
    assert lookup.draft([*keys, *range(4, 13)], 9, ()) != []
    assert (lookup.drafted, lookup.accepted) == (6, 0)
    assert PromptLookup().draft([1, 2, 3, -5, 1, 2, 3], 9, ()) == [] == PromptLookup().draft([1, 2], 9, ())


def test_a_draft_is_of_one_step():
    request = ask([1, 2, 3], lookup=True)
    slot = Slot(0)
    slot.request, slot.keys = request, list(request.target)
    part = StepPart(slot, request, 2, 1, StepOutput.LOGITS, draft=[4, 5])
    request.emit(4)
    assert part.goes_on() and part.start == 3 and part.draft == []
