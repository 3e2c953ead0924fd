"""Calling and answering, on a scripted model."""

from __future__ import annotations

import threading

import pytest

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import Chunk, Complete, FunctionCalls, FunctionResult, GenerationFinishReason
from leap_core.errors import LeapToolError
from leap_core.testing import ScriptedModelRunner
from leap_core.tools.policy import FunctionPolicy, ToolPolicy
from leap_core.tools.run import run_functions

HERE = ToolPolicy("allow", isolated=False)


def calls(*made: LeapFunctionCall) -> list[FunctionCalls]:
    return [FunctionCalls(made)]


def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


def fail() -> None:
    raise RuntimeError("out of order")


def conversation_of(*scripts: object, functions: list[LeapFunction] | None = None):
    runner = ScriptedModelRunner(*scripts)
    conversation = runner.create_conversation()
    declared = [LeapFunction.from_callable(double), LeapFunction.from_callable(fail)]
    conversation.register_functions(declared if functions is None else functions)
    return runner, conversation


DOUBLE = LeapFunctionCall("double", {"n": 21})
ALLOWED = FunctionPolicy(default=HERE)


def test_a_round_trip():
    runner, conversation = conversation_of(calls(DOUBLE), "It is 42.")
    events = list(run_functions(conversation, ALLOWED, "twice 21?"))
    assert [type(event) for event in events] == [FunctionCalls, Complete, FunctionResult, Chunk, Complete]
    assert [message.to_json()["role"] for message in conversation.history] == ["user", "assistant", "tool", "assistant"]
    assert conversation.history[2] == ChatMessage("tool", "42", tool_call_id="call_0")
    assert runner.requests[1].messages == tuple(conversation.history[:3])


def test_leaving_the_loop_after_one_result_loses_none():
    other = LeapFunctionCall("double", {"n": 1})
    _, conversation = conversation_of(calls(DOUBLE, other), "done")
    with run_functions(conversation, ALLOWED, "twice 21, and 1?") as run:
        next(event for event in run if isinstance(event, FunctionResult))
    assert [(m.text, m.tool_call_id) for m in conversation.history[2:]] == [("42", "call_0"), ("2", "call_1")]


def test_only_calls_without_a_result_are_run_when_going_on():
    other = LeapFunctionCall("double", {"n": 1})
    runner, conversation = conversation_of(calls(DOUBLE, other), "done")
    list(conversation.generate_response("twice 21, and 1?"))
    conversation.append_to_history(ChatMessage("tool", "forty-two", tool_call_id="call_0"))
    list(run_functions(conversation, ALLOWED, None))
    results = [(m.text, m.tool_call_id) for m in conversation.history if m.role == "tool"]
    assert results == [("forty-two", "call_0"), ("2", "call_1")] and conversation.history[-1].text == "done"


@pytest.mark.parametrize("id", [None, "from-elsewhere"])
def test_a_result_that_names_no_call_answers_the_first(id: str | None):
    other = LeapFunctionCall("double", {"n": 1})
    _, conversation = conversation_of(calls(DOUBLE, other), "done")
    list(conversation.generate_response("twice 21, and 1?"))
    conversation.append_to_history(ChatMessage("tool", "forty-two", tool_call_id=id))
    list(run_functions(conversation, ALLOWED, None))
    assert [m.text for m in conversation.history if m.role == "tool"] == ["forty-two", "2"]


def test_calls_of_one_round_run_together_and_are_recorded_in_order():
    both = threading.Barrier(2, timeout=100)

    def meet(name: str) -> str:
        both.wait()
        return name

    _, conversation = conversation_of(
        calls(LeapFunctionCall("meet", {"name": "a"}), LeapFunctionCall("meet", {"name": "b"})),
        "done",
        functions=[LeapFunction.from_callable(meet)],
    )
    list(run_functions(conversation, ALLOWED, "go"))
    assert [(m.text, m.tool_call_id) for m in conversation.history[2:4]] == [("a", "call_0"), ("b", "call_1")]


def test_errors_are_told_to_the_model():
    _, conversation = conversation_of(
        calls(LeapFunctionCall("fail"), LeapFunctionCall("nowhere"), LeapFunctionCall("double", {"n": "x"})), "sorry"
    )
    events = list(run_functions(conversation, ALLOWED, "go"))
    errors = [event.error for event in events if isinstance(event, FunctionResult)]
    assert errors[0] == "RuntimeError: out of order" and "/n" in str(errors[2])
    assert errors[1] == "there is no function nowhere; call one of double, fail, or answer without"
    assert conversation.history[2].text == '{"error": "RuntimeError: out of order"}'
    assert conversation.history[-1].text == "sorry"


@pytest.mark.parametrize(("decision", "reason"), [("deny", "denies it"), ("ask", "there is no one to ask")])
def test_a_denied_call_ends_the_run_and_nothing_has_run(decision: str, reason: str):
    ran: list[int] = []

    def touch(n: int) -> None:
        ran.append(n)

    _, conversation = conversation_of(
        calls(DOUBLE, LeapFunctionCall("touch", {"n": 1})),
        functions=[LeapFunction.from_callable(double), LeapFunction.from_callable(touch)],
    )
    policy = FunctionPolicy({"double": ToolPolicy(decision)}, default=HERE)
    with pytest.raises(LeapToolError, match=rf"double\(n=21\) was denied: .*{reason}"):
        list(run_functions(conversation, policy, "go"))
    assert ran == []
    assert [message.role.value for message in conversation.history] == ["user", "assistant", "tool", "tool"]


def test_the_callback_gets_the_call_and_can_refuse():
    asked: list[LeapFunctionCall] = []

    def ask(function: LeapFunction, call: LeapFunctionCall) -> bool:
        asked.append(call)
        return call.arguments["n"] == 1

    _, conversation = conversation_of(
        calls(LeapFunctionCall("double", {"n": 1}), LeapFunctionCall("double", {"n": 2})), "half of it"
    )
    policy = FunctionPolicy(default=ToolPolicy("ask", isolated=False), ask=ask)
    run = run_functions(conversation, policy, "go")
    results = [event for event in run if isinstance(event, FunctionResult)]
    assert [result.text for result in results] == ["2", ""] and results[1].denied and results[1].refused
    assert [call.arguments["n"] for call in asked] == [1, 2]
    assert conversation.history[-1].text == "half of it"


def test_rounds_are_limited():
    runner, conversation = conversation_of(*[calls(LeapFunctionCall("double", {"n": n})) for n in range(3)])
    with pytest.raises(LeapToolError, match="after 2 rounds"):
        list(run_functions(conversation, FunctionPolicy(default=HERE, rounds=2), "go"))
    assert len(runner.requests) == 3


def test_a_required_call_is_required_once():
    runner, conversation = conversation_of(calls(DOUBLE), "42")
    list(run_functions(conversation, ALLOWED, "go", GenerationOptions(tool_choice="required", temperature=0.0)))
    assert [request.options.tool_choice for request in runner.requests] == ["required", "auto"]
    assert runner.requests[1].options.temperature == 0.0


def test_calls_of_declared_functions_are_for_the_caller():
    runner, conversation = conversation_of(calls(LeapFunctionCall("f")), functions=[LeapFunction("f", "")])
    events = list(run_functions(conversation, ALLOWED, "go"))
    assert isinstance(events[-1], Complete) and len(runner.requests) == 1
    assert len(conversation.history) == 2


def test_calls_that_stand_unanswered_in_the_history_are_answered():
    _, conversation = conversation_of("It is 42.")
    conversation.append_to_history(ChatMessage("user", "go"))
    conversation.append_to_history(ChatMessage("assistant", function_calls=[DOUBLE]))
    list(run_functions(conversation, ALLOWED))
    assert [message.text for message in conversation.history[2:]] == ["42", "It is 42."]


def test_stopping_ends_the_run():
    runner, conversation = conversation_of(calls(DOUBLE), "never said")
    run = run_functions(conversation, ALLOWED, "go")
    for event in run:
        if isinstance(event, FunctionResult):
            run.stop()
    assert len(runner.requests) == 1 and len(conversation.history) == 3


def test_stopping_while_a_function_runs_ends_the_run_as_interrupted():
    begun, released = threading.Event(), threading.Event()

    def wait() -> str:
        begun.set()
        released.wait(100)
        return "late"

    waiting = [LeapFunction.from_callable(wait)]
    _, conversation = conversation_of(calls(LeapFunctionCall("wait")), "never said", functions=waiting)
    run = run_functions(conversation, ALLOWED, "go")
    threading.Thread(target=lambda: (begun.wait(100), run.stop())).start()
    *_, result, end = run
    released.set()
    assert isinstance(result, FunctionResult) and result.error == "it was interrupted"
    assert isinstance(end, Complete) and end.finish_reason is GenerationFinishReason.INTERRUPTED


def test_closing_keeps_nothing_of_the_reply():
    _, conversation = conversation_of(["a", "b"])
    with run_functions(conversation, ALLOWED, "go") as run:
        assert next(run) == Chunk("a")
    assert conversation.history == [] and not conversation.is_generating


def test_results_are_events():
    event = FunctionResult(DOUBLE, "42", seconds=0.5)
    assert event.to_json() == {
        "type": "function_result",
        "name": "double",
        "arguments": {"n": 21},
        "result": "42",
        "denied": False,
        "seconds": 0.5,
    }


def test_a_call_that_is_repeated_is_not_run_again_and_the_model_has_to_answer():
    counted = iter(range(100))

    def tick(n: int) -> int:
        """Count on."""
        return next(counted)

    same = LeapFunctionCall("tick", {"n": 1})
    runner, conversation = conversation_of(
        calls(same), calls(same), "It is 0.", functions=[LeapFunction.from_callable(tick)]
    )
    *responses, complete = run_functions(conversation, ALLOWED, "go")
    assert complete.full_message.text == "It is 0." and "tick(n=1)" in complete.warnings[0]
    assert [result.text for result in responses if isinstance(result, FunctionResult)] == ["0", "0"]
    assert next(counted) == 1
    assert [request.options.tool_choice for request in runner.requests] == [None, None, "none"]


def test_a_call_may_be_repeated_beside_another_one_later_and_after_an_error():
    tried = iter(range(100))

    def flaky(n: int) -> int:
        """Fail once."""
        if next(tried) == 0:
            raise ValueError("busy")
        return n

    numbers = [calls(LeapFunctionCall("double", {"n": n})) for n in (1, 2, 1)]
    functions = [LeapFunction.from_callable(double), LeapFunction.from_callable(flaky)]
    again = [calls(LeapFunctionCall("flaky", {"n": 1}))] * 2
    both = calls(LeapFunctionCall("flaky", {"n": 1}), LeapFunctionCall("double", {"n": 3}))
    _, conversation = conversation_of(*numbers, *again, both, "done", functions=functions)
    *responses, complete = run_functions(conversation, ALLOWED, "go")
    assert complete.full_message.text == "done" and complete.warnings == ()
    results = [result.error or result.text for result in responses if isinstance(result, FunctionResult)]
    assert results[:3] == ["2", "4", "2"] and "busy" in results[3] and results[4:] == ["1", "1", "6"]
    assert next(tried) == 2
