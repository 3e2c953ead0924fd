"""Speech over OpenAI's protocol, with the official client: the tone that arrives is measured."""

from __future__ import annotations

import base64
import io
import threading

import numpy as np
import openai
import pytest
import soundfile

from leap_core.inference.speech.voices import VOICES
from leap_core.testing.miniature_speech import FRAMES, INTERLEAVED_TEXT, PLAIN_TEXT

MODEL = "LFM2.5-Audio-Miniature-F16"
ALOUD = {"modalities": ["text", "audio"], "audio": {"voice": "us-female", "format": "wav"}}


def frequency(samples: np.ndarray) -> float:
    """The loudest frequency in Hz, of sound at 24 kHz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * 24_000 / len(samples))


def wav(data: bytes) -> np.ndarray:
    samples, rate = soundfile.read(io.BytesIO(data))
    assert rate == 24_000
    return samples


def pcm(data: bytes) -> np.ndarray:
    return np.frombuffer(data, "<i2") / 32768


@pytest.fixture
def client(start, miniature):
    """A client of a server with a model that speaks, and one that does not."""
    process = start("serve", "builtin", str(miniature), "--port", "0", "--threads", "1", "--slots", "4")
    url = process.stdout.readline().decode().strip()
    assert url.startswith("http://127.0.0.1:"), process.communicate()
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
        assert b"ready" in process.stderr.readline()
        yield client


def ask(client, text, **given):
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], **given)


def test_the_official_client_gets_the_tone(client) -> None:
    # an answer in one piece, and a conversation that goes on from it
    message = ask(client, "A low tone.", **ALOUD).choices[0].message
    assert message.content is None and message.audio.transcript == "".join(INTERLEAVED_TEXT)
    samples = wav(base64.b64decode(message.audio.data))
    assert len(samples) == 1920 * 16 and frequency(samples) == pytest.approx(450, abs=5)
    history = [
        {"role": "user", "content": "A low tone."},
        {"role": "assistant", "audio": {"id": message.audio.id}},
        {"role": "user", "content": "And now, after all of that, a high one."},
    ]
    second = client.chat.completions.create(model=MODEL, messages=history, **ALOUD)
    assert frequency(wav(base64.b64decode(second.choices[0].message.audio.data))) == pytest.approx(900, abs=5)
    assert second.usage.prompt_tokens_details.cached_tokens > 60, "what was said is not read again"
    history[1]["audio"]["id"] = "audio_unknown"
    with pytest.raises(openai.BadRequestError, match=r"audio_unknown"):
        client.chat.completions.create(model=MODEL, messages=history, **ALOUD)

    # the same as a stream
    text, data = "", b""
    for format in ("pcm16", "wav"):
        text, data = "", b""
        stream = ask(client, "A mid tone.", stream=True, **ALOUD | {"audio": {"voice": "uk-male", "format": format}})
        for chunk in stream:
            audio = chunk.to_dict()["choices"][0]["delta"].get("audio", {})
            text += audio.get("transcript", "")
            data += base64.b64decode(audio.get("data", ""))
        samples = pcm(data) if format == "pcm16" else wav(data)
        assert text == "".join(INTERLEAVED_TEXT) and len(samples) == 1920 * 16
        assert frequency(samples) == pytest.approx(600, abs=5)

    # a text read aloud
    for format, read in (("wav", wav), ("pcm", pcm)):
        sound = client.audio.speech.create(
            model=MODEL, voice="us-male", input="A high tone.", response_format=format
        ).read()
        assert len(read(sound)) == 1920 * FRAMES["high"] and frequency(read(sound)) == pytest.approx(900, abs=5)

    # text is text, and stays what it is beside speech
    assert ask(client, "Hello.").choices[0].message.content == "".join(PLAIN_TEXT)
    spoken = threading.Thread(
        target=lambda: client.audio.speech.create(model=MODEL, voice="us-male", input="A high tone.").read()
    )
    spoken.start()
    texts = [ask(client, "Hello.").choices[0].message.content for _ in range(5)]
    spoken.join()
    assert texts == ["".join(PLAIN_TEXT)] * 5

    # what cannot be
    with pytest.raises(openai.BadRequestError, match=", ".join(VOICES)):
        client.audio.speech.create(model=MODEL, voice="pirate", input="Hello.")
    with pytest.raises(openai.BadRequestError, match="mp3, opus, flac, wav, pcm are"):
        client.audio.speech.create(model=MODEL, voice="us-male", input="Hello.", response_format="aac")
    with pytest.raises(openai.BadRequestError, match="did not speak"):
        client.audio.speech.create(model=MODEL, voice="us-male", input="Hello.")
    with pytest.raises(openai.BadRequestError, match="expected a text"):
        client.audio.speech.create(model=MODEL, voice="us-male", input=" ")
    with pytest.raises(openai.BadRequestError, match="wav and pcm16 are"):
        ask(client, "A low tone.", **ALOUD | {"audio": {"voice": "us-male", "format": "opus"}})


def test_audio_formats_and_voices_of_openai_are_accepted(client) -> None:
    for format, start in ((None, b""), ("mp3", b""), ("opus", b"OggS"), ("flac", b"fLaC")):
        wanted = {} if format is None else {"response_format": format}
        answer = client.audio.speech.with_raw_response.create(
            model=MODEL, voice="alloy", input="A high tone.", **wanted
        )
        data = answer.content
        assert data.startswith(start) and "us-female speaks" in answer.headers["x-leap-warning"]
        assert (answer.headers["content-type"] == "audio/mpeg") == (format in (None, "mp3"))
        sound, rate = soundfile.read(io.BytesIO(data))
        assert rate == 24_000 and len(sound) > 1000


def test_a_model_without_a_voice_is_refused(client) -> None:
    for refused in (
        lambda: client.chat.completions.create(model="builtin", messages=[{"role": "user", "content": "Hi."}], **ALOUD),
        lambda: client.audio.speech.create(model="builtin", voice="us-male", input="Hello."),
    ):
        with pytest.raises(openai.BadRequestError, match="does not speak"):
            refused()


def test_a_client_that_disconnects_ends_the_speech(client) -> None:
    with client.audio.speech.with_streaming_response.create(
        model=MODEL, voice="us-male", input="A drone.", response_format="pcm"
    ) as response:
        head = next(response.iter_bytes(20 * 3840))
        assert frequency(pcm(head)) == pytest.approx(300, abs=5)
    assert ask(client, "Hello.", timeout=100).choices[0].message.content == "".join(PLAIN_TEXT)
