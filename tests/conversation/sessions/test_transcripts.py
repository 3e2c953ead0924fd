"""What leaves as a text comes back equal, with its pictures and sound; what is no conversation is named."""

from __future__ import annotations

import json
import os

import pytest

from leap_core.conversation.media.wav import wav_from_samples
from leap_core.conversation.messages import (
    AudioPcmF32,
    ChatMessage,
    ChatMessageContent,
    Image,
    LeapFunctionCall,
    messages_from_json,
)
from leap_core.conversation.transcripts import (
    MediaDirectory,
    read_conversations,
    to_json,
    to_jsonl,
    to_markdown,
    to_openai,
)
from leap_core.errors import LeapSerializationError
from leap_core.testing import ScriptedModelRunner

PICTURE = Image(b"\xff\xd8\xff picture")
SOUND = ChatMessageContent.Audio(wav_from_samples([0.5, -0.5], 16000))
HISTORY = [
    ChatMessage("system", "Be brief.\u2028Be\x85true."),
    ChatMessage("user", [ChatMessageContent.Text("Look:\n"), PICTURE, SOUND, AudioPcmF32((0.25, -1.0), 24000)]),
    ChatMessage("assistant", (), "Hm…\n\nA picture.", [LeapFunctionCall("look_up", {"name": "日本"}, "call_7")]),
    ChatMessage("tool", "```\nJapan\n```", tool_call_id="call_7"),
    ChatMessage("assistant", "It is Japan."),
    ChatMessage("user", ""),
    ChatMessage("assistant", "a lone \ud800 surrogate"),
]


@pytest.mark.parametrize("write", [to_json, to_jsonl])
def test_json_comes_back_equal(write):
    text = write(HISTORY)
    text.encode()
    assert read_conversations(text, "it") == [HISTORY]
    assert read_conversations(to_jsonl(HISTORY) * 2 + "\n", "it") == [HISTORY, HISTORY]


def test_json_is_what_the_sdk_exports(tmp_path):
    with ScriptedModelRunner() as runner:
        conversation = runner.create_conversation_from_history(HISTORY)
        assert json.loads(to_json(HISTORY)) == conversation.export_to_json() == to_openai(HISTORY)
        again = runner.create_conversation_from_history(messages_from_json(json.loads(to_json(HISTORY))))
    assert again.history == HISTORY
    assert to_jsonl(HISTORY).count("\n") == 1 and json.loads(to_jsonl(HISTORY)) == {"messages": to_openai(HISTORY)}


@pytest.mark.parametrize("write", [to_json, to_jsonl])
def test_media_go_to_files_and_come_back(tmp_path, write):
    media = MediaDirectory(tmp_path / "media", beside=tmp_path)
    text = write(HISTORY, media.place)
    assert "base64" not in text and '"media/' in text
    assert sorted(file.suffix for file in media.path.iterdir()) == [".f32", ".jpg", ".wav"]
    assert write(HISTORY, media.place) == text and len(list(media.path.iterdir())) == 3
    assert read_conversations(text, "it", tmp_path) == [HISTORY]
    with pytest.raises(LeapSerializationError, match="data:, file: or https: URL"):
        read_conversations(text, "it")
    elsewhere = write(HISTORY, MediaDirectory(tmp_path / "media", beside=tmp_path / "other").place)
    assert read_conversations(elsewhere, "it", tmp_path / "unrelated") == [HISTORY]
    next(media.path.glob("*.jpg")).unlink()
    with pytest.raises(LeapSerializationError, match=r"^it: .*\.jpg cannot be read: No such file"):
        read_conversations(text, "it", tmp_path)


def test_markdown_has_headings_media_and_escaped_fences(tmp_path):
    page = to_markdown(HISTORY, "Japan\nand more", MediaDirectory(tmp_path / "media", beside=tmp_path).place)
    assert page.startswith("# Japan and more\n\n## System\n\nBe brief.")
    assert "\n## User\n\nLook:\n\n![picture](<media/" in page and page.count(".wav>)") == 2
    assert '> Hm…\n>\n> A picture.\n\n```python\nlook_up(name="日本")\n```\n\n## Tool\n\n````\n```\nJapan' in page
    assert page.endswith("## Assistant\n\na lone ? surrogate\n")
    assert "](<data:image/jpeg;base64,/9j/" in to_markdown(HISTORY, "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no conversation in it"),
        (" \n", "there is no conversation in it"),
        ("hello", "it: not JSON: Expecting value"),
        ('[{"role": "user",\n "content": "hi"', "it: not JSON: "),
        ('{"messages": []}\n{"messages": [}\n', "it, line 2: not JSON: "),
        ('{"messages": []}\n\n{"role": "user"}\n', "it, line 3: expected an array of messages"),
        ("3", "it: messages: expected a list, not a number"),
        ('[{"role": "usr", "content": "x"}]', r"it: messages\[0\].role: unknown role 'usr'"),
        ('[{"role": "user", "content": [{"type": "input_audio", "input_audio": 3}]}]', "expected an object"),
        ('[{"role": "user", "content": [3]}]', "expected an object"),
        (
            r'[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a\u0000b"}}]}]',
            "^it: .* cannot be read: embedded null",
        ),
        (
            '[{"role": "user", "content": [{"type": "input_audio", "input_audio": {"file": "/dev/zero"}}]}]',
            "^it: /dev/zero is not a file",
        ),
        ("[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_other_files_are_refused_with_the_reason(tmp_path, text, message):
    with pytest.raises(LeapSerializationError, match=message):
        read_conversations(text, "it", tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a directory that refuses")
def test_an_unwritable_directory_is_an_os_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        to_json(HISTORY, MediaDirectory(tmp_path / "media", beside=tmp_path).place)
    tmp_path.chmod(0o700)
