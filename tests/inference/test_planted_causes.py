"""``leap why`` on the real engine: causes that are planted are named first, and healthy requests have none. With a
random model of each kind of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leap_core import ChatMessage, GenerationOptions, ModelLoadingOptions, ModelRunner
from leap_core.conversation.options import CacheOptions
from leap_core.conversation.request_causes import RequestEnd, causes_of
from leap_core.conversation.request_facts import RequestFacts, failed
from leap_core.conversation.streams import last_of
from leap_core.errors import LeapGenerationPromptExceedContextLengthError
from leap_core.inference.engine import request_timeline
from leap_core.models.resolving import resolve_local
from leap_core.opening import load_as_made
from tests.support.lengths import usually
from tests.support.random_models import MEMORY_KINDS, write_random_model

pytestmark = pytest.mark.slow
RULES = " ".join(f"Rule {n}: answer politely and be short on topic {n * 7 % 13}." for n in range(8))
STORY = " ".join(f"Then came the {n}th ship to the harbor of that town." for n in "abcdefgh")
BY_STATES = ("recurrent", "hybrid", "window beside recurrent")
CONTEXT = 2048


@pytest.fixture(scope="module", params=MEMORY_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def path(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("models") / "model.gguf", MEMORY_KINDS[kind], "q8_0", seed=8)


@pytest.fixture
def runner(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelRunner]:
    """A model on a machine that has nothing else to do."""
    monkeypatch.setattr(request_timeline, "_processor_seconds", lambda: None)
    options = ModelLoadingOptions(slots=2, context_size=CONTEXT, cache_options=CacheOptions(enabled=False))
    with load_as_made(resolve_local(str(path)), options) as loaded:
        yield loaded


def ask(runner: ModelRunner, system: str, *said: str) -> RequestFacts:
    """``said``: what the user and the assistant said in turn."""
    roles = ("user", "assistant")
    messages = [ChatMessage("system", system), *(ChatMessage(roles[n % 2], text) for n, text in enumerate(said))]
    complete = last_of(runner.start(messages, (), GenerationOptions(max_tokens=2, temperature=0.0)))
    assert complete.facts is not None
    return complete.facts


def names(facts: RequestFacts) -> list[str]:
    """The causes of a request whose seconds do not count: the model is too small for any."""
    return [cause.name for cause in causes_of(replace(facts, queued=0.0, masks=0.0), RequestEnd(1e3, "stop"))]


BEGINNINGS = {
    "clock": ("It is Fri Nov 27 01:40.", "It is Fri Nov 27 01:41."),
    "id": ("sessionidentifier 3f2a9c1e-77aa-4b1c-9d00-1.", "sessionidentifier 8b1a9c1e-77aa-4b1c-9d00-1."),
    "billing-header": ("x-anthropic-billing-header: cch=a1b2c;", "x-anthropic-billing-header: cch=d3e4f;"),
    "counter": ("You have 7 tries.", "You have 6 tries."),
    "system-changed": ("You are a friend.", "You are an expert."),
}
PLANTED: dict[str, tuple[str, Sequence[dict[str, Any]]]] = {
    **{
        f"{name} at the beginning": (name, [{"system": f"{text} {RULES}", "said": ["Hello!"]} for text in texts])
        for name, texts in BEGINNINGS.items()
    },
    "history": (
        "history-changed",
        [{"system": "Be short.", "said": [text, "Hi.", STORY, "Fine.", "Next?"]} for text in ("Hello!", "Good day!")],
    ),
    "reasoning": (
        "thinking-removed",
        [
            {"system": "Be short.", "said": ["Hello!", f"{thought}Hi.", STORY, "Fine.", "Next?"]}
            for thought in ("<think>A greeting, so a greeting.</think>", "")
        ],
    ),
    "slot": (
        "slot-lost",
        [
            {"system": f"Mine. {RULES}", "said": ["Hello!"]},
            *({"system": f"Yours {n}. {STORY.replace('ship', f'boat {n}')}", "said": ["Go"]} for n in range(2)),
            {"system": f"Mine. {RULES}", "said": ["Hello!"]},
        ],
    ),
}
AT_THE_END = {
    f"{name} at the end": (name, [{"system": f"{RULES} {text}", "said": ["Hello!"]} for text in texts])
    for name, texts in BEGINNINGS.items()
}
"""Planted only where the memory goes back to kept states alone: others reuse all that is before the change."""


def run(runner: ModelRunner, requests: Sequence[dict[str, Any]]) -> RequestFacts:
    for request in requests:
        facts = ask(runner, request["system"], *request["said"])
    return facts


def test_planted_causes_are_named_first(runner: ModelRunner, kind: str) -> None:
    """Eight to thirteen on each kind of memory, more than fifty in all."""
    planted = PLANTED | (AT_THE_END if kind in BY_STATES else {})
    found = {}
    for what, (_, requests) in planted.items():
        run(runner, [{"system": f"Another one {n}: {what}.", "said": ["Go"]} for n in range(2)])  # nothing is in memory
        found[what] = next(iter(names(run(runner, requests))), "")
    assert found == {what: name for what, (name, _) in planted.items()}


def test_a_change_at_the_end_costs_nothing_where_memory_can_be_cut_anywhere(runner: ModelRunner, kind: str) -> None:
    facts = run(runner, AT_THE_END["clock at the end"][1])
    assert (facts.cached == 0) == bool(names(facts)) == (kind in BY_STATES)


@pytest.mark.parametrize("kind", usually(["hybrid"], MEMORY_KINDS), indirect=True)
def test_a_context_that_is_too_small_is_named_with_advice_that_works(runner: ModelRunner, path: Path) -> None:
    with pytest.raises(LeapGenerationPromptExceedContextLengthError) as refused:
        ask(runner, "Be short.", STORY * 12)
    (cause,) = causes_of(failed(refused.value), RequestEnd(0.1))
    assert cause.name == "context-too-small" and "--context-size" in cause.change
    with load_as_made(resolve_local(str(path)), ModelLoadingOptions(context_size=cause.context_size)) as larger:
        assert ask(larger, "Be short.", STORY * 12).prompt_tokens > CONTEXT
        with pytest.raises(LeapGenerationPromptExceedContextLengthError) as refused:
            ask(larger, "Be short.", STORY * 60)
    (cause,) = causes_of(failed(refused.value), RequestEnd(0.1))
    assert "--context-size" not in cause.change and "4096" in cause.change and not cause.context_size


def conversation(ask: Callable[..., RequestFacts], system: str, questions: Sequence[str]) -> Iterator[RequestFacts]:
    said: list[str] = []
    for question in questions:
        yield ask(system, *said, question)
        said += [question, f"This is what I know of {question}"]


def test_healthy_requests_have_no_cause(runner: ModelRunner) -> None:
    """Twenty on each kind of memory, a hundred in all."""

    def asked(system: str, *said: str) -> RequestFacts:
        return ask(runner, system, *said)

    all_facts = list(conversation(asked, RULES, [f"And what about {n}?" for n in range(6)]))
    all_facts += [asked(RULES, f"What is the capital of {country}?") for country in ("France", "Peru", "Chad", "Laos")]
    all_facts += [asked(RULES, f"At {hour}:15, who was there?") for hour in (10, 11)]
    all_facts += [
        asked(task, STORY) for task in ("You write code, and explain nothing.", "Make a title.", "Translate.")
    ]
    all_facts += [asked(system, "Go") for system in (f"You are a cat. {STORY}", "You are the voice of Rome.")]
    all_facts += conversation(asked, "Be kind.", ["Hello!", STORY.replace("ship", "train of cars"), "Is that all?"])
    assert [names(facts) for facts in all_facts] == [[]] * 20
