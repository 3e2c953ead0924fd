"""What a model said aloud, as a part of its message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leap_core.conversation.messages import Audio, ChatMessage, LeapJSONEncoder, Speech, Text
from leap_core.conversation.transcripts import read_conversations, to_json, to_markdown
from leap_core.errors import LeapSerializationError
from leap_core.inference.speech.voices import VOICES, is_interleaved, voice_prompt
from tests.wav_bytes import wav_of

SPEECH = Speech(wav_of([0.0, 0.5, -0.5], 24_000), (128, (1, 2, 3), (2048, 2048, 2048)))
MESSAGE = ChatMessage("assistant", [Text("Hm."), SPEECH])


def test_a_speech_part_is_audio_and_reads_back_equal() -> None:
    assert isinstance(SPEECH, Audio) and SPEECH.format.samples == 3
    again = ChatMessage.from_json(json.loads(json.dumps(MESSAGE.to_json())))
    assert again == MESSAGE
    assert json.loads(json.dumps([MESSAGE], cls=LeapJSONEncoder))[0]["content"][1]["input_audio"]["format"] == "wav"


def test_a_speech_part_differs_from_an_audio_part() -> None:
    assert Speech(SPEECH.data, ()) != SPEECH != Audio(SPEECH.data)
    assert Speech(SPEECH.data, [128, [1, 2, 3], [2048, 2048, 2048]]) == SPEECH  # type: ignore[arg-type]


@pytest.mark.parametrize("turn", [None, "5", [[]], [True], [-1], [[1, "2"]], [1.5]])
def test_an_invalid_turn_is_named(turn: Any) -> None:
    value = MESSAGE.to_json()
    value["content"][1]["speech"]["turn"] = turn
    with pytest.raises(LeapSerializationError, match=r"content\[1\]\.speech\.turn"):
        ChatMessage.from_json(value)


def test_voices_are_known_by_name() -> None:
    assert voice_prompt("US-Female") == "Perform TTS. Use the US female voice."
    with pytest.raises(ValueError, match="us-female, us-male, uk-female, uk-male, japanese"):
        voice_prompt("pirate")
    assert not any(map(is_interleaved, VOICES.values()))
    assert is_interleaved("Respond with interleaved text and audio.")


def test_exports_keep_the_audio(tmp_path: Path) -> None:
    def place(data: bytes, suffix: str) -> str:
        (tmp_path / f"sound{suffix}").write_bytes(data)
        return f"sound{suffix}"

    history = [ChatMessage("user", "Say it."), MESSAGE]
    assert read_conversations(to_json(history), "export") == [history]
    document = to_json(history, place)
    assert "speech" in document and "base64" not in document
    assert (tmp_path / "sound.wav").read_bytes() == SPEECH.data
    assert read_conversations(document, "export", tmp_path) == [history]
    assert "[sound](<sound.wav>)" in to_markdown(history, "A talk", place)
