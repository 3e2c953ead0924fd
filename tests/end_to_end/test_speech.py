"""From the command line to a file whose tone is measured, with the miniature speech model."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from leap_core.conversation.media.wav import check_wav
from leap_core.testing.miniature_speech import FRAMES, INTERLEAVED_TEXT, PLAIN_TEXT, TONES
from leap_core.testing.sounds import clip_of


@pytest.fixture(autouse=True)
def nothing_left_behind(program):
    yield
    program("jobs", "worker", "--shutdown")


def frequency(path: Path) -> tuple[float, int]:
    """The loudest frequency in Hz, and the number of samples."""
    samples, rate = soundfile.read(path)
    assert rate == 24_000
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * rate / len(samples)), len(samples)


def test_say_writes_the_tone(program, miniature, tmp_path) -> None:
    done = program("say", "-m", str(miniature), "A mid tone, please.", "-o", "out.wav")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    hertz, samples = frequency(tmp_path / "out.wav")
    assert hertz == pytest.approx(600, abs=5) and samples == 1920 * FRAMES["mid"]


def test_text_and_sound_in_one_answer(program, miniature, tmp_path) -> None:
    done = program("generate", "-m", str(miniature), "A low tone.", "--speak", "out.wav")
    assert (done.returncode, done.stdout) == (0, "".join(INTERLEAVED_TEXT) + "\n")
    assert frequency(tmp_path / "out.wav") == (pytest.approx(450, abs=5), 1920 * 16)


def test_a_pipe_gets_audio_while_it_is_generated(start, miniature, tmp_path) -> None:
    process = start("say", "-m", str(miniature), "A drone.", "-o", "-", stdout=subprocess.PIPE)
    assert process.stdout is not None
    head = process.stdout.read(44 + 10 * 3840)
    assert head[:4] == b"RIFF" and process.poll() is None, "the sound goes on"
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(100) == 130
    assert len(head + rest) % 2 == 0 and check_wav(head + rest).samples > 10 * 1920


def test_a_file_of_cancelled_speech_is_complete(start, miniature, tmp_path) -> None:
    process = start("say", "-m", str(miniature), "A drone.", "-o", "out.wav", stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 40_000 for path in tmp_path.glob(".out.wav.*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    assert not (tmp_path / "out.wav").exists()
    process.send_signal(signal.SIGINT)
    assert process.wait(100) == 130
    hertz, samples = frequency(tmp_path / "out.wav")
    assert hertz == pytest.approx(TONES["drone"], abs=5) and samples % 1920 == 0
    assert not list(tmp_path.glob(".out.wav.*"))


def test_a_background_job_writes_the_tone(program, miniature, tmp_path) -> None:
    done = program("say", "-m", str(miniature), "A high tone.", "-o", "out.wav", "--background")
    id = done.stdout.strip()
    assert program("jobs", "wait", id).returncode == 0
    assert frequency(tmp_path / "out.wav") == (pytest.approx(900, abs=5), 1920 * FRAMES["high"])
    shown = json.loads(program("jobs", "status", id, "--format", "json").stdout)
    assert shown["result"]["speech"] == {"file": str(tmp_path / "out.wav"), "seconds": 0.96}
    assert "input_audio" not in json.dumps(shown)


def test_a_cancelled_job_leaves_no_file(program, miniature, tmp_path) -> None:
    id = program("say", "-m", str(miniature), "A drone.", "-o", "out.wav", "--background").stdout.strip()
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.wav.*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    program("jobs", "cancel", id)
    program("jobs", "wait", id)
    assert not [path for path in tmp_path.glob("*out.wav*")]


def test_a_job_whose_model_has_no_voice_fails(program, tmp_path) -> None:
    id = program("say", "Hello.", "-o", "out.wav", "--background", "--job-retries", "0").stdout.strip()
    assert program("jobs", "wait", id).returncode != 0
    assert "does not speak" in program("jobs", "status", id).stdout


def test_a_loaded_model_speaks_beside_text(program, miniature, tmp_path) -> None:
    model = str(miniature)
    try:
        assert program("load", model, "--slots", "4").returncode == 0
        alone = program("generate", "-m", model, "--host", "Hello.").stdout
        assert alone == "".join(PLAIN_TEXT) + "\n"
        answers: dict[int, subprocess.CompletedProcess[str]] = {}

        def run(n: int) -> None:
            if n % 2:
                answers[n] = program("generate", "-m", model, "--host", "Hello.")
            else:
                answers[n] = program("say", "-m", model, "--host", "A low tone.", "-o", f"{n}.wav")

        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answers[n].returncode for n in range(4)] == [0] * 4, answers
        assert answers[1].stdout == answers[3].stdout == alone
        for n in (0, 2):
            assert frequency(tmp_path / f"{n}.wav") == (pytest.approx(450, abs=5), 1920 * FRAMES["low"])
    finally:
        program("unload", "--all")


def test_a_spoken_conversation(program, miniature, tmp_path) -> None:
    done = program(
        *("chat", "-m", str(miniature), "--no-save", "--speak", "talk.wav"),
        stdin="A low tone.\nAnd now, after all of that, a high one.\n",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("".join(INTERLEAVED_TEXT) + "\n") * 2
    assert frequency(tmp_path / "talk.wav") == (pytest.approx(450, abs=5), 1920 * 16)
    assert frequency(tmp_path / "talk-2.wav") == (pytest.approx(900, abs=5), 1920 * 16)


def test_a_saved_conversation_continues_in_speech_and_is_exported_with_audio(program, miniature, tmp_path) -> None:
    model = str(miniature)
    assert (
        program("chat", "-m", model, "--session", "tones", "--speak", "one.wav", stdin="A low tone.\n").returncode == 0
    )
    again = program(
        "chat", "-m", model, "--session", "tones", "--speak", "two.wav", stdin="After all of that a mid one.\n"
    )
    assert again.returncode == 0, again.stderr
    assert frequency(tmp_path / "two.wav") == (pytest.approx(600, abs=5), 1920 * 16)
    exported = json.loads(program("export", "tones").stdout)
    text = json.dumps(exported)
    assert text.count('"speech"') == 2 and text.count('"input_audio": {') == 2


def test_a_batch_writes_a_file_for_each_line(program, miniature, tmp_path) -> None:
    rows = [{"custom_id": word, "prompt": f"A {word} tone."} for word in FRAMES]
    rows.append({"custom_id": "../a/b", "prompt": "A low tone."})
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["batch", "in.jsonl", "-o", "out.jsonl", "--format", "plain", "-m", str(miniature)]
    for _ in range(2):  # the second time everything is there
        done = program(*command, "--speak", "wavs")
        assert done.returncode == 0, done.stderr
        results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        files = [Path(result["speech"]) for result in results]
        assert files[:3] == [tmp_path / f"wavs/{word}.wav" for word in FRAMES]
    assert {result["text"] for result in results} == {"".join(INTERLEAVED_TEXT)}
    for path, word in zip(files, (*FRAMES, "low"), strict=True):
        assert frequency(path) == (pytest.approx(TONES[word], abs=5), 1920 * 16)
    assert sorted((tmp_path / "wavs").iterdir()) == sorted(files), "no name leads out of the directory"
    mute = program("batch", "in.jsonl", "-o", "mute.jsonl", "-m", "builtin", "--speak", "mute")
    assert mute.returncode == 3 and "does not speak" in mute.stderr


def with_ears(model: Path, directory: Path) -> Path:
    """The miniature with a projector whose sound means nothing to it: all rows are zeros."""
    import gguf

    from tests.support.random_projectors import TINY_AUDIO, write_random_projector

    shutil.copytree(model.parent, directory)
    path = write_random_projector(directory / f"mmproj-{model.name}", 128, audio=TINY_AUDIO, quantization="f32")
    reader = gguf.GGUFReader(path, "r+")
    for tensor in reader.tensors:
        if tensor.name.startswith("mm.a.mlp.3."):
            tensor.data[:] = 0
    reader.data.flush()
    return directory / model.name


def test_a_spoken_question_gets_a_spoken_answer(program, miniature, tmp_path) -> None:
    model = with_ears(miniature, tmp_path / "ears")
    clip_of("do", "mi", length=0.5).write(tmp_path / "in.wav")
    done = program(
        *("chat", "-m", str(model), "--no-save", "--audio", "in.wav", "--speak", "talk.wav", "A low tone."),
        stdin="And now, after all of that, a high one.\n",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("".join(INTERLEAVED_TEXT) + "\n") * 2
    assert frequency(tmp_path / "talk.wav") == (pytest.approx(450, abs=5), 1920 * 16)
    assert frequency(tmp_path / "talk-2.wav") == (pytest.approx(900, abs=5), 1920 * 16)
