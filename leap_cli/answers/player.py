"""Sound through the loudspeaker, with the sounddevice library where it is installed."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from leap_core.errors import LeapError
from leap_core.media.wav_writer import pcm16
from leap_core.responses import AudioSample

_alsa_handler: Any = None
"""Kept as long as ALSA may call it."""


def sound_library(what: str, instead: str) -> Any:
    """The sounddevice library. Raises LeapError, which says ``what`` cannot be done and what to do ``instead``."""
    _quieten_alsa()
    try:
        import sounddevice
    except ImportError:
        raise LeapError(
            f"{what}: the library sounddevice is not installed", hint=f"pip install 'leap-edge[play]', or {instead}"
        ) from None
    except OSError as error:  # it is installed, and the system's PortAudio is not
        raise LeapError(f"{what}: {error}", hint=f"install PortAudio, or {instead}") from None
    return sounddevice


def _quieten_alsa() -> None:
    """ALSA writes its own lines to stderr, for every device that is not there and every sound that came late."""
    global _alsa_handler
    if sys.platform != "linux" or _alsa_handler is not None:
        return
    import ctypes

    with suppress(OSError, AttributeError):
        _alsa_handler = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int)(
            lambda *_: None
        )
        ctypes.CDLL("libasound.so.2").snd_lib_error_set_handler(_alsa_handler)


class Player:
    """Plays while the sound comes. Raises LeapError when there is nothing to play with."""

    def __init__(self) -> None:
        self._library = sound_library("sound cannot be played", "write a file instead")
        self._device: Any = None

    def write(self, sample: AudioSample) -> None:
        """Play a piece; waits while the device has enough to play."""
        try:
            if self._device is None:
                self._device = self._library.RawOutputStream(sample.sample_rate, channels=1, dtype="int16")
                self._device.start()
            self._device.write(pcm16(sample.samples))
        except self._library.PortAudioError as error:
            raise LeapError(f"sound cannot be played: {error}", hint="write a file instead") from None

    def finish(self) -> bool:
        """Play what is left."""
        device, self._device = self._device, None
        if device is None:
            return False
        device.stop()
        device.close()
        return True
