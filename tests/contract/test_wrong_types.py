"""What a program hands over by mistake: every runner raises the same LeapErrors."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from leap_core import (
    ChatMessage,
    GenerationOptions,
    Leap,
    LeapError,
    LeapFunctionCall,
    LeapFunctionParameter,
    LeapModelNotFoundError,
    LeapOptionsError,
    LeapSerializationError,
    ModelRunner,
    Text,
    read_manifest,
    run_functions,
)
from leap_core.conversation.calls.declaration import declare
from leap_core.testing import ScriptedModelRunner

CALL = LeapFunctionCall("f", {"x": object()})


def weather(city: str) -> str:
    """The weather."""
    return city


@pytest.mark.parametrize("message", [5, b"x", ["a"], Text("hi"), {"role": "user"}])
def test_an_invalid_message_is_named_in_the_error(runner: ModelRunner, message: Any) -> None:
    with pytest.raises(LeapSerializationError):
        list(runner.create_conversation().generate_response(message))
    with pytest.raises(LeapSerializationError):
        runner.get_prompt_tokens_size("hi")  # type: ignore[arg-type]


def test_messages_are_accepted_as_json_objects(subject) -> None:
    runner = subject.new_runner()
    question = {"role": "user", "content": subject.short(runner)}
    sizes = [runner.get_prompt_tokens_size([message]) for message in (question, ChatMessage.from_json(question))]
    assert sizes[0] == sizes[1] > 0
    assert runner.get_prompt_tokens_size([question], options=GenerationOptions()) == sizes[0]
    conversation = runner.create_conversation()
    assert list(conversation.generate_response(question)) and len(conversation.history) == 2


def test_options_as_a_dict_are_an_error(runner: ModelRunner) -> None:
    options: Any = {"temperature": 0}
    for action in (
        lambda: list(runner.create_conversation().generate_response("hi", options)),
        lambda: runner.start([ChatMessage("user", "hi")], options=options),
        lambda: Leap.load("builtin", {"slots": 1}),  # type: ignore[arg-type]
        lambda: run_functions(runner.create_conversation(), "hi"),  # type: ignore[arg-type]
        lambda: LeapFunctionParameter("a", "string"),  # type: ignore[arg-type]
    ):
        with pytest.raises(LeapOptionsError):
            action()


def test_arguments_of_calls_must_be_json(runner: ModelRunner) -> None:
    for argument in (object(), float("nan")):
        call = LeapFunctionCall("f", {"x": argument})
        with pytest.raises(LeapSerializationError, match="not JSON"):
            call.to_json()
    with pytest.raises(LeapSerializationError, match="LeapFunctionCall"):
        ChatMessage("assistant", "", function_calls=["f"])  # type: ignore[list-item]


def test_a_manifest_path_can_be_a_string(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(
        '{"inference_type": "llama.cpp/text-to-text", "schema_version": "1.0.0", '
        '"load_time_parameters": {"model": "m.gguf"}}'
    )
    assert read_manifest(str(path)).model == "m.gguf"


def test_impossible_choices_and_tokens_are_option_errors(runner: ModelRunner, tmp_path: Path) -> None:
    if isinstance(runner, ScriptedModelRunner):
        pytest.skip("the script says what is answered")
    messages = [ChatMessage("user", "hi")]
    for functions, choice in (([declare(weather)], "nosuch"), ([], "required")):
        with pytest.raises(LeapOptionsError):
            list(runner.start(messages, functions, GenerationOptions(tool_choice=choice)))
    with pytest.raises(LeapOptionsError):
        runner.detokenize([-1])
    with pytest.raises(LeapOptionsError):
        runner.detokenize([10**9])
    with pytest.raises(LeapModelNotFoundError):
        runner.set_adapters([tmp_path / "none.gguf"])  # type: ignore[list-item]
    with suppress(LeapSerializationError):  # where it has to be written down
        list(runner.start([*messages, ChatMessage("assistant", "", function_calls=[CALL])]))
    assert list(runner.start(messages, options=GenerationOptions(max_tokens=1)))


def test_a_failing_callback_is_reported_and_the_answer_is_kept(subject) -> None:
    runner = subject.new_runner()
    conversation = runner.create_conversation_from_history([ChatMessage("user", subject.short(runner))])
    heard: list[LeapError] = []

    def callback(_response: object) -> None:
        raise RuntimeError("mine")

    runner.generate_from_conversation(conversation, callback, on_error=heard.append).wait(60)
    assert [str(error) for error in heard] == ["the callback failed: RuntimeError: mine"]
    assert [message.role.value for message in conversation.history] == ["user", "assistant"]


def test_a_history_shares_nothing_with_its_caller(runner: ModelRunner) -> None:
    arguments = {"x": [1]}
    conversation = runner.create_conversation()
    conversation.append_to_history(ChatMessage("assistant", "", function_calls=[LeapFunctionCall("f", arguments)]))
    arguments["x"].append(2)
    (message,) = conversation.history
    assert message.function_calls is not None and message.function_calls[0].arguments == {"x": [1]}
