"""Reasoning has a budget: what ends it is made of tokens, and the answer begins, under its shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leap_core import ChatMessage, GenerationOptions, ModelLoadingOptions
from leap_core.conversation.streams import last_of
from leap_core.inference.engine.thinking import ThinkingLimit
from leap_core.inference.runner import InProcessRunner
from leap_core.protocols.openai.replies import usage
from tests.support.random_models import TINY_LFM2, write_random_model

OPENING = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}a: <think>{% endif %}"
)
SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}'


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    path = write_random_model(tmp_path_factory.mktemp("thinking") / "m.gguf", TINY_LFM2)
    with InProcessRunner(Path(path), "m", ModelLoadingOptions(chat_template=OPENING, context_size=512)) as loaded:
        yield loaded


def asked(runner: InProcessRunner, **given):
    """The end of an answer by a model that never ends its reasoning, nor the answer, by itself."""
    never = {runner.model.special_tokens["</think>"], *runner.model.eog_tokens}
    options = GenerationOptions(logit_bias=dict.fromkeys(never, -1e9), rng_seed=1, repetition_detection=False, **given)
    return last_of(runner.create_conversation_from_history([]).generate_response(ChatMessage("user", "Hi"), options))


@pytest.mark.parametrize("budget", [0, 1, 7, 40])
def test_the_answer_begins_when_the_budget_is_spent(runner, budget):
    end = asked(runner, think_budget=budget, max_tokens=60)
    message = end.full_message
    assert end.stats.completion_tokens == 60 and (end.stats.reasoning_tokens or 0) == budget
    assert message.text and bool(message.reasoning_content) == bool(budget)
    assert usage(end.stats).get("completion_tokens_details", {"reasoning_tokens": 0}) == {"reasoning_tokens": budget}


def test_without_a_budget_reasoning_goes_on(runner):
    end = asked(runner, max_tokens=60)
    assert end.stats.reasoning_tokens == 60 and not end.full_message.text


def test_a_sentence_can_end_the_reasoning(runner):
    end = asked(runner, think_budget=5, think_budget_message=" Enough.", max_tokens=40)
    assert end.full_message.reasoning_content.endswith(" Enough.")


def test_the_answer_follows_its_constraint(runner):
    end = asked(runner, think_budget=6, json_schema_constraint=SCHEMA, inject_schema_into_prompt=False, max_tokens=200)
    assert end.stats.reasoning_tokens == 6 and abs(json.loads(end.full_message.text)["n"]) >= 0


def test_every_token_has_a_probability(runner):
    end = asked(runner, think_budget=3, logprobs=True, max_tokens=20)
    assert len(end.logprobs) == end.stats.completion_tokens == 20


def test_reasoning_that_ends_by_itself_is_unchanged():
    limit = ThinkingLimit(3, [1], [2], [9, 2])
    taken = [limit.instead_of(token) or limit.note(token) for token in (5, 1, 6, 7, 2, 8, 8, 8, 1, 6)]
    assert taken == [None] * 10 and limit.tokens == 3
    assert limit.instead_of(7) == [9, 2] and limit.instead_of(2) is None
