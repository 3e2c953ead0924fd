"""A talk's devices, played by streams that a test takes away."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from leap_cli.talk.sound_devices import SoundDevices
from leap_core.errors import LeapError
from leap_core.talk.talk import Talk

from .test_talk import wait_for


class FakeStream:
    """Plays and brings nothing by itself."""

    active = True

    def __init__(self, rate: float, *, callback: Callable[..., None], **_options: object) -> None:
        self.callback = callback

    def start(self) -> None:
        pass

    abort = close = lambda self, ignore_errors: None


class FullDisk:
    def heard(self, _samples: object) -> None:
        raise LeapError("cannot write both.wav")

    def played(self, _samples: object) -> None:
        pass


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeStream]:
    """What is opened, by its direction."""
    opened: dict[str, FakeStream] = {}

    def opener(kind: str) -> Callable[..., FakeStream]:
        return lambda *given, **named: opened.setdefault(kind, FakeStream(*given, **named))

    library: Any = ModuleType("sounddevice")
    library.PortAudioError = RuntimeError
    library.RawInputStream, library.RawOutputStream = opener("input"), opener("output")
    library.query_devices = lambda name, kind: {"index": 0, "name": kind, "default_samplerate": 48_000.0}
    monkeypatch.setitem(sys.modules, "sounddevice", library)
    return opened


def opened(talk: Talk, recording: Any = None) -> tuple[SoundDevices, list[str]]:
    lost: list[str] = []
    return SoundDevices(talk, None, None, recording, on_lost=lambda: lost.append("lost")), lost


def test_a_talk_that_lost_its_microphone_still_loses_its_loudspeaker(streams: dict[str, FakeStream]) -> None:
    world, lost = opened(talk := Talk())
    with world:
        streams["input"].active = False
        wait_for(lambda: talk.has_ended)
        assert not talk.is_closed, "what was said is still answered"
        streams["output"].active = False
        wait_for(lambda: talk.is_closed)
    assert str(world.failure) == "the microphone is gone" and lost == ["lost"]


def test_so_does_one_whose_recording_cannot_be_written(streams: dict[str, FakeStream]) -> None:
    world, lost = opened(talk := Talk(), FullDisk())
    with world:
        streams["input"].callback(np.zeros(320, np.float32), 320, None, None)
        wait_for(lambda: talk.has_ended)
        streams["output"].active = False
        wait_for(lambda: talk.is_closed)
    assert str(world.failure) == "cannot write both.wav" and lost == ["lost"]


def test_a_process_that_was_held_up_blames_no_device(
    streams: dict[str, FakeStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count()

    def clock() -> float:
        """0.4 s later each time, and an hour at the fifth."""
        call = next(calls)
        return 0.4 * call + (3600 if call >= 5 else 0)

    monkeypatch.setattr("leap_cli.talk.sound_devices.time", SimpleNamespace(monotonic=clock))
    world, _ = opened(talk := Talk())
    with world:
        wait_for(lambda: talk.has_ended)
    assert next(calls) > 9, "2 s after it went on"
