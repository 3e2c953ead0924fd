"""The policy ``decide``: a call runs where the model is sure of it, and the person decides on every other."""

from __future__ import annotations

import json
import math

import pytest

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import (
    Complete,
    FunctionCalls,
    FunctionResult,
    GenerationFinishReason,
    TokenLogprob,
)
from leap_core.errors import LeapGenerationError, LeapOptionsError, LeapToolError
from leap_core.testing import ScriptedModelRunner
from leap_core.tools.policy import FunctionPolicy, ToolPolicy, policy_from_table
from leap_core.tools.run import run_functions

CALL = [FunctionCalls([LeapFunctionCall("double", {"n": 21})])]
DECIDE = ToolPolicy("decide", isolated=False, threshold=0.8)


def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


def sure(share: float) -> list[list[Complete]]:
    """The replies that give yes this probability."""
    return [
        [
            Complete(
                ChatMessage("assistant", text),
                GenerationFinishReason.STOP,
                logprobs=(TokenLogprob(text.encode(), math.log(each)),),
            )
        ]
        for text, each in (("yes", share), ("no", 1 - share))
    ]


def run(*scripts, ask=None, policy=DECIDE):
    runner = ScriptedModelRunner(*scripts)
    conversation = runner.create_conversation()
    conversation.register_function(LeapFunction.from_callable(double))
    events = run_functions(conversation, FunctionPolicy(default=policy, ask=ask), "twice 21?")
    return runner, [event for event in events if isinstance(event, FunctionResult)]


def test_a_call_that_the_model_is_confident_about_runs_without_a_question():
    runner, results = run(CALL, *sure(0.8), "42")
    assert [result.text for result in results] == ["42"]
    state, _, question = runner.requests[1].messages[0].text.partition("\n\n")
    assert json.loads(state) == {
        "user": "twice 21?",
        "tool": {"name": "double", "description": "Twice a number."},
        "call": {"name": "double", "arguments": {"n": 21}},
    }
    assert question.startswith("Does the call do what the user asked for, and nothing else?")


def test_a_doubtful_call_is_decided_by_the_user():
    asked = []

    def ask(function, call):
        asked.append(call.arguments)
        return False

    _, results = run(CALL, *sure(0.79), "sorry", ask=ask)
    assert asked == [{"n": 21}] and results[0].refused


@pytest.mark.parametrize(
    ("scripts", "reason"),
    [
        (sure(0.6), "the model is 60% sure of the call, not 80%, and there is no one to ask"),
        ([[LeapGenerationError("out of order")]] * 2, r"could not decide \(out of order\), and there is no one to ask"),
    ],
)
def test_without_a_terminal_a_doubtful_call_is_denied(scripts, reason):
    with pytest.raises(LeapToolError, match=reason):
        run(CALL, *scripts)


@pytest.mark.slow
def test_threshold_and_question_come_from_the_configuration():
    table = {"policy": "decide", "threshold": 0.7, "double": {"question": "Is it small?", "threshold": 0.6}}
    policy = policy_from_table(table)
    assert (policy.default.decision, policy.default.threshold) == ("decide", 0.7)
    assert (policy.of("double").decision, policy.of("double").threshold) == ("decide", 0.6)
    runner, results = run(CALL, *sure(0.65), "42", policy=policy.of("double"))
    assert results[0].text == "42" and "Is it small?" in runner.requests[1].messages[0].text
    with pytest.raises(LeapOptionsError, match="threshold"):
        policy_from_table({"threshold": 0})
