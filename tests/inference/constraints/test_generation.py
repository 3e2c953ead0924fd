"""Constraints in the engine: a model that writes noise, held to a shape."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import regex

from leap_core.conversation.calls import LeapFunction, LeapFunctionParameter, StringType, parser_named
from leap_core.conversation.options import PARSERS, GenerationOptions
from leap_core.conversation.responses import Chunk, Complete, FunctionCalls, GenerationFinishReason
from leap_core.conversation.runner import ModelRunner
from leap_core.errors import LeapConstraintError, LeapGenerationError, LeapOptionsError, LeapSchemaError
from leap_core.inference.constraints import compiling
from leap_core.inference.constraints.compiling import compile_constraint
from leap_core.inference.llama.model import LlamaModel
from tests.support.random_models import CONTROL_TOKENS

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[a-f]{3}$"},
        "level": {"type": "integer", "minimum": 1, "maximum": 12},
        "kinds": {"type": "array", "items": {"enum": ["new", "old"]}, "minItems": 1, "maxItems": 3},
        "on": {"type": "boolean"},
    },
    "required": ["id", "level", "kinds", "on"],
    "additionalProperties": False,
}
LIGHT = LeapFunction("light", "Switch a light", [LeapFunctionParameter("room", StringType(["hall", "attic"]))])
NOW = LeapFunction("now", "The time")
THINK = CONTROL_TOKENS.index("<think>")


def answer(noise: ModelRunner, functions: Any = (), seed: int = 0, **given: Any) -> tuple[list[Any], Complete]:
    """All responses, and the last of them, of a reply to a fixed question at a high temperature."""
    given = {"temperature": 1.5, "top_p": 1.0, "min_p": 0.0, "top_k": 0, "max_tokens": 300, **given}
    given["logit_bias"] = {THINK: -100.0, **given.get("logit_bias", {})}  # noise would think for ever
    conversation = noise.create_conversation("Be brief.")
    conversation.register_functions(functions)
    responses = list(conversation.generate_response("Go", GenerationOptions(rng_seed=seed, **given)))
    return responses, responses[-1]


@pytest.mark.parametrize("seed", range(8))
def test_constrained_noise_becomes_a_valid_document(noise: ModelRunner, seed: int):
    responses, complete = answer(noise, seed=seed, json_schema_constraint=json.dumps(SCHEMA))
    text = complete.full_message.text
    assert complete.finish_reason is GenerationFinishReason.STOP and complete.warnings == ()
    assert "".join(r.text for r in responses if isinstance(r, Chunk)) == text
    document = json.loads(text)
    assert re.fullmatch("[a-f]{3}", document["id"]) and 1 <= document["level"] <= 12 and document["kinds"]


def test_a_cut_document_is_an_error_and_not_in_the_history(noise: ModelRunner):
    conversation = noise.create_conversation()
    options = GenerationOptions(json_schema_constraint=json.dumps(SCHEMA), max_tokens=5, logit_bias={THINK: -100.0})
    with pytest.raises(LeapConstraintError) as caught:
        list(conversation.generate_response("Go", options))
    assert caught.value.text.startswith("{") and "max_tokens" in caught.value.message
    assert any("not JSON" in problem for problem in caught.value.problems)
    assert conversation.history == []


def test_stopping_a_document_is_not_an_error(noise: ModelRunner):
    conversation = noise.create_conversation()
    stream = conversation.generate_response("Go", GenerationOptions(json_schema_constraint='{"type": "array"}'))
    next(stream)
    stream.stop()
    while not isinstance(response := next(stream), Complete):
        pass
    assert response.finish_reason is GenerationFinishReason.INTERRUPTED


@pytest.mark.parametrize("seed", range(3))
def test_choices_expressions_and_grammars_constrain_the_answer(noise: ModelRunner, seed: int):
    texts = [
        answer(noise, seed=seed, **given)[1].full_message.text
        for given in (
            {"choices_constraint": ["yes", "no", 'say "maybe"\\n']},
            {"regex_constraint": r"[0-9]{3}-[a-z]{2}"},
            {"grammar_constraint": 'start: "<" WORD ">"\nWORD: /[xyz]{2,4}/'},
            {"grammar_constraint": 'root ::= "<" start ">"\nstart ::= [xyz]{2,4}'},
        )
    ]
    assert texts[0] in ("yes", "no", 'say "maybe"\\n')
    # Python's own module knows fewer digits than the engine: U+1CCF7 came with Unicode 16.
    assert regex.fullmatch(r"\d{3}-[a-z]{2}", texts[1]) and re.fullmatch("<[xyz]{2,4}>", texts[2])
    assert re.fullmatch("<[xyz]{2,4}>", texts[3])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"json_schema_constraint": "{"}, "not JSON"),
        ({"json_schema_constraint": '{"type": "number", "enum": ["a"]}'}, "no document can satisfy"),
        ({"json_schema_constraint": '{"$ref": "#/x"}'}, "leads nowhere"),
        ({"regex_constraint": "("}, "regular expression cannot be used"),
        ({"grammar_constraint": "start: nowhere"}, "grammar cannot be used"),
        ({"grammar_constraint": "\n".join(f"r{n}: r{n + 1}" for n in range(3000))}, "the grammar has 3000 rules"),
    ],
)
def test_unusable_constraints_are_errors_before_anything_is_generated(noise: ModelRunner, given: Any, problem: str):
    with pytest.raises(LeapSchemaError, match=problem):
        next(iter(noise.create_conversation().generate_response("Go", GenerationOptions(**given))))


@pytest.mark.parametrize("seed", range(4))
def test_a_required_call_is_one_of_the_declared(noise: ModelRunner, seed: int):
    responses, complete = answer(noise, [LIGHT, NOW], seed, tool_choice="required")
    calls = [call for r in responses if isinstance(r, FunctionCalls) for call in r.function_calls]
    assert calls and complete.full_message.function_calls == tuple(calls) and complete.full_message.text == ""
    for call in calls:
        assert call.name == "now" or call.arguments["room"] in ("hall", "attic")


def test_a_named_function_is_called(noise: ModelRunner):
    for parser in ("lfm", "hermes"):
        _, complete = answer(noise, [LIGHT, NOW], tool_choice="light", function_call_parser=parser)
        (call,) = complete.full_message.function_calls or ()
        assert call.name == "light" and call.arguments["room"] in ("hall", "attic")


def test_tool_choice_none_makes_no_call(noise: ModelRunner, vocabulary: LlamaModel):
    start = vocabulary.special_tokens["<|tool_call_start|>"]
    eager = {start: 50.0}
    _, complete = answer(noise, [NOW], tool_choice="none", logit_bias=eager, max_tokens=20)
    assert complete.full_message.function_calls is None
    _, complete = answer(noise, [NOW], logit_bias=eager)
    assert {call.name for call in complete.full_message.function_calls or ()} == {"now"}


def test_text_is_unconstrained_until_a_call_begins(vocabulary: LlamaModel):
    compiled = compile_constraint(GenerationOptions(), [LIGHT], vocabulary, parser=parser_named("lfm"))
    assert compiled is not None and compiled.constraint is not None
    constraint = compiled.constraint
    logits = flat(vocabulary)
    constraint.apply(logits)
    assert logits.min() == 0.0
    for token in vocabulary.tokenize("any text [", parse_special=False):
        constraint.accept(token)
    constraint.accept(vocabulary.special_tokens["<|tool_call_start|>"])
    assert constraint.forced_tokens() != [] or allowed(constraint, vocabulary) == {"["}
    for token in vocabulary.tokenize('[light(room="hall")]<|tool_call_end|>', parse_special=True):
        constraint.accept(token)
    logits = flat(vocabulary)
    constraint.apply(logits)
    assert logits.min() == 0.0 and not constraint.finished


@pytest.mark.parametrize("key", ["arguments", "parameters"])
@pytest.mark.parametrize("before", ["", "```json\n", "[", "\n [\n  "])
@pytest.mark.parametrize("parser", ["lfm", "hermes", "mistral"])
def test_a_json_call_without_markers_is_constrained_to_the_declared_arguments(
    vocabulary: LlamaModel, before, key, parser
):
    compiled = compile_constraint(GenerationOptions(), [LIGHT, NOW], vocabulary, parser=parser_named(parser))
    assert compiled is not None and compiled.constraint is not None
    constraint = compiled.constraint
    for token in vocabulary.tokenize(f'{before}{{"name": "light", "{key}": {{"room": "', parse_special=False):
        constraint.accept(token)
    assert allowed(constraint, vocabulary) <= {"h", "ha", "hal", "hall", 'hall"', "a", "at", "attic", "atti", "att"}
    after = "]" * before.count("[") + "\n```" * before.count("```")
    for token in vocabulary.tokenize('attic"}}' + after, parse_special=False):
        constraint.accept(token)
    ends = {vocabulary.text_of([token]) for token in vocabulary.eog_tokens}
    assert ends & allowed(constraint, vocabulary) and "x" not in allowed(constraint, vocabulary)


def test_the_grammar_of_a_call_without_markers_is_compiled_when_one_begins(
    vocabulary: LlamaModel, monkeypatch: pytest.MonkeyPatch
):
    written: list[bool] = []

    def refused(*_: Any, **__: Any) -> str:
        written.append(True)
        raise LeapSchemaError("too large")

    monkeypatch.setattr(compiling, "bare_grammar", refused)
    compiled = compile_constraint(GenerationOptions(), [LIGHT], vocabulary, parser=parser_named("lfm"))
    assert compiled is not None and compiled.constraint is not None and not written
    for token in vocabulary.tokenize('{"name": "light", "arguments": {"x', parse_special=False):
        compiled.constraint.accept(token)
    assert written == [True]  # and what cannot be compiled leaves the text free


@pytest.mark.slow
@pytest.mark.parametrize("parser", [name for name in PARSERS if name != "auto"])
@pytest.mark.parametrize("choice", ["required", "now"])
def test_a_required_call_is_made_in_every_dialect(noise: ModelRunner, parser: str, choice: str):
    for seed in range(3):
        _, complete = answer(noise, [NOW], seed, tool_choice=choice, function_call_parser=parser, max_tokens=2000)
        calls = complete.full_message.function_calls or ()
        assert {call.name for call in calls} == {"now"}, complete.full_message.text[-200:]
        assert len(calls) == 1 or choice == "required"


@pytest.mark.parametrize("parser", [name for name in PARSERS if name != "auto"])
def test_a_required_call_comes_before_a_schema(noise: ModelRunner, parser: str):
    shape = {"json_schema_constraint": '{"type": "object"}', "complete_json": True}
    _, complete = answer(noise, [NOW], tool_choice="now", function_call_parser=parser, max_tokens=2000, **shape)
    assert [call.name for call in complete.full_message.function_calls or ()] == ["now"]


@pytest.mark.parametrize(
    "text",
    [
        'A call is {"name": "light", "arguments": {',
        '{"name": "Ada", "arguments": {',
        '{"name": "other", "parameters": {',
        '{"age": 36, "name": "light", "arguments": {',
        "```python\n",
        "[1, 2, 3",
    ],
)
def test_other_text_is_not_constrained(vocabulary: LlamaModel, text: str):
    compiled = compile_constraint(GenerationOptions(), [LIGHT, NOW], vocabulary, parser=parser_named("hermes"))
    assert compiled is not None and compiled.constraint is not None
    for token in vocabulary.tokenize(text, parse_special=False):
        compiled.constraint.accept(token)
    logits = flat(vocabulary)
    compiled.constraint.apply(logits)
    assert logits.min() == 0.0 and not compiled.constraint.finished


def flat(vocabulary: LlamaModel) -> Any:
    import numpy as np

    return np.zeros(vocabulary.n_tokens, dtype=np.float32)


def allowed(constraint: Any, vocabulary: LlamaModel) -> set[str]:
    logits = flat(vocabulary)
    constraint.apply(logits)
    return {vocabulary.text_of([int(token)]) for token in (logits == 0).nonzero()[0]}


def test_reasoning_comes_before_the_constraint(vocabulary: LlamaModel):
    options = GenerationOptions(choices_constraint=["yes", "no"])
    start, end = vocabulary.special_tokens["<think>"], vocabulary.special_tokens["</think>"]

    def fresh(**given: Any) -> Any:
        compiled = compile_constraint(options, [], vocabulary, **given)
        assert compiled is not None
        return compiled.constraint

    constraint = fresh()
    assert {"<think>", "y", "n"} <= allowed(constraint, vocabulary)
    assert constraint.forced_tokens() == []
    constraint.accept(start)
    free = allowed(constraint, vocabulary)
    assert len(free) > 500 and "<|im_end|>" not in free and not constraint.finished
    constraint.accept(end)
    assert "<think>" not in allowed(constraint, vocabulary) and "y" in allowed(constraint, vocabulary)

    opened = fresh(reasoning_open=True)
    assert len(allowed(opened, vocabulary)) > 500
    opened.accept(end)
    assert "</think>" not in allowed(opened, vocabulary)

    straight = fresh()
    for token in vocabulary.tokenize("no", parse_special=False):
        straight.accept(token)
    assert straight.finished


def test_a_model_without_reasoning_is_not_made_to_reason(vocabulary: LlamaModel):
    compiled = compile_constraint(GenerationOptions(choices_constraint=["yes"]), [], vocabulary)
    assert compiled is not None and compiled.constraint is not None
    logits = flat(vocabulary)
    logits[100] = 5.0  # what it would like to say
    compiled.constraint.apply(logits)
    assert logits[THINK] == float("-inf") and logits.max() == 0.0


def test_forced_tokens_need_no_sampling(vocabulary: LlamaModel):
    options = GenerationOptions(choices_constraint=["one and only"])
    compiled = compile_constraint(options, [], vocabulary)
    assert compiled is not None
    constraint: Any = compiled.constraint
    first = vocabulary.tokenize("o", parse_special=False)[0]
    constraint.accept(first)
    text = "o"
    while not constraint.finished:
        forced = constraint.forced_tokens()
        if not forced:
            (only,) = allowed(constraint, vocabulary) or ("",)
            forced = vocabulary.tokenize(only, parse_special=False)
        for token in forced:
            constraint.accept(token)
        text += vocabulary.text_of(forced)
    assert text == "one and only"


def test_a_token_that_is_not_allowed_is_an_error(vocabulary: LlamaModel):
    compiled = compile_constraint(GenerationOptions(choices_constraint=["yes"]), [], vocabulary)
    assert compiled is not None and compiled.constraint is not None
    with pytest.raises(LeapGenerationError):
        compiled.constraint.accept(vocabulary.tokenize("z", parse_special=False)[0])


def test_a_shape_and_functions_together(vocabulary: LlamaModel):
    options = GenerationOptions(choices_constraint=["yes", "no"])
    compiled = compile_constraint(options, [NOW], vocabulary, parser=parser_named("lfm"))
    assert compiled is not None
    constraint: Any = compiled.constraint
    assert {"<|tool_call_start|>", "y", "n", "<think>"} <= allowed(constraint, vocabulary)
    constraint.accept(vocabulary.special_tokens["<|tool_call_start|>"])
    for token in vocabulary.tokenize("[now()]<|tool_call_end|>", parse_special=True):
        constraint.accept(token)
    assert constraint.finished


@pytest.mark.parametrize(
    ("choice", "functions", "parser"),
    [("required", [], "lfm"), ("other", [NOW], "lfm"), ("required", [NOW], None)],
)
def test_an_impossible_tool_choice_is_named(vocabulary: LlamaModel, choice: str, functions: Any, parser: str | None):
    with pytest.raises(LeapOptionsError, match="tool_choice"):
        compile_constraint(
            GenerationOptions(tool_choice=choice), functions, vocabulary, parser=parser and parser_named(parser)
        )


def test_a_plain_request_has_no_constraint(vocabulary: LlamaModel):
    assert compile_constraint(GenerationOptions(), [], vocabulary, parser=parser_named("lfm")) is None
    assert compile_constraint(GenerationOptions(), [NOW], vocabulary, parser=None) is None


def test_the_vocabulary_is_read_once(vocabulary: LlamaModel):
    from leap_core.schemas.grammar_matcher import tokenizer_of

    assert tokenizer_of(vocabulary) is tokenizer_of(vocabulary)
