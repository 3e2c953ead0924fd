"""The sound of answers on its way out: to a file, to standard output, to the loudspeaker."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from leap_core.conversation.generator import Generator, require_voice
from leap_core.conversation.media.wav import WavWriter, pcm16
from leap_core.conversation.responses import AudioSample, Complete, GenerationFinishReason, MessageResponse
from leap_core.conversation.streams import PassingStream, Stream
from leap_core.errors import LeapError, LeapGenerationError
from leap_core.inference.speech.spoken_file import SpokenFile

from ..framework.environment import Environment
from ..framework.output import Format, Output
from ..options.answer import SpeechTarget


class SoundSink(Protocol):
    """A place for sound."""

    def write(self, sample: AudioSample) -> None:
        """Add a piece."""
        ...

    def finish(self) -> bool:
        """The sound is over. False where none came."""
        ...


class SpokenOutput:
    """Takes the sound out of answers and brings it to where ``target`` says. What has come is kept however the block
    ends; sound that was ``demanded`` and did not come is a LeapGenerationError at its end.

    ``number``: of the answer in a conversation; the second's file gets a 2 in its name.
    """

    def __init__(
        self, target: SpeechTarget, env: Environment, output: Output, number: int = 1, *, demanded: bool = True
    ) -> None:
        self._target = target
        self._env = env
        self._output = output
        self._demanded = demanded
        self._path = None if target.file is None else numbered(env.cwd / target.file, number)
        self._sinks: list[SoundSink] | None = None
        self._heard = False
        self._end: Complete | None = None

    def text_place(self, place: Environment) -> Environment:
        """Where text goes: not where the sound goes."""
        if not self._target.is_stdout or place.stdout is not self._env.stdout:
            return place
        return replace(place, stdout=place.stderr, stdout_is_terminal=place.stderr_is_terminal)

    def check(self, runner: Generator) -> None:
        """Refuse a model that has no voice, if one is asked for."""
        if self._target:
            require_voice(runner)
        self._open()

    def hearing(self, stream: Stream, runner: Generator) -> Stream:
        """The answer without its sound, which goes its own way. Without a voice, the answer itself."""
        return _Hearing(stream, self) if self._target or runner.speaks else stream

    def take(self, sample: AudioSample) -> bool:
        """Whether the sample has a place of its own; otherwise it is for the reader of the answer."""
        self._heard = True
        for sink in self._open():
            sink.write(sample)
        return bool(self._target)

    def ended(self, complete: Complete) -> None:
        """How the answer ended."""
        self._end = complete

    def __enter__(self) -> SpokenOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for sink in self._sinks or []:
            sink.finish()
        if kind is not None or self._end is None:
            return
        if (
            self._demanded
            and self._target
            and not self._heard
            and self._end.finish_reason is not GenerationFinishReason.INTERRUPTED
        ):
            unwritten = f", so {self._target.file} is not written" if self._target.file else ""
            raise LeapGenerationError(
                f"the model did not speak{unwritten}",
                hint="its system prompt makes it speak: leave -s out, or use leap say",
            )
        if self._heard and not self._target and self._output.format is Format.TEXT:
            self._output.note("the model spoke: --speak FILE keeps its voice, and --play plays it")

    def _open(self) -> list[SoundSink]:
        if self._sinks is None:
            self._sinks = []
            if self._target.is_stdout:
                self._sinks.append(StandardOutput(self._env))
            elif self._path is not None:
                self._sinks.append(SpokenFile(self._path))
            if self._target.play:
                self._sinks.append(Player())
        return self._sinks


class _Hearing(PassingStream):
    def __init__(self, stream: Stream, output: SpokenOutput) -> None:
        super().__init__(stream)
        self._output = output

    def __next__(self) -> MessageResponse:
        while True:
            response = super().__next__()
            if isinstance(response, Complete):
                self._output.ended(response)
            if not (isinstance(response, AudioSample) and self._output.take(response)):
                return response


class StandardOutput:
    """A WAV of unknown length, as it comes."""

    def __init__(self, env: Environment) -> None:
        self._stream = env.binary_stdout
        self._writer: WavWriter | None = None

    def write(self, sample: AudioSample) -> None:
        if self._writer is None:
            self._writer = WavWriter(self._stream, sample.sample_rate)
        self._writer.write(sample.samples)

    def finish(self) -> bool:
        if self._writer is None:
            return False
        self._writer.finish()
        return True


def numbered(path: Path, number: int) -> Path:
    """The file of the n-th answer: talk.wav, talk-2.wav, talk-3.wav."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


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
