"""Limits on reasoning as each protocol writes them."""

from __future__ import annotations

import pytest

from leap_core.errors import LeapError
from leap_core.protocols.anthropic import read_messages
from leap_core.protocols.ollama import read_ollama_chat
from leap_core.protocols.openai.requests import read_chat
from leap_core.protocols.openai.responses_request import read_responses

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("fields", "budget"),
    [
        ({"think_budget": 5}, 5),
        ({"reasoning_budget_tokens": 5}, 5),
        ({"thinking_budget_tokens": 0}, 0),
        ({"thinking_token_budget": 7}, 7),
        ({"thinking_budget": 7}, 7),
        ({"reasoning_budget_tokens": -1}, None),
        ({"reasoning_effort": "low", "max_tokens": 100}, 20),
        ({"reasoning_effort": "medium", "max_completion_tokens": 100}, 50),
        ({"reasoning_effort": "xhigh", "max_tokens": 100}, None),
        ({"reasoning_effort": "low"}, None),
        ({"reasoning_effort": "low", "max_tokens": 100, "think_budget": 3}, 3),
        ({"leap": {"options": {"think_budget": 9}}}, 9),
    ],
)
def test_reasoning_limits_of_chat_completions(fields, budget):
    options = read_chat({"messages": MESSAGES, **fields}).options
    assert options.think_budget == budget
    assert options.enable_thinking == ("reasoning_effort" in fields)


@pytest.mark.parametrize(
    ("fields", "budget", "thinks"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, 1024, True),
        ({"thinking": {"type": "disabled"}}, None, False),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, 20, True),
        ({"output_config": {"effort": "low"}}, None, False),
    ],
)
def test_reasoning_limits_of_anthropics_messages(fields, budget, thinks):
    request = read_messages({"messages": MESSAGES, "model": "m", "max_tokens": 100, **fields})
    assert (request.options.think_budget, request.options.enable_thinking) == (budget, thinks)
    assert request.notes == ()


def test_reasoning_limits_of_responses():
    asked = {"model": "m", "input": "Hi", "max_output_tokens": 100, "reasoning": {"effort": "high"}}
    options = read_responses(asked, []).chat.options
    assert (options.think_budget, options.enable_thinking) == (80, True)


@pytest.mark.parametrize(("think", "budget", "thinks"), [(True, None, True), ("low", 20, True), (False, None, False)])
def test_reasoning_limits_of_ollama(think, budget, thinks):
    asked = {"model": "m", "messages": MESSAGES, "think": think, "options": {"num_predict": 100}}
    options = read_ollama_chat(asked).generation.options
    assert (options.think_budget, options.enable_thinking) == (budget, thinks)


@pytest.mark.parametrize("value", ["five", 2.5, True, [1]])
def test_invalid_reasoning_limits_are_refused(value):
    with pytest.raises(LeapError, match="budget"):
        read_chat({"messages": MESSAGES, "thinking_budget": value})
