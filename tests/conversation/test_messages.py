"""Messages and their parts: construction, comparison, OpenAI's JSON there and back."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from leap_core.conversation.messages import (
    Audio,
    AudioPcmF32,
    ChatMessage,
    ChatMessageContent,
    ChatMessageRole,
    Image,
    LeapFunctionCall,
    LeapJSONEncoder,
    Text,
    leap_object_hook,
    messages_from_json,
)
from leap_core.errors import LeapSerializationError

JPEG = b"\xff\xd8\xff\xe0 a picture"
PICTURE = Image(JPEG).to_json()
CALL = LeapFunctionCall(
    "weather", {"city": "Bern", "days": 3, "exact": True, "at": None, "more": [1, {"a": 2.5}]}, "c1"
)

MESSAGES = [
    ChatMessage("system", "You are brief."),
    ChatMessage(ChatMessageRole.USER, 'Grüße, 世界 🌍\n\t"quoted" \\ and \u2028'),
    ChatMessage("user", ""),
    ChatMessage("user", [Text("Look:"), Image(JPEG)]),
    ChatMessage("user", Audio.from_float_samples([0.0, 0.5, -1.0], 16000)),
    ChatMessage("user", AudioPcmF32((0.0, 0.1, -0.7), 24000)),
    ChatMessage("user", [Text("a"), Text("b")]),
    ChatMessage("assistant", "Fine.", reasoning_content="2 + 2 = 4"),
    ChatMessage("assistant", function_calls=[CALL, LeapFunctionCall("now")]),
    ChatMessage("assistant", "I look.", function_calls=[CALL]),
    ChatMessage("assistant"),
    ChatMessage("tool", '{"degrees": 21}', tool_call_id="c1"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: f"{m.role.value}-{len(m.content)}")
def test_a_message_survives_its_json(message):
    text = json.dumps(message.to_json(), allow_nan=False)
    assert ChatMessage.from_json(json.loads(text)) == message


def test_a_history_survives_json_dumps_and_loads():
    text = json.dumps({"messages": MESSAGES, "other": {"role": 5}}, cls=LeapJSONEncoder)
    assert json.loads(text, object_hook=leap_object_hook) == {"messages": MESSAGES, "other": {"role": 5}}


def test_the_encoder_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(object(), cls=LeapJSONEncoder)


@pytest.mark.parametrize("text", ['{"role": [], "content": "x"}', '{"role": {}, "content": "x"}', '{"role": "user"}'])
def test_the_object_hook_does_not_change_other_objects(text):
    assert json.loads(text, object_hook=leap_object_hook) == json.loads(text)


def test_parts_and_calls_are_written_by_the_encoder_too():
    assert json.loads(json.dumps([Text("x"), CALL], cls=LeapJSONEncoder)) == [
        {"type": "text", "text": "x"},
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "weather", "arguments": json.dumps(CALL.arguments)},
        },
    ]


def test_openai_json_of_each_message():
    assert ChatMessage("user", "hi").to_json() == {"role": "user", "content": "hi"}
    assert ChatMessage("user", [Text("a"), Image(JPEG)]).to_json() == {
        "role": "user",
        "content": [
            {"type": "text", "text": "a"},
            {
                "type": "image_url",
                "image_url": {"url": "data:image/jpeg;base64," + base64.b64encode(JPEG).decode()},
            },
        ],
    }
    audio = Audio.from_float_samples([0.25], 8000)
    assert ChatMessage("user", audio).to_json()["content"] == [
        {
            "type": "input_audio",
            "input_audio": {"data": base64.b64encode(audio.data).decode(), "format": "wav"},
        }
    ]
    assert ChatMessage("assistant", function_calls=[LeapFunctionCall("now")]).to_json() == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "now", "arguments": "{}"}}],
    }


def test_pcm_samples_are_float32_bit_for_bit():
    samples = (0.1, -0.3, 1.0)
    part = AudioPcmF32(samples, 16000)
    assert part.samples == struct.unpack("<3f", struct.pack("<3f", *samples))
    assert ChatMessageContent.from_json(part.to_json()) == part


def test_a_developer_message_is_a_system_message():
    assert (
        json.loads('{"role": "developer", "content": "x"}', object_hook=leap_object_hook).role is ChatMessageRole.SYSTEM
    )
    assert ChatMessage.from_json({"role": "developer", "content": "x"}) == ChatMessage("system", "x")


def test_text_joins_the_text_parts_alone():
    assert ChatMessage("user", [Text("a"), Image(JPEG), Text("b")]).text == "ab"


def test_content_may_be_text_a_part_or_parts():
    assert ChatMessage("user", "x") == ChatMessage("user", Text("x")) == ChatMessage("user", [Text("x")])
    assert ChatMessage("user", "x").content == (Text("x"),)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Text(5),
        lambda: Image("abc"),
        lambda: Audio("abc"),
        lambda: AudioPcmF32([0.1], 16000.0),
        lambda: AudioPcmF32([0.1], "16000"),
        lambda: AudioPcmF32([(0.1, 0.2)], 16000),
        lambda: Audio.from_float_samples([0.5], 16000.0),
        lambda: ChatMessage("assistant", "x", reasoning_content=5),
        lambda: ChatMessage("tool", "x", tool_call_id=5),
        lambda: LeapFunctionCall.from_json({"function": {"name": "f", "arguments": "[" * 200_000}}),
    ],
)
def test_messages_that_would_not_read_back_are_refused(make):
    with pytest.raises(LeapSerializationError):
        make()


def test_messages_cannot_be_changed():
    with pytest.raises(AttributeError):
        ChatMessage("user", "x").role = "system"  # type: ignore[misc]


def test_call_ids_take_no_part_in_comparison():
    assert LeapFunctionCall("f", {"a": 1}, "x") == LeapFunctionCall("f", {"a": 1}, "y")
    assert LeapFunctionCall("f", {"a": 1}) != LeapFunctionCall("f", {"a": 2})


def test_the_sdk_spelling_of_the_parts():
    assert ChatMessageContent.Text is Text and ChatMessageContent.Image is Image
    assert ChatMessageContent.Audio is Audio and ChatMessageContent.AudioPcmF32 is AudioPcmF32
    assert ChatMessage.Role is ChatMessageRole


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (5, "messages[1]"),
        ([], "messages[1]"),
        ({"content": "x"}, "messages[1].role"),
        ({"role": "robot", "content": "x"}, "messages[1].role"),
        ({"role": ["user"], "content": "x"}, "messages[1].role"),
        ({"role": "user"}, "messages[1].content"),
        ({"role": "user", "content": None}, "messages[1].content"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "user", "content": {"type": "text", "text": "x"}}, "messages[1].content"),
        ({"role": "user", "content": ["x"]}, "messages[1].content[0]"),
        (
            {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "video"}]},
            "messages[1].content[1].type",
        ),
        ({"role": "user", "content": [{"text": "x"}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": [{"type": ["text"]}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "messages[1].content[0].text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[1].content[0].image_url"),
        *(
            (
                {"role": "user", "content": [{**PICTURE, "page": {"file": "a.pdf", "number": number}}]},
                "messages[1].content[0].page.number",
            )
            for number in (float("inf"), float("nan"), 0, 10**400)
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.jpg"}}]},
            "messages[1].content[0].image_url.url",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,$$$"}}]},
            "messages[1].content[0].image_url.url",
        ),
        (
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}}],
            },
            "messages[1].content[0].image_url.url",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}]},
            "messages[1].content[0].input_audio.format",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]},
            "messages[1].content[0].input_audio",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "!", "format": "wav"}}]},
            "messages[1].content[0].input_audio.data",
        ),
        ({"role": "assistant", "tool_calls": {}}, "messages[1].tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[1].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[1].tool_calls[0].function.name"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"role": "assistant", "content": "x", "reasoning_content": 5}, "messages[1].reasoning_content"),
        ({"role": "tool", "content": "x", "tool_call_id": 5}, "messages[1].tool_call_id"),
    ],
)
def test_unknown_shapes_are_named_by_their_path(value, path):
    with pytest.raises(LeapSerializationError) as caught:
        messages_from_json([{"role": "user", "content": "fine"}, value])
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("value", [{"role": "user"}, "text", None])
def test_the_json_of_messages_must_be_an_array(value):
    with pytest.raises(LeapSerializationError, match="^messages: expected a list"):
        messages_from_json(value)


def test_an_image_that_is_not_a_jpeg_is_refused():
    with pytest.raises(LeapSerializationError, match="not a JPEG"):
        Image(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("content", "says"), [([5], r"content\[0\]: expected a content part, not int"), (["x"], "not str")]
)
def test_invalid_parts_are_refused(content, says):
    with pytest.raises(LeapSerializationError, match=says):
        ChatMessage("user", content)


def test_an_unknown_role_names_the_known_ones():
    with pytest.raises(LeapSerializationError, match="'robot'; known are system, user, assistant, tool"):
        ChatMessage("robot", "x")
