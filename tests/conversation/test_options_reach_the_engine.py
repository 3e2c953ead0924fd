"""Each option changes what the engine is given, or is at work before or after it. The engine here only records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from leap_core import Leap
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GENERATION, GenerationOptions
from leap_core.inference.engine.request import Request
from leap_core.inference.runner import InProcessRunner
from leap_core.tasks.task import OVERRIDES

from ..support.tables import check_each
from .test_option_rows import FUNCTION, sample

SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}}'
BESIDE: dict[str, dict[str, Any]] = {
    "repeat_last_n": {"frequency_penalty": 1.5},
    "xtc_threshold": {"xtc_probability": 1.0},
    "forced_logprobs": {"logprobs": True},
    "inject_schema_into_prompt": {"json_schema_constraint": SCHEMA},
    "think_budget_message": {"think_budget": 5},
}
"""Options without which others mean nothing."""
OWN = {"logit_bias": {300: 50.0}, "grammar_constraint": 'start: "yes" | "no"'}
NEUTRAL = {"rng_seed": 1, "temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "top_k": 0, "repetition_penalty": 1.0}
STEPS = 8
ELSEWHERE = {
    "function_call_parser": "reads the reply",
    "inline_thinking_tags": "writes the reply",
    "enable_thinking": "writes the reply, and the chat template of some models",
    "stop": "reads the reply",
    "repairs": "asks again",
    "chat_template_kwargs": "the chat template of some models",
    "additional_properties": "how a schema becomes a grammar",
    "any_whitespace": "how a schema becomes a grammar",
    "complete_json": "how a schema becomes a grammar",
    "grounding": "how a schema becomes a grammar",
    "audio_temperature": "a voice draws",
    "audio_top_k": "a voice draws",
    "image_tokens": "a projector reads",
    "image_tiles": "a projector reads",
    "decision": "the template of another kind of model",
    "adapters": "files of adapters",
    "extras": "names other options",
}
"""Options at work before or after the engine, or with other models; tests of theirs are in their folders."""


class RecordedError(Exception):
    """The request was recorded, and nobody answers it."""


class RecordingEngine:
    """Takes requests in a scheduler's place."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def submit(self, request: Request) -> None:
        self.requests.append(request)
        raise RecordedError


@pytest.fixture(scope="module")
def runner() -> Iterator[InProcessRunner]:
    with pytest.MonkeyPatch.context() as patched:
        loaded = Leap.load("builtin")
        assert isinstance(loaded, InProcessRunner)
        patched.setattr(loaded, "scheduler", RecordingEngine())
        yield loaded
    loaded.unload()


def received(runner: InProcessRunner, options: GenerationOptions) -> dict[str, Any]:
    """What the engine gets for these options, and the tokens that it would draw of the same logits."""
    engine = runner.scheduler
    assert isinstance(engine, RecordingEngine)
    with pytest.raises(RecordedError):
        runner.start([ChatMessage("user", "Count.")], [FUNCTION] if options.tool_choice else (), options)
    request = engine.requests.pop()
    thinking = {name: repr(value) for name, value in vars(request.thinking).items()} if request.thinking else None
    return {
        "drawn": drawn(request, runner),
        "scores": [(score.token, len(score.top)) for score in request.scores],
        "prompt": list(request.prompt.keys),
        "max_tokens": request.max_tokens,
        "prompt_recorder": request.prompt_recorder is not None,
        "of_forced": request.sampler.recorder is not None and request.sampler.recorder.of_forced,
        "watch": request.watch is not None,
        "stop_tokens": request.stop_tokens,
        "thinking": thinking,
        "priority": request.priority,
    }


def drawn(request: Request, runner: InProcessRunner) -> list[int]:
    """Tokens of logits in which those of the prompt, and ends, are likely; up to the first end."""
    random, tokens = np.random.default_rng(7), list[int]()
    likely = [*request.prompt.keys, *runner.model.eog_tokens]
    while len(tokens) < STEPS and not (tokens and tokens[-1] in runner.model.eog_tokens):
        logits = random.standard_normal(runner.model.n_tokens).astype(np.float32)
        logits[likely] += 6.0
        token = request.sampler.sample(logits, request.constraint)
        request.sampler.accept(token)
        request.target.append(token)
        if request.constraint is not None:
            request.constraint.accept(token)
        tokens.append(token)
    return tokens


def check_each_of(names: Iterable[str], runner: InProcessRunner) -> None:
    """Each of these options changes what the engine receives."""
    plain = received(runner, GenerationOptions(**NEUTRAL))
    assert plain == received(runner, GenerationOptions(**NEUTRAL)), "equal options"

    def check(name: str) -> None:
        beside = {**NEUTRAL, **BESIDE.get(name, {})}
        value = OWN.get(name, sample(GENERATION[name]))
        before = received(runner, GenerationOptions(**beside)) if name in BESIDE else plain
        now = received(runner, GenerationOptions(**{**beside, name: value}))
        assert [key for key in now if now[key] != before[key]] != []

    check_each(names, check)


def test_each_sampling_option_changes_what_the_engine_receives(runner: InProcessRunner) -> None:
    check_each_of([name for name in OVERRIDES if name not in ELSEWHERE], runner)


@pytest.mark.slow
def test_every_other_option_changes_the_request_or_acts_elsewhere(runner: InProcessRunner) -> None:
    assert set(ELSEWHERE) <= set(GENERATION)
    check_each_of([name for name in GENERATION if name not in (*OVERRIDES, *ELSEWHERE)], runner)
