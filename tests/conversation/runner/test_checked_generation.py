"""The check of finished texts, repair, and telling the model the schema; on a scripted model."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from leap_core.conversation.messages import ChatMessage, LeapFunctionCall
from leap_core.conversation.responses import (
    Chunk,
    Complete,
    FunctionCalls,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
)
from leap_core.conversation.streams import CheckedGeneration
from leap_core.errors import LeapConstraintError, LeapGenerationPromptExceedContextLengthError, LeapSchemaError
from leap_core.inference.constraints import inject_schema
from leap_core.inference.constraints.token_constraints import CompiledConstraint
from leap_core.testing import ScriptedModelRunner


def even(text: str) -> list[str]:
    return [] if text.isdigit() and int(text) % 2 == 0 else [f"{text} is not even"]


class Unfinished:
    finished = False


def checked(*scripts: object, exact: bool, **more: object) -> tuple[CheckedGeneration, ScriptedModelRunner]:
    runner = ScriptedModelRunner(*scripts)
    asked = [ChatMessage("user", "an even number")]

    def again(more: Sequence[ChatMessage]):
        return runner.start([*asked, *more])

    held = Unfinished() if more.pop("unfinished", False) else None
    constraint = CompiledConstraint(held, validate=even, exact=exact, **more)  # type: ignore[arg-type]
    return CheckedGeneration(again([]), constraint, again), runner


def test_an_exact_constraint_streams():
    generation, _ = checked(["1", "2"], exact=True)
    assert next(generation) == Chunk("1")
    assert [type(r) for r in generation] == [Chunk, Complete]


def test_a_lenient_constraint_is_held_back_and_repaired():
    generation, runner = checked([ReasoningChunk("hm"), "3"], ["1", "6"], exact=False)
    responses = list(generation)
    assert [type(r) for r in responses] == [ReasoningChunk, Chunk, Chunk, Complete]
    assert responses[-1].full_message.text == "16" and "2 times" in responses[-1].warnings[0]
    more = runner.requests[1].messages[1:]
    assert more[0] == ChatMessage("assistant", "3") and "- 3 is not even" in more[1].text


def test_repair_stops_and_keeps_text_and_problems():
    generation, runner = checked("1", "3", "5", "7", exact=False)
    with pytest.raises(LeapConstraintError) as caught:
        list(generation)
    assert caught.value.text == "5" and caught.value.problems == ("5 is not even",)
    assert "after 3 tries" in caught.value.message and len(runner.requests) == 3


@pytest.mark.parametrize("exact", [True, False])
def test_a_cut_text_is_not_repaired(exact: bool):
    cut = Complete(ChatMessage("assistant", "3"), GenerationFinishReason.MAX_TOKENS)
    generation, runner = checked(["3", cut], exact=exact)
    with pytest.raises(LeapConstraintError, match="cut at max_tokens") as caught:
        list(generation)
    assert caught.value.cut_by == GenerationFinishReason.MAX_TOKENS.value and len(runner.requests) == 1


def test_a_cut_text_that_is_valid_is_accepted():
    cut = Complete(ChatMessage("assistant", "4"), GenerationFinishReason.MAX_TOKENS)
    generation, _ = checked(["4", cut], exact=True)
    assert list(generation)[-1] is not None


def test_a_number_that_was_cut_is_incomplete():
    cut = Complete(ChatMessage("assistant", "4"), GenerationFinishReason.MAX_TOKENS)
    generation, _ = checked(["4", cut], exact=True, whole=True, unfinished=True)
    with pytest.raises(LeapConstraintError, match="cut at max_tokens.*more could have followed"):
        list(generation)
    generation, _ = checked(["4"], exact=True, whole=True, unfinished=True)
    assert isinstance(last(generation), Complete)


def test_a_cut_call_is_an_error_where_a_call_is_required():
    cut = Complete(ChatMessage("assistant", "[f("), GenerationFinishReason.MAX_TOKENS)
    generation, _ = checked(["[f(", cut], exact=True, calls=True)
    with pytest.raises(LeapConstraintError, match="cut at max_tokens.*no call is complete"):
        next(generation)


def last(generation: CheckedGeneration) -> MessageResponse:
    return list(generation)[-1]


def test_calls_and_stopped_replies_are_not_checked():
    generation, _ = checked([FunctionCalls((LeapFunctionCall("f"),))], exact=True)
    assert isinstance(last(generation), Complete)
    generation, _ = checked(["3", "5"], exact=True)
    next(generation)
    generation.stop()
    found = last(generation)
    assert isinstance(found, Complete) and found.finish_reason is GenerationFinishReason.INTERRUPTED


def test_the_schema_is_in_the_system_message():
    user = ChatMessage("user", "hi")
    schema = {"type": "object", "title": "É"}
    sentence = "Respond only with JSON that matches this JSON schema:\n" + json.dumps(schema)
    assert inject_schema([user], schema) == [ChatMessage("system", sentence), user]
    system = ChatMessage("system", "Be brief.")
    (told, _) = inject_schema([system, user], '{"type":"object","title":"É"}')
    assert told.text == f"Be brief.\n{sentence}"
    (told, _) = inject_schema([ChatMessage("system", ""), user], schema)
    assert told.text == sentence
    with pytest.raises(LeapSchemaError, match="not JSON"):
        inject_schema([user], "{")
    with pytest.raises(LeapSchemaError, match="not JSON"):
        inject_schema([user], "[" * 100_000)


def test_a_repair_that_does_not_fit_reports_the_original_failure():
    first = ScriptedModelRunner(["3"]).start([ChatMessage("user", "an even number")])

    def again(_: Sequence[ChatMessage]):
        raise LeapGenerationPromptExceedContextLengthError(130, 100)

    with pytest.raises(LeapConstraintError, match="does not fit its constraint: 3 is not even") as caught:
        list(CheckedGeneration(first, CompiledConstraint(None, validate=even, exact=False), again))
    assert caught.value.text == "3"
