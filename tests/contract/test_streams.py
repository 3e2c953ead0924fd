"""A response stream: cold, ends with Complete, and joins up with the history. On the fake and on the real engine."""

from __future__ import annotations

import asyncio

import pytest

from leap_core import (
    ChatMessage,
    ChatMessageRole,
    Chunk,
    Complete,
    Conversation,
    GenerationFinishReason,
    GenerationOptions,
    LeapGenerationError,
    LeapGenerationPromptExceedContextLengthError,
    LeapOptionsError,
)


def roles(conversation):
    return [message.role.value for message in conversation.history]


def test_a_stream_ends_with_one_complete_that_has_the_whole_text(subject, runner):
    responses = list(runner.create_conversation().generate_response(subject.short(runner)))
    *pieces, end = responses
    assert isinstance(end, Complete) and end.finish_reason is GenerationFinishReason.STOP
    assert pieces and all(isinstance(piece, Chunk) and piece.text for piece in pieces)
    assert end.full_message.role is ChatMessageRole.ASSISTANT
    assert "".join(piece.text for piece in pieces) == end.full_message.text != ""
    assert "Paris" in end.full_message.text


@pytest.mark.parametrize("stop", ["Paris", "is Paris", "is Par"])
def test_the_text_ends_before_a_stop_string(subject, runner, stop):
    *pieces, end = runner.create_conversation().generate_response(
        subject.short(runner), GenerationOptions(temperature=0, stop=(stop,))
    )
    assert end.finish_reason is GenerationFinishReason.STOP
    assert end.full_message.text == "".join(piece.text for piece in pieces)
    assert end.full_message.text.startswith("The capital") and stop.split()[0] not in end.full_message.text


def test_a_prefix_of_a_stop_string_at_the_end_is_text(subject, runner):
    options = GenerationOptions(temperature=0, stop=("Paris. Not",))
    *_, end = runner.create_conversation().generate_response(subject.short(runner), options)
    assert end.full_message.text.endswith("Paris.")


def test_statistics_add_up(subject, runner):
    conversation = runner.create_conversation("Be brief.")
    prompt = subject.short(runner)
    expected = runner.get_prompt_tokens_size([*conversation.history, ChatMessage("user", prompt)])
    *_, end = conversation.generate_response(prompt)
    stats = end.stats
    if subject.shows_prompts:  # elsewhere they are estimated before, and counted by the answer
        assert stats.prompt_tokens == expected
    else:
        assert 0 < expected < 4 * stats.prompt_tokens
    assert stats.total_tokens == stats.prompt_tokens + stats.completion_tokens
    assert 0 <= stats.cached_prompt_tokens < stats.prompt_tokens
    assert stats.completion_tokens >= 2 and stats.token_per_second > 0
    assert 0 <= stats.time_to_first_token < 60


def test_nothing_happens_before_a_stream_is_iterated(subject, runner):
    conversation = runner.create_conversation()
    stream = conversation.generate_response(subject.short(runner))
    assert not conversation.is_generating and conversation.history == []
    stream.close()
    assert conversation.history == []


def test_a_stream_is_iterated_once(subject, runner):
    stream = runner.create_conversation().generate_response(subject.short(runner))
    list(stream)
    with pytest.raises(RuntimeError, match="only once"):
        list(stream)


def test_history_gains_both_messages_before_complete_is_seen(subject, runner):
    conversation = runner.create_conversation("Be brief.")
    prompt = subject.short(runner)
    for response in conversation.generate_response(prompt):
        if isinstance(response, Complete):
            assert conversation.history[1:] == [ChatMessage("user", prompt), response.full_message]
            assert not conversation.is_generating
        else:
            assert roles(conversation) == ["system"]
            assert conversation.is_generating


def test_the_second_turn_contains_the_first(subject, runner):
    conversation = runner.create_conversation()
    for _ in range(2):
        *_, end = conversation.generate_response(subject.short(runner))
        assert "Paris" in end.full_message.text
    assert roles(conversation) == ["user", "assistant", "user", "assistant"]


def test_a_conversation_continues_a_history(subject, runner):
    history = [ChatMessage("system", "Be brief."), ChatMessage("user", "Hi."), ChatMessage("assistant", "Hello.")]
    for conversation in (runner.create_conversation_from_history(history), Conversation(runner, history)):
        *_, end = conversation.generate_response(subject.short(runner))
        assert conversation.history[:3] == history and conversation.history[4] == end.full_message


def test_the_history_is_answered_without_a_new_message(subject, runner):
    conversation = runner.create_conversation_from_history([ChatMessage("user", subject.short(runner))])
    *_, end = conversation.generate_response(None)
    assert roles(conversation) == ["user", "assistant"]
    assert conversation.history[-1] == end.full_message


def test_the_history_is_a_copy_and_can_be_edited(runner):
    conversation = runner.create_conversation("one")
    conversation.history.clear()
    conversation.append_to_history(ChatMessage("user", "two"))
    assert [m.text for m in conversation.history] == ["one", "two"]
    for _ in range(3):
        conversation.remove_last_message()
    assert conversation.history == []


def test_export_is_openai_json(subject, runner):
    conversation = runner.create_conversation("Be brief.")
    prompt = subject.short(runner)
    *_, end = conversation.generate_response(prompt)
    assert conversation.export_to_json() == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": end.full_message.text},
    ]


def test_max_tokens_end_an_answer_and_keep_it(subject, runner):
    conversation = runner.create_conversation()
    *_, end = conversation.generate_response(subject.long(runner), GenerationOptions(max_tokens=7))
    assert end.finish_reason is GenerationFinishReason.MAX_TOKENS
    assert end.stats.completion_tokens == 7
    assert conversation.history[-1] == end.full_message


def test_the_end_of_the_context_ends_an_answer_and_keeps_it(subject):
    runner = subject.new_runner(context_size=64)
    assert runner.context_size == 64
    conversation = runner.create_conversation()
    *_, end = conversation.generate_response(subject.long(runner))
    assert end.finish_reason is GenerationFinishReason.EXCEED_CONTEXT
    assert end.stats.total_tokens == 65, "the last token needs no place of its own"
    assert conversation.history[-1] == end.full_message and end.full_message.text


def test_a_prompt_longer_than_the_context_is_refused_with_both_counts(subject):
    runner = subject.new_runner(context_size=64)
    conversation = runner.create_conversation()
    subject.short(runner)
    with pytest.raises(LeapGenerationPromptExceedContextLengthError) as caught:
        list(conversation.generate_response("word " * 200))
    assert caught.value.prompt_tokens > 200 and caught.value.context_size == 64
    assert conversation.history == [] and not conversation.is_generating
    *_, end = conversation.generate_response(subject.short(runner))
    assert end.finish_reason is GenerationFinishReason.STOP, "the runner serves on"


def test_options_that_exclude_each_other_are_refused_before_anything_is_generated(subject, runner):
    options = GenerationOptions()
    options.regex_constraint, options.choices_constraint = "a+", ["a"]
    conversation = runner.create_conversation()
    with pytest.raises(LeapOptionsError, match="cannot be combined"):
        list(conversation.generate_response(subject.short(runner), options))
    assert conversation.history == [] and not conversation.is_generating


def test_after_unload_history_is_readable_and_generating_raises(subject):
    runner = subject.new_runner()
    conversation = runner.create_conversation("Be brief.")
    list(conversation.generate_response(subject.short(runner)))
    runner.unload()
    runner.unload()
    assert roles(conversation) == ["system", "user", "assistant"]
    assert len(conversation.export_to_json()) == 3
    for _ in range(2):
        with pytest.raises(LeapGenerationError, match="unloaded"):
            list(conversation.generate_response(subject.short(runner)))
    assert roles(conversation) == ["system", "user", "assistant"]
    assert not conversation.is_generating


def test_unloading_ends_a_running_answer_with_an_error(subject):
    runner = subject.new_runner()
    conversation = runner.create_conversation()
    stream = conversation.generate_response(subject.long(runner))
    assert isinstance(next(stream), Chunk)
    runner.unload()
    with pytest.raises(LeapGenerationError, match="unloaded"):
        list(iter(lambda: next(stream), None))
    assert conversation.history == [] and not conversation.is_generating


def test_leaving_the_with_block_unloads(subject):
    with subject.load() as runner:
        conversation = runner.create_conversation()
    with pytest.raises(LeapGenerationError, match="unloaded"):
        list(conversation.generate_response("Hi."))


def test_unload_without_blocking_the_loop(subject):
    runner = subject.new_runner()
    asyncio.run(runner.unload_async())
    with pytest.raises(LeapGenerationError, match="unloaded"):
        list(runner.create_conversation().generate_response("Hi."))


def test_prompts_are_counted(runner):
    one = runner.get_prompt_tokens_size([ChatMessage("user", "one")])
    two = runner.get_prompt_tokens_size([ChatMessage("user", "one"), ChatMessage("assistant", "two three four")])
    assert 0 < one < two
    assert one - 1 <= runner.get_prompt_tokens_size([ChatMessage("user", "one")], add_bos_token=False) <= one


def test_a_runner_has_a_name_and_a_context(runner):
    assert runner.model_id and runner.context_size > 0
