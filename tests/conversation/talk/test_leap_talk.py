"""``leap talk`` over files, in the time of their samples."""

from __future__ import annotations

import io
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile

from leap_cli.talk.keyboard import ReadAloud
from leap_core import Leap
from leap_core.conversation.conversation import Conversation
from leap_core.conversation.media.audio import RATE
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import AudioSample
from leap_core.conversation.sessions import SessionStore
from leap_core.errors import LeapGenerationError
from leap_core.inference.speech.voices import CONVERSATION_PROMPT, VOICES
from leap_core.testing.miniature_speech import TONES
from leap_core.testing.scripted import ScriptedModelRunner
from tests.conftest import CommandLine

from .sound import PLAYED, Samples, note, recording, tones

HUM = AudioSample(tuple((0.3 * np.sin(2 * np.pi * 450 * np.arange(9600) / PLAYED)).tolist()), PLAYED)
"""0.4 s of sound."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two questions, asked in 5 s."""
    return write(tmp_path / "talk.wav", recording(0.5, note("do"), 2.6, note("la"), 0.4))


def write(path: Path, samples: Samples) -> Path:
    soundfile.write(path, samples, RATE, subtype="PCM_16")
    return path


def hertz(path: Path) -> list[int]:
    samples, rate = soundfile.read(path)
    assert rate == PLAYED
    return [tone[2] for tone in tones(samples)]


@pytest.mark.slow
def test_each_question_of_a_file_is_answered_at_its_time(
    leap: CommandLine, hearing_miniature: Path, file: Path, tmp_path: Path, leap_home: Path
) -> None:
    leap.runner = Leap.load(str(hearing_miniature))
    done = leap("talk", "--input", str(file), "-o", "answers.wav", "--record", "both.wav", "--fast")
    assert done.code == 0, done
    assert done.stdout == "Here comes what you like best: your tone.\n" * 2
    assert done.stderr.count("leap: heard 1.") == 2
    samples, _ = soundfile.read(tmp_path / "answers.wav")
    (first, _, low), (second, end, high) = tones(samples)
    assert (low, high) == pytest.approx((TONES["low"], TONES["high"]), abs=3)
    assert (first, second) == pytest.approx((1.95, 5.1), abs=0.3)
    both, _ = soundfile.read(tmp_path / "both.wav")
    assert [tone[2] for tone in tones(both[:, 0])] == pytest.approx([523, 880], abs=5)
    assert tones(both[:, 1])[1][0] == pytest.approx(second, abs=0.05) and len(both) / PLAYED > end - 0.1
    with SessionStore(leap_home / "leap.db") as store:
        session = store.latest()
        assert session is not None
        roles = [message.role.value for message in store.history(session.id)]
    assert roles == ["system", "user", "assistant", "user", "assistant"]


def test_speech_at_the_start_of_the_first_answer_is_not_taken_for_echo(leap: CommandLine, tmp_path: Path) -> None:
    write(tmp_path / "two.wav", recording(0.5, note("do"), 0.55, note("mi"), 1.0))
    leap.script(["Hum.", HUM], ["Hum.", HUM], speaks=True)
    done = leap("talk", "--input", "two.wav", "-o", "answers.wav", "--fast", "--no-save")
    assert (done.code, done.stderr.count("leap: heard 1.")) == (0, 2), done


@pytest.mark.slow
def test_audio_goes_in_and_out_through_pipes(leap: CommandLine, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = leap.script(["Hum.", HUM], ["Hum.", HUM], speaks=True)
    env = leap.environment(file.read_bytes(), terminal=False, stdin_terminal=False)
    env.stdout = io.TextIOWrapper(io.BytesIO(), "utf-8")
    from leap_cli.main import main

    assert main(("talk", "--input", "-", "-o", "-", "--fast", "--no-save"), env) == 0
    samples, rate = soundfile.read(io.BytesIO(env.binary_stdout.getvalue()))  # type: ignore[attr-defined]
    assert rate == PLAYED and len(tones(samples)) == 2
    assert env.stderr.getvalue().count("Hum.\n") == 2  # type: ignore[attr-defined]
    assert runner.requests[0].messages[0].text == CONVERSATION_PROMPT


@pytest.mark.slow
def test_a_talk_also_runs_in_real_time(leap: CommandLine, tmp_path: Path) -> None:
    leap.script(["Hum.", HUM], speaks=True)
    write(tmp_path / "short.wav", recording(0.2, note("do", 0.4), 0.3))
    done = leap("talk", "--input", "short.wav", "-o", "answers.wav", "--option", "silence-duration=0.2")
    assert (done.code, len(hertz(tmp_path / "answers.wav"))) == (0, 1)


def test_another_voice_reads_the_answer_sentence_by_sentence(leap: CommandLine, tmp_path: Path) -> None:
    write(tmp_path / "one.wav", recording(0.5, note("do"), 1.0))
    runner = leap.script(["Hello. How ", "are you?"], [HUM], [HUM, HUM], speaks=True)
    done = leap("talk", "--input", "one.wav", "-o", "answers.wav", "--fast", "--voice", "uk-male")
    assert (done.code, done.stdout) == (0, "Hello. How are you?\n")
    _, first, second = runner.requests
    assert [message.text for message in first.messages] == [VOICES["uk-male"], "Hello."]
    assert second.messages[-1].text == "How are you?"
    samples, _ = soundfile.read(tmp_path / "answers.wav")
    assert sum(end - start for start, end, _ in tones(samples)) == pytest.approx(1.2, abs=0.1)


def test_a_sentence_stopped_as_its_reading_begins_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ScriptedModelRunner(["Hello. "], [HUM], speaks=True)
    question = runner.create_conversation().generate_response("Hi.")

    class Stopping(Conversation):
        def generate_response(self, *given: Any) -> Any:
            answer.stop()
            return super().generate_response(*given)

    monkeypatch.setattr("leap_cli.talk.keyboard.Conversation", Stopping)
    with closing(ReadAloud(question, runner, "uk-male", GenerationOptions())) as answer:
        assert not [response for response in answer if isinstance(response, AudioSample)]


@pytest.mark.slow
def test_a_failure_ends_a_file_and_keeps_earlier_audio(leap: CommandLine, file: Path, tmp_path: Path) -> None:
    leap.script(["Hum.", HUM], [LeapGenerationError("broken")], speaks=True)
    done = leap("talk", "--input", str(file), "-o", "answers.wav", "--fast")
    assert done.code == 1 and done.stderr.count("leap: error: broken") == 1
    assert len(hertz(tmp_path / "answers.wav")) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("flag", ["--record", "-o"])
def test_a_full_disk_is_one_error_and_spares_the_other_file(leap: CommandLine, tmp_path: Path, flag: str) -> None:
    write(tmp_path / "one.wav", recording(0.5, note("do"), 1.0))
    leap.script(["Hum.", HUM], speaks=True)
    other = {"--record": "-o", "-o": "--record"}[flag]
    done = leap("talk", "--input", "one.wav", "--fast", flag, "/dev/full", other, "other.wav")
    assert done.code == 1 and done.stderr.count("leap: error: cannot write /dev/full") == 1, done
    assert done.stderr.count("error") == 1 and soundfile.info(tmp_path / "other.wav").frames


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "answers.wav"], "--output needs --input"),
        (["--fast"], "--fast needs --input"),
        (["--input", "talk.wav", "--push-to-talk"], "--push-to-talk"),
        (["--input", "talk.wav", "-o", "nowhere/answers.wav"], "there is no directory"),
        (["--input", "talk.wav", "-o", "./talk.wav"], "--input and --output name the same file"),
        (["--input", "talk.wav", "--record", "talk.wav"], "--input and --record name the same file"),
        (["--input", "talk.wav", "-o", "new.wav", "--record", "new.wav"], "--output and --record name the same file"),
        (["--input", "nothing.wav"], "cannot read nothing.wav"),
        (["--input", "words.wav"], "words.wav"),
        (["--device", "1", "--device", "2", "--device", "3"], "--device"),
        (["--option", "silence-duration=0"], "--option silence-duration"),
    ],
)
def test_contradictory_options_are_one_line_errors(
    leap: CommandLine, tmp_path: Path, file: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "words.wav").write_text("no sound at all")
    runner = leap.script(speaks=True)
    done = leap("talk", *arguments)
    assert done.code == 2 and message in done.stderr and done.stderr.count("leap: ") == 1, done
    assert not runner.requests


def test_a_model_without_speech_or_audio_input_is_refused_at_once(
    leap: CommandLine, miniature: Path, file: Path, tmp_path: Path
) -> None:
    leap.script("text")
    done = leap("talk", "--input", str(file), "-o", "answers.wav", "--fast")
    assert done.code == 3 and "does not speak" in done.stderr
    leap.runner = Leap.load(str(miniature))
    done = leap("talk", "--input", str(file), "-o", "answers.wav", "--fast")
    assert done.code == 3 and done.stderr.count("leap: ") == 1, done
    assert not (tmp_path / "answers.wav").exists()


def test_without_the_library_or_a_device_the_error_gives_advice(
    leap: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    runner = leap.script(speaks=True)
    for arguments in (["talk"], ["talk", "--devices"]):
        done = leap(*arguments)
        assert done.code == 1 and "leap-edge[play]" in done.stderr and not leap.loaded
    monkeypatch.setitem(sys.modules, "sounddevice", library_of([]))
    done = leap("talk")
    assert done.code == 1 and "there is no microphone" in done.stderr and not leap.loaded
    assert leap("talk", "--devices").code == 1
    assert not runner.requests


def test_devices_are_listed(leap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    device = {"name": "Headset", "hostapi": 0, "max_input_channels": 1, "max_output_channels": 2}
    monkeypatch.setitem(sys.modules, "sounddevice", library_of([device]))
    done = leap("talk", "--devices")
    assert (done.code, done.stdout.split()[-8:]) == (
        0,
        ["0", "Headset", "ALSA", "yes", "yes", "microphone", "and", "loudspeaker"],
    )


def library_of(devices: list[dict[str, Any]]) -> ModuleType:
    """sounddevice on a machine with these devices."""

    class PortAudioError(Exception):
        pass

    def query_devices(device: object = None, kind: str | None = None) -> Any:
        if kind is None:
            return devices
        raise PortAudioError("Error querying device -1")

    library: Any = ModuleType("sounddevice")
    library.PortAudioError, library.query_devices = PortAudioError, query_devices
    library.query_hostapis = lambda: [{"name": "ALSA"}]
    library.default = type("Default", (), {"device": (0, 0)})
    return library  # type: ignore[no-any-return]
