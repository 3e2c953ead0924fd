"""Where the sound of an answer goes, over a scripted model."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile

from leap_cli.main import main
from leap_core.conversation.responses import AudioSample
from leap_core.errors import LeapGenerationError
from leap_core.inference.speech.voices import CONVERSATION_PROMPT, VOICES
from tests.conftest import CommandLine

RATE = 24_000
PIECES = [AudioSample(tuple(np.sin(np.arange(1920) * 0.1 + n).tolist()), RATE) for n in range(3)]


def speaking(leap: CommandLine, *scripts: Any) -> Any:
    return leap.script(*(scripts or [["Well", *PIECES, "."]]), speaks=True)


def sound(path: Path) -> np.ndarray[Any, Any]:
    samples, rate = soundfile.read(path)
    assert rate == RATE
    return samples


EXPECTED = np.concatenate([piece.samples for piece in PIECES])


def test_generate_writes_the_audio_beside_the_text(leap: CommandLine, tmp_path: Path) -> None:
    runner = speaking(leap)
    done = leap("generate", "Hello.", "--speak", "out.wav")
    assert (done.code, done.stdout) == (0, "Well.\n")
    np.testing.assert_allclose(sound(tmp_path / "out.wav"), EXPECTED, atol=1e-4)
    assert runner.requests[0].messages[0].text == CONVERSATION_PROMPT


def test_a_custom_system_prompt_is_kept(leap: CommandLine) -> None:
    runner = speaking(leap)
    leap("generate", "Hello.", "--speak", "out.wav", "-s", VOICES["uk-male"])
    assert runner.requests[0].messages[0].text == VOICES["uk-male"]


def test_json_does_not_repeat_the_text(leap: CommandLine) -> None:
    speaking(leap)
    events = [json.loads(line) for line in leap("generate", "Hello.", "--format", "jsonl").stdout.splitlines()]
    assert [event["type"] for event in events] == ["chunk", *["audio_sample"] * 3, "chunk", "complete"]
    speaking(leap)
    done = leap("generate", "Hello.", "--format", "jsonl", "--speak", "out.wav")
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == ["chunk", "chunk", "complete"]


def test_unrequested_audio_is_reported(leap: CommandLine) -> None:
    speaking(leap)
    assert "--speak FILE" in leap("generate", "Hello.").stderr


@pytest.mark.parametrize("arguments", [["generate", "Hi."], ["say", "Hi."]])
def test_a_model_without_a_voice_is_refused_before_it_answers(leap: CommandLine, arguments: list[str]) -> None:
    runner = leap.script("text")
    done = leap(*arguments, "--speak" if arguments[0] == "generate" else "-o", "out.wav")
    assert done.code == 3 and "does not speak" in done.stderr and not runner.requests


def test_a_model_that_returns_no_audio_is_an_error_and_keeps_an_older_file(leap: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "out.wav").write_text("older")
    speaking(leap, "only text")
    done = leap("generate", "Hello.", "--speak", "out.wav")
    assert done.code == 1 and done.stdout == "only text\n" and "did not speak" in done.stderr
    assert (tmp_path / "out.wav").read_text() == "older"


def test_audio_before_a_failure_is_kept(leap: CommandLine, tmp_path: Path) -> None:
    speaking(leap, [*PIECES[:2], LeapGenerationError("broken")])
    done = leap("say", "Hello.", "-o", "out.wav")
    assert done.code == 1 and "broken" in done.stderr
    assert len(sound(tmp_path / "out.wav")) == 2 * 1920


@pytest.mark.parametrize("place", ["", ".", "missing/out.wav"])
def test_an_unwritable_output_is_refused_before_the_model_is_loaded(leap: CommandLine, place: str) -> None:
    assert leap("generate", "Hello.", "--speak", place).code == 2
    assert leap("say", "Hello.", "-o", place).code == 2
    assert not leap.loaded


def test_audio_goes_to_stdout_and_text_to_stderr(leap: CommandLine) -> None:
    speaking(leap)
    env = leap.environment(b"", terminal=False, stdin_terminal=False)
    stdout = io.BytesIO()
    env.stdout = io.TextIOWrapper(stdout, write_through=True)
    assert main(["generate", "Hello.", "--speak", "-"], env) == 0
    assert isinstance(env.stderr, io.StringIO) and "Well." in env.stderr.getvalue()
    samples, rate = soundfile.read(io.BytesIO(stdout.getvalue()))
    assert rate == RATE and len(samples) == len(EXPECTED)


def test_several_answers_do_not_speak(leap: CommandLine) -> None:
    done = leap("generate", "Hello.", "--speak", "out.wav", "-n", "2")
    assert done.code == 2 and "cannot be combined with --speak" in done.stderr


def test_say_selects_a_voice(leap: CommandLine, tmp_path: Path) -> None:
    runner = speaking(leap, PIECES)
    options = ["--voice", "UK-female", "--option", "audio-temperature=0.5"]
    done = leap("say", "-m", "x", "Good morning.", *options, "-o", "out.wav")
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    system, user = runner.requests[0].messages
    assert (system.text, user.text) == (VOICES["uk-female"], "Good morning.")
    assert runner.requests[0].options.audio_temperature == 0.5
    assert len(sound(tmp_path / "out.wav")) == len(EXPECTED)
    speaking(leap, PIECES)
    assert leap("say", "-o", "out.pcm", stdin="Good morning.").code == 0
    assert (tmp_path / "out.pcm").stat().st_size == 2 * len(EXPECTED)


def test_an_unknown_voice_lists_the_known_ones(leap: CommandLine) -> None:
    done = leap("say", "Hello.", "--voice", "pirate", "-o", "out.wav")
    assert done.code == 2 and all(f"'{voice}'" in done.stderr for voice in VOICES)


def test_a_background_job_needs_an_output_file(leap: CommandLine) -> None:
    assert "a file's name" in leap("say", "Hello.", "--background").stderr
    assert "a file's name" in leap("generate", "Hello.", "--speak", "-", "--background").stderr


def test_playing_without_the_library_is_one_error(leap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    runner = speaking(leap)
    done = leap("say", "Hello.")
    assert done.code == 1 and "leap-edge[play]" in done.stderr and not runner.requests


def test_audio_is_played_as_it_arrives(leap: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    played: list[Any] = []

    class Stream:
        def __init__(self, rate: int, *, channels: int, dtype: str) -> None:
            played.append((rate, channels, dtype))

        def start(self) -> None:
            played.append("start")

        def write(self, data: bytes) -> None:
            played.append(len(data))

        def stop(self) -> None:
            played.append("stop")

        def close(self) -> None:
            played.append("close")

    library = ModuleType("sounddevice")
    library.RawOutputStream, library.PortAudioError = Stream, OSError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sounddevice", library)
    speaking(leap, PIECES)
    assert leap("say", "Hello.", "--play", "-o", "out.wav").code == 0
    assert played == [(RATE, 1, "int16"), "start", 3840, 3840, 3840, "stop", "close"]
    assert len(sound(tmp_path / "out.wav")) == len(EXPECTED)
