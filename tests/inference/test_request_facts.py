"""What the engine notes of a request, and the causes that follow: on the built-in model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from leap_core import ChatMessage, GenerationOptions, LeapFunction, ModelLoadingOptions, ModelRunner
from leap_core.conversation.options import CacheOptions
from leap_core.conversation.request_causes import RequestEnd, causes_of
from leap_core.conversation.request_facts import RequestFacts
from leap_core.conversation.streams import last_of
from leap_core.inference.engine import request_timeline
from leap_core.models.resolving import resolve_local
from leap_core.opening import load_as_made

pytestmark = pytest.mark.slow
RULES = " ".join(
    f"Rule {n}: answer politely and keep it short, whatever is said of topic {n * 7 % 13}." for n in range(6)
)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelRunner]:
    """A model whose machine has nothing else to do."""
    monkeypatch.setattr(request_timeline, "_processor_seconds", lambda: None)
    options = ModelLoadingOptions(slots=2, cache_options=CacheOptions(enabled=False))
    with load_as_made(resolve_local("builtin"), options) as loaded:
        yield loaded


def ask(runner: ModelRunner, system: str, *said: str, functions: Any = ()) -> RequestFacts:
    """``said``: what the user and the assistant said in turn."""
    roles = ("user", "assistant")
    messages = [ChatMessage("system", system), *(ChatMessage(roles[n % 2], text) for n, text in enumerate(said))]
    complete = last_of(runner.start(messages, functions, GenerationOptions(max_tokens=2, temperature=0.0)))
    assert complete.facts is not None
    return complete.facts


def names(facts: RequestFacts) -> list[str]:
    return [cause.name for cause in causes_of(replace(facts, queued=0.0, masks=0.0), RequestEnd(1e3, "stop"))]


CHANGES = {
    "clock": ("It is Fri Nov 27 01:40.", "It is Fri Nov 27 01:41."),
    "id": ("Session 3f2a9c1e-77aa-4b1c-9d00-1.", "Session 8b1a9c1e-77aa-4b1c-9d00-1."),
    "billing-header": ("x-anthropic-billing-header: cch=a1b2c;", "x-anthropic-billing-header: cch=d3e4f;"),
    "counter": ("You have 7 tries.", "You have 6 tries."),
    "system-changed": ("You are a friend.", "You are an expert."),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_system_prompt_that_changes_is_named_with_its_place(runner, name):
    before, after = CHANGES[name]
    assert names(ask(runner, f"{before} {RULES}", "Hello!")) == []
    facts = ask(runner, f"{after} {RULES}", "Hello!")
    assert names(facts) == [name] and facts.departure is not None and facts.departure.role == "system"
    assert names(ask(runner, f"{after} {RULES}", "Hello!")) == [], "the same once more is in memory"


def test_a_continued_conversation_has_no_cache_miss(runner):
    said = ["Hello!"]
    for n in range(4):
        facts = ask(runner, RULES, *said)
        assert names(facts) == [] and (n == 0 or facts.cached > 100)
        said += ["Good day to you.", f"And what about {n}?"]
    assert names(ask(runner, RULES, "What is the capital of France?")) == []
    assert names(ask(runner, "You write poems about the sea and the sky, and never about anything else.", "Go")) == []


def test_a_message_that_was_changed_is_named_by_its_number(runner):
    story = f"Read this. {RULES}"
    ask(runner, "Be short.", "Hello!", "Hi.", story, "Fine.", "Next?")
    facts = ask(runner, "Be short.", "Good day!", "Hi.", story, "Fine.", "Next?")
    assert names(facts) == ["history-changed"] and facts.departure is not None
    assert (facts.departure.message, facts.departure.role, facts.departure.messages) == (2, "user", 6)


def declared(name: str) -> LeapFunction:
    about = {"type": "object", "properties": {"path": {"type": "string", "description": f"What to {name}"}}}
    return LeapFunction.from_openai({"type": "function", "function": {"name": name, "parameters": about}})


def test_tools_in_another_order_are_named(runner):
    tools = [declared(name) for name in ("read", "write", "list", "remove")]
    ask(runner, "Use tools.", "Hello!", functions=tools)
    facts = ask(runner, "Use tools.", "Hello!", functions=[tools[1], tools[0], *tools[2:]])
    assert names(facts) == ["tools-reordered"] and facts.departure is not None and facts.departure.tool == "write"
    fewer = ask(runner, "Use tools.", "Hello!", functions=tools[1:])
    assert names(fewer) in (["tools-changed"], [])  # what follows may be in memory


def test_a_slot_that_was_lost_is_named(runner):
    ask(runner, f"Mine. {RULES}", "Hello!")
    for n in range(2):
        ask(runner, f"Yours, {n}. " + RULES.replace("Rule", f"Law {n}").replace("politely", "in rhymes"), "Hello!")
    assert names(ask(runner, f"Mine. {RULES}", "Hello!")) == ["slot-lost"]


def test_many_requests_read_the_process_threads_only_now_and_then(monkeypatch):
    looks = []
    monkeypatch.setattr(request_timeline, "_look", lambda: looks.append(1))
    monkeypatch.setattr(request_timeline, "_looked", (-1.0, None))
    for _ in range(200):
        request_timeline.Course().waited_for_processors()
    assert 1 <= len(looks) <= 20


def test_a_tool_that_changed_is_named_and_other_tools_of_another_program_are_not(runner):
    tools = [declared(name) for name in ("read", "write", "list", "remove")]
    ask(runner, "Use tools.", "Hello!", functions=tools)
    about = {"type": "object", "properties": {"path": {"type": "string", "description": "A folder, or a file in it"}}}
    changed = LeapFunction.from_openai({"type": "function", "function": {"name": "read", "parameters": about}})
    facts = ask(runner, "Use tools.", "Hello!", functions=[changed, *tools[1:]])
    assert names(facts) == ["tools-changed"]
    others = [declared(name) for name in ("summarize", "translate", "paint", "sing", "dance")]
    assert names(ask(runner, "You play.", "Good day!", functions=others)) == []


def test_another_task_about_the_same_text_is_no_change_of_the_system_prompt(runner):
    ask(runner, "You write code, and explain nothing.", RULES)
    assert names(ask(runner, "Make a title of six words.", RULES)) == []


def test_waiting_for_a_shared_prefix_is_not_waiting_for_a_slot(runner):
    began = [
        runner.start(
            [ChatMessage("system", f"{RULES} {RULES}"), ChatMessage("user", said)], (), GenerationOptions(max_tokens=2)
        )
        for said in ("One?", "Two?")
    ]
    facts = [last_of(each).facts for each in began]
    assert facts[1] is not None and facts[1].cached > 100 and facts[1].queued < facts[1].reading
