"""Pictures and sound through the installed program, with the built-in models that see and hear."""

from __future__ import annotations

import base64
import io
import json
import random
from pathlib import Path

import numpy as np
import openai
import pytest
import soundfile

from leap_core.conversation.messages import Audio
from leap_core.testing.pictures import Figure, Scene
from leap_core.testing.sounds import RATE, clip_of, random_clip
from tests.support.sound_questions import ask_all

SOON = 60.0


@pytest.fixture
def serve(start):
    """``leap serve`` with these models, and a client of it."""
    clients = []

    def begin(*arguments):
        process = start("serve", *arguments, "--port", "0", "--threads", "1")
        url = process.stdout.readline().decode().strip()
        assert b"ready" in process.stderr.readline()
        clients.append(openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=SOON))
        return clients[-1]

    yield begin
    for client in clients:
        client.close()


def test_audio_is_answered_by_the_command_line(program, tmp_path: Path) -> None:
    clip_of("do", "mi", "so").write(tmp_path / "up.wav")
    clip = clip_of("so", "mi").play()
    soundfile.write(tmp_path / "down.flac", np.stack([clip, clip], 1), RATE)
    heard = program("generate", "-m", "builtin-audio", "--audio", "up.wav", "--temperature", "0", "Which notes?")
    assert (heard.returncode, heard.stdout, heard.stderr) == (0, "do mi so.\n", "")
    heard = program("generate", "-m", "builtin-audio", "--audio", "down.flac", "--temperature", "0", "Which notes?")
    assert heard.stdout == "so mi.\n" and "stereo mixed down to mono" in heard.stderr
    piped = program(
        "transcribe", "-m", "builtin-audio", "-", "--format", "json", stdin=(tmp_path / "up.wav").read_bytes()
    )
    value = json.loads(piped.stdout)
    assert value["text"] == "do mi so." and value["segments"][0]["start"] == 0


def test_images_are_answered_by_the_command_line_and_leap_serve(program, serve, tmp_path: Path) -> None:
    Scene((Figure("circle", "red", 0.5, 0.5, 0.2),)).draw().save(tmp_path / "scene.png")
    Scene((Figure("circle", "blue", 0.5, 0.5, 0.2),)).draw().save(tmp_path / "other.bmp")
    question = "What colour is the circle?"
    seen = program("generate", "-m", "builtin-vl", "--image", "scene.png", "--temperature", "0", question)
    assert (seen.returncode, seen.stdout) == (0, "The circle is red.\n") and "converted to JPEG" in seen.stderr
    lines = "".join(
        json.dumps({"id": name, "image": name, "prompt": question}) + "\n" for name in ("scene.png", "other.bmp")
    )
    table = program("batch", "-", "-m", "builtin-vl", "--temperature", "0", "--format", "plain", stdin=lines)
    answers = [json.loads(line)["text"] for line in table.stdout.splitlines()]
    assert answers == ["The circle is red.", "The circle is blue."], table
    client = serve("builtin-vl")
    url = f"data:image/png;base64,{base64.b64encode((tmp_path / 'scene.png').read_bytes()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    for cached in (False, True):
        done = client.chat.completions.create(
            model="builtin-vl", messages=[{"role": "user", "content": content}], temperature=0
        )
        assert done.choices[0].message.content == "The circle is red."
        assert (done.usage.prompt_tokens_details.cached_tokens >= 64) == cached


def test_unsupported_media_are_exit_code_3(program, tmp_path: Path) -> None:
    clip_of("do").write(tmp_path / "do.wav")
    deaf = program("generate", "-m", "builtin", "--audio", "do.wav", "What is it?")
    assert (deaf.returncode, deaf.stdout) == (3, "") and "do.wav: the message contains a sound" in deaf.stderr
    (tmp_path / "dot.ppm").write_bytes(b"P6 1 1 255\n\0\0\0")
    blind = program("generate", "-m", "builtin-audio", "--image", "dot.ppm", "What is it?")
    assert (blind.returncode, blind.stdout) == (3, "") and "does not accept images" in blind.stderr
    assert "Traceback" not in deaf.stderr + blind.stderr


@pytest.mark.parametrize("format", ["text", "json", "srt"])
def test_silent_audio_for_a_text_model_is_exit_code_3(program, tmp_path: Path, format: str) -> None:
    """A silent piece is written without the model, which has to be one that can hear all the same."""
    soundfile.write(tmp_path / "silence.wav", np.zeros(RATE, np.float32), RATE)
    told = program("transcribe", "-m", "builtin", "silence.wav", "--format", format)
    assert (told.returncode, told.stdout) == (3, "") and "builtin reads text only" in told.stderr
    heard = program("transcribe", "-m", "builtin-audio", "silence.wav", "--format", "text")
    assert (heard.returncode, heard.stdout) == (0, "")


def test_a_job_transcribes_audio(program, tmp_path: Path) -> None:
    clip_of("do", "mi", "so").write(tmp_path / "up.wav")
    heard = program(
        "generate", "-m", "builtin-audio", "--audio", "up.wav", "--background", "Which notes?"
    ).stdout.strip()
    written = program("transcribe", "-m", "builtin-audio", "up.wav", "-o", "up.srt", "--format", "srt", "--background")
    (tmp_path / "up.wav").unlink()  # the sound is kept with the jobs
    try:
        assert "do mi so." in program("jobs", "wait", heard).stdout
        assert program("jobs", "wait", written.stdout.strip()).returncode == 0
        assert (tmp_path / "up.srt").read_text().startswith("1\n00:00:00,000 --> ")
    finally:
        program("jobs", "worker", "--shutdown")


def test_unseen_clips_are_answered_through_leap_serve(serve) -> None:
    client = serve("builtin-audio")
    dice = random.Random("unseen")
    right = asked = 0
    for number in range(20):
        clip = random_clip(dice, seconds=dice.choice((1.0, 2.0, 3.0)))
        wav = Audio.from_float_samples(clip.play(seed=number).tolist(), RATE).data
        sound = {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav).decode(), "format": "wav"}}
        for question in ask_all(clip, dice):
            content = [sound, {"type": "text", "text": question.text}]
            done = client.chat.completions.create(
                model="builtin-audio", messages=[{"role": "user", "content": content}], temperature=0
            )
            right += done.choices[0].message.content == question.answer
            asked += 1
    assert asked >= 80 and right / asked >= 0.9, (right, asked)
    transcript = client.audio.transcriptions.create(
        model="builtin-audio",
        file=("up.wav", io.BytesIO(Audio.from_float_samples(clip_of("do", "so").play().tolist(), RATE).data)),
    )
    assert transcript.text == "do so."
