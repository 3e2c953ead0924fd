"""Pictures and sound over HTTP, as OpenAI's own client sends them."""

from __future__ import annotations

import base64
import io

import httpx
import numpy as np
import openai
import pytest
import soundfile
from PIL import Image as pillow

from leap_core import LeapUnsupportedMediaError
from leap_core.conversation.messages import Audio, Image, Text

RATE = 16_000


def png() -> bytes:
    output = io.BytesIO()
    pillow.new("RGB", (40, 40), "red").save(output, "PNG")
    return output.getvalue()


def wav(seconds: float = 1.0, channels: int = 1, format: str = "WAV") -> bytes:
    samples = np.random.default_rng(3).uniform(-0.4, 0.4, (int(seconds * RATE), channels))
    output = io.BytesIO()
    soundfile.write(output, samples, RATE, format=format)
    return output.getvalue()


def question(url: str) -> list[dict[str, object]]:
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"}]
    return [{"role": "user", "content": parts}]


def data_url(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def test_pictures_and_sounds_reach_the_model(serve):
    server = serve(["Red."])
    content = question(data_url(png(), "image/png"))[0]["content"]
    sound = {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav()).decode(), "format": "wav"}}
    answer = server.ask(messages=[{"role": "user", "content": [*content, sound]}])
    assert answer.choices[0].message.content == "Red."
    picture, text, heard = server.runner.requests[0].messages[0].content
    assert isinstance(picture, Image) and text == Text("What is it?") and heard == Audio(wav())


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
def test_pictures_and_files_in_the_output_of_a_function_reach_the_model(serve, kind):
    server = serve("Red.", "Again.")
    shown = data_url(png(), "image/png")
    notes = data_url(b"Monday", "text/plain")
    output = [
        {"type": "input_text", "text": "Seen:"},
        {"type": "input_image", "image_url": shown, "detail": "high"},
        {"type": "input_file", "filename": "notes.txt", "file_data": notes},
    ]
    called = {"call_id": "c1", "name": "view_image"}
    call = {"type": kind, **called, **({"arguments": "{}"} if kind == "function_call" else {"input": "a.png"})}
    given = [{"role": "user", "content": "Look."}, call, {"type": f"{kind}_output", "call_id": "c1", "output": output}]
    client = server.client()
    first = client.responses.create(model="builtin", input=given, store=True)
    client.responses.create(model="builtin", input="Again?", previous_response_id=first.id)
    for request in server.runner.requests:
        result = request.messages[2]
        assert [type(part) for part in result.content] == [Text, Image, Text] and result.role.value == "tool"
        assert "Monday" in result.text and len(result.text) < 100


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file:///etc/hostname", "file: URLs are not taken here"),
        ("https://example.org/a.png", "https: URLs are not fetched"),
        (data_url(b"no picture", "image/png"), "not a picture"),
        (data_url(png()[:60], "image/png"), "picture"),
    ],
)
def test_unreadable_media_are_a_400(serve, url, says):
    with pytest.raises(openai.BadRequestError, match=says) as failure:
        serve("never").ask(messages=question(url))
    assert failure.value.code == "invalid_value"
    assert failure.value.param == "messages[0].content[0].image_url.url"


def test_stereo_is_refused_by_name(serve):
    sound = {"data": base64.b64encode(wav(channels=2)).decode(), "format": "wav"}
    with pytest.raises(openai.BadRequestError, match="stereo; only mono"):
        part = {"type": "input_audio", "input_audio": sound}
        serve("never").ask(messages=[{"role": "user", "content": [part]}])


def test_a_model_without_vision_has_its_own_error_code(serve):
    server = serve([LeapUnsupportedMediaError("builtin reads text only", hint="load one that sees")])
    with pytest.raises(openai.BadRequestError, match="reads text only") as failure:
        server.ask(messages=question(data_url(png(), "image/png")))
    assert failure.value.code == "unsupported_media"


def test_a_transcript_through_the_official_client(serve):
    server = serve(["Hello there."])
    client = server.client()
    done = client.audio.transcriptions.create(model="builtin", file=("talk.wav", wav()))
    assert done.text == "Hello there."
    system, sound = server.runner.requests[0].messages
    assert system.text == "Perform ASR." and isinstance(sound.content[0], Audio)


@pytest.mark.parametrize(
    ("format", "begins"),
    [("text", "Hello."), ("srt", "1\n00:00:00,000 --> 00:00:01,000\nHello."), ("vtt", "WEBVTT\n\n00:00:00.000 -->")],
)
def test_transcripts_in_other_formats(serve, format, begins):
    client = serve(["Hello."]).client()
    done = client.audio.transcriptions.create(
        model="builtin", file=("talk.mp3", wav(channels=2, format="FLAC")), response_format=format
    )
    assert str(done).startswith(begins)


def test_a_transcript_is_streamed(serve):
    client = serve(["Hello."]).client()
    events = list(client.audio.transcriptions.create(model="builtin", file=("talk.wav", wav()), stream=True))
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    assert (events[0].delta, events[1].text) == ("Hello.", "Hello.")


def test_a_verbose_transcript_in_another_language(serve):
    server = serve(["Konnichiwa."])
    done = server.client().audio.transcriptions.create(
        model="builtin", file=("talk.wav", wav(2)), response_format="verbose_json", language="ja"
    )
    assert done.duration == 2.0 and done.segments[0].text == "Konnichiwa." and done.segments[0].end == 2.0
    assert server.runner.requests[0].messages[0].text == "Perform ASR in japanese."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "file", "says"),
    [
        ({}, None, "file: expected a sound"),
        ({}, b"no sound", "not a sound"),
        ({}, wav(0.05), "too short"),
        ({"response_format": "xml"}, wav(), "'xml' is not one of"),
        ({"stream": "perhaps"}, wav(), "expected true or false"),
        ({"temperature": "hot"}, wav(), "expected a number"),
        ({"colour": "red"}, wav(), "colour: there is no such field"),
    ],
)
def test_invalid_transcription_requests_are_refused(serve, fields, file, says):
    server = serve("never")
    answer = httpx.post(
        f"{server.url}/audio/transcriptions",
        data={"model": "builtin", **fields},
        files={"file": ("talk.wav", file)} if file is not None else {"other": ("a", b"")},
        headers={"Authorization": f"Bearer {server.token}"},
        timeout=100,
    )
    assert answer.status_code == 400 and (says in answer.text or "other: there is no such field" in answer.text)
    plain = httpx.post(
        f"{server.url}/audio/transcriptions", json={}, headers={"Authorization": f"Bearer {server.token}"}, timeout=100
    )
    assert plain.status_code == 400 and "multipart" in plain.text


def test_transcripts_need_a_model_with_audio_input(serve):
    server = serve([LeapUnsupportedMediaError("builtin reads text only")])
    with pytest.raises(openai.BadRequestError, match="reads text only") as failure:
        server.client().audio.transcriptions.create(model="builtin", file=("talk.wav", wav()))
    assert failure.value.code == "unsupported_media"
