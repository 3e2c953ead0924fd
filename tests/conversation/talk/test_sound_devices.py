"""A talk's devices, played by streams that a test takes away."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from leap_cli.talk.devices import SoundDevices
from leap_core.conversation.talk.talk import Talk
from leap_core.errors import LeapError, LeapNotFoundError

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


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("headste", "--device headste: there is no such microphone", "did you mean Yeti Headset? leap talk --devices"),
        (99, "--device 99: there is no such microphone", "leap talk --devices lists them"),
        ("Yeti", "--device Yeti matches several microphones", "leap talk --devices lists them"),
    ],
)
def test_an_unknown_device_suggests_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, name: int | str, message: str, hint: str
) -> None:
    library: Any = ModuleType("sounddevice")
    library.PortAudioError = RuntimeError

    def query_devices(device: object = None, kind: object = None) -> list[dict[str, Any]]:
        if kind is None:
            return [
                {"name": "Yeti Headset", "max_input_channels": 1},
                {"name": "Head speaker", "max_input_channels": 0},
            ]
        if device == 99:
            raise RuntimeError("Error querying device 99")
        raise ValueError("Multiple input devices found for 'Yeti':\n..." if device == "Yeti" else "No input device")

    library.query_devices = query_devices
    monkeypatch.setitem(sys.modules, "sounddevice", library)
    with pytest.raises(LeapNotFoundError) as raised:
        SoundDevices(Talk(), name, None, None, on_lost=lambda: None)
    assert raised.value.message == message and (raised.value.hint or "").startswith(hint)


def test_a_talk_without_microphone_closes_when_its_loudspeaker_is_lost(streams: dict[str, FakeStream]) -> None:
    world, lost = opened(talk := Talk())
    with world:
        streams["input"].active = False
        wait_for(lambda: talk.has_ended)
        assert not talk.is_closed, "what was said is still answered"
        streams["output"].active = False
        wait_for(lambda: talk.is_closed)
    assert str(world.failure) == "the microphone is gone" and lost == ["lost"]


def test_a_talk_without_recording_closes_when_its_loudspeaker_is_lost(streams: dict[str, FakeStream]) -> None:
    world, lost = opened(talk := Talk(), FullDisk())
    with world:
        streams["input"].callback(np.zeros(320, np.float32), 320, None, None)
        wait_for(lambda: talk.has_ended)
        streams["output"].active = False
        wait_for(lambda: talk.is_closed)
    assert str(world.failure) == "cannot write both.wav" and lost == ["lost"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("held_up_at", "least_calls", "why"),
    [(5, 9, "2 s after it went on"), (None, 22, "a wireless headset needs some seconds before its first sound")],
)
def test_a_late_device_is_not_reported_as_lost(
    streams: dict[str, FakeStream],
    monkeypatch: pytest.MonkeyPatch,
    held_up_at: int | None,
    least_calls: int,
    why: str,
) -> None:
    calls = count()

    def clock() -> float:
        """0.4 s later each time, and an hour at one of them."""
        call = next(calls)
        return 0.4 * call + (3600 if held_up_at is not None and call >= held_up_at else 0)

    monkeypatch.setattr("leap_cli.talk.devices.time", SimpleNamespace(monotonic=clock))
    world, _ = opened(talk := Talk())
    with world:
        wait_for(lambda: talk.has_ended)
    assert next(calls) > least_calls, why
