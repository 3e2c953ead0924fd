"""Files of speech: whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from leap_core.conversation.media.wav import check_wav
from leap_core.conversation.responses import AudioSample
from leap_core.errors import LeapError
from leap_core.inference.speech.spoken_file import SpokenFile

PIECE = AudioSample((0.0, 0.25, -0.25), 24_000)


def test_the_file_appears_when_the_audio_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    path.write_bytes(b"older")
    path.chmod(0o640)
    file = SpokenFile(path)
    for _ in range(8000):
        file.write(PIECE)
    assert path.read_bytes() == b"older" and file.seconds == 1.0
    assert file.finish()
    sound = check_wav(path.read_bytes())
    assert (sound.samples, sound.sample_rate, path.stat().st_mode & 0o777) == (24_000, 24_000, 0o640)
    assert os.listdir(tmp_path) == ["out.wav"]


def test_without_audio_no_file_is_created(tmp_path: Path) -> None:
    assert not SpokenFile(tmp_path / "out.wav").finish()
    assert not os.listdir(tmp_path)


def test_discarding_leaves_nothing(tmp_path: Path) -> None:
    file = SpokenFile(tmp_path / "out.wav")
    file.write(PIECE)
    file.discard()
    file.discard()
    assert not os.listdir(tmp_path) and not file.finish()


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (plain := tmp_path / "plain").write_text("")
    file = SpokenFile(tmp_path / "out.pcm")
    file.write(PIECE)
    file.finish()
    assert (tmp_path / "out.pcm").stat().st_mode == plain.stat().st_mode
    assert len((tmp_path / "out.pcm").read_bytes()) == 6


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.wav").symlink_to(tmp_path / "out.wav")
    file = SpokenFile(tmp_path / "link.wav")
    file.write(PIECE)
    file.finish()
    assert (tmp_path / "link.wav").is_symlink() and check_wav((tmp_path / "out.wav").read_bytes()).samples == 3


def test_a_pipe_is_written_as_the_audio_arrives(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.wav"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    reader.start()
    file = SpokenFile(pipe)
    file.write(PIECE)
    assert file.finish()
    reader.join()
    assert check_wav(heard[0]).samples == 3


@pytest.mark.parametrize("place", ["missing/out.wav", "directory"])
def test_an_unwritable_path_is_an_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(LeapError, match="cannot write"):
        SpokenFile(tmp_path / place).write(PIECE)
