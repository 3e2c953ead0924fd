"""A prompt can be seen before anything is generated, and a text gone on from without a chat template."""

from __future__ import annotations

import json

import pytest

from leap_core import (
    ChatMessage,
    Chunk,
    Complete,
    GenerationOptions,
    LeapGenerationError,
    LeapGenerationPromptExceedContextLengthError,
    LeapOptionsError,
)
from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.messages import LeapFunctionCall

from .conftest import GREEDY, Scripted

ASKED = [ChatMessage("system", "Be brief."), ChatMessage("user", "What is the capital of France?")]


def test_a_prompt_is_rendered_with_its_token_count(subject, runner):
    if not subject.shows_prompts:
        with pytest.raises(LeapGenerationError, match="does not show"):
            runner.render(ASKED)
        return
    rendered = runner.render(ASKED)
    assert rendered.tokens == runner.get_prompt_tokens_size(ASKED)
    assert rendered.text.index("Be brief.") < rendered.text.index("What is the capital of France?")


def test_the_rendered_prompt_is_what_the_answer_is_made_from(subject, runner):
    if not subject.shows_prompts:
        pytest.skip("it makes the prompt elsewhere")
    prompt = subject.short(runner)
    rendered = runner.render([ChatMessage("user", prompt)])
    *_, end = runner.create_conversation().generate_response(prompt)
    assert rendered.tokens == end.stats.prompt_tokens


def test_tool_choice_none_hides_functions_and_keeps_earlier_calls(subject, runner):
    if not subject.shows_prompts:
        pytest.skip("it makes the prompt elsewhere")
    look = LeapFunction("look", "Looks at a place.", [])
    asked = [
        ChatMessage("user", "Look!"),
        ChatMessage("assistant", "", function_calls=[LeapFunctionCall("look", {"at": "the moon"}, "c1")]),
        ChatMessage("tool", "It is round.", tool_call_id="c1"),
    ]
    shown = runner.render(asked, [look]).text
    if "Looks at a place." not in shown:
        pytest.skip("its template has no place for functions")
    hidden = runner.render(asked, [look], GenerationOptions(tool_choice="none")).text
    assert "Looks at a place." not in hidden
    assert "the moon" in hidden and "It is round." in hidden


def test_a_schema_that_the_messages_have_is_not_sent_twice(subject, runner):
    if not subject.shows_prompts:
        pytest.skip("it makes the prompt elsewhere")
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    options = GenerationOptions(json_schema_constraint=json.dumps(schema))
    once = runner.render(ASKED, (), options).text
    if '"city"' not in once:
        pytest.skip("it shows no schema")
    own = [ChatMessage("system", f"Answer with JSON of this schema:\n{json.dumps(schema, indent=2)}"), ASKED[1]]
    assert runner.render(own, (), options).text.count('"city"') == once.count('"city"')


def test_a_raw_text_is_continued_unchanged(subject, runner):
    prompt = subject.short(runner)
    if subject.shows_prompts:
        text = runner.render([ChatMessage("user", prompt)]).text
    else:
        text = f"<|startoftext|><|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    rendered = runner.render(text)
    assert rendered.text == text
    *pieces, end = runner.start_text(text, GREEDY)
    assert isinstance(end, Complete) and pieces and all(isinstance(piece, Chunk) for piece in pieces)
    assert "Paris" in end.full_message.text
    assert rendered.tokens == end.stats.prompt_tokens


def test_a_text_longer_than_the_context_is_rendered_and_refused(subject):
    runner = subject.new_runner(context_size=64)
    text = "word " * 200
    assert runner.render(text).tokens > 64
    with pytest.raises(LeapGenerationPromptExceedContextLengthError):
        runner.start_text(text)


def test_options_of_a_text_are_checked(runner):
    options = GenerationOptions()
    options.regex_constraint, options.choices_constraint = "a+", ["a"]
    with pytest.raises(LeapOptionsError, match="cannot be combined"):
        runner.start_text("Hello", options)


def test_nothing_is_rendered_or_started_after_unload(subject, runner):
    runner.unload()
    with pytest.raises(LeapGenerationError):
        runner.render(ASKED)
    with pytest.raises(LeapGenerationError):
        runner.start_text("Hello")


def test_the_tokens_of_a_text_decode_to_it(subject, runner):
    if isinstance(subject, Scripted):
        with pytest.raises(LeapGenerationError, match="cannot tokenize"):
            runner.tokenize("Hi")
        return
    tokens = runner.tokenize("not sure, 10 日本")
    assert len(tokens) > 3 and runner.detokenize(tokens) == "not sure, 10 日本"
    assert len(runner.tokenize("<|im_end|>", parse_special=True)) == 1 < len(runner.tokenize("<|im_end|>"))


def test_a_partial_answer_is_continued_and_not_repeated(subject, runner):
    """It was closed as a turn of its own, and the model said it again."""
    question = ChatMessage("user", subject.short(runner))
    begun = [question, ChatMessage("assistant", "The capital of")]
    if subject.shows_prompts:
        assert runner.render(begun).text.endswith("The capital of")
    conversation = runner.create_conversation_from_history(begun)
    *_, end = conversation.generate_response(None, GREEDY)
    if not isinstance(subject, Scripted):
        assert end.full_message.text == " France is Paris."
    assert conversation.history == [question, ChatMessage("assistant", "The capital of" + end.full_message.text)]


def test_model_names_in_the_file_header_are_known_where_the_file_is(subject, runner):
    known = subject.shows_prompts and not isinstance(subject, Scripted)
    assert runner.header_names == (("leap-built-in-demo", "lfm2") if known else ())
