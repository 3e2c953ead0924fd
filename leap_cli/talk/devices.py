"""Audio input and output of a voice chat: devices or files, and both sides recorded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any

from leap_core.conversation.media.audio import RATE as HEARD
from leap_core.conversation.responses import AudioSample
from leap_core.conversation.talk.playback import RATE as PLAYED
from leap_core.conversation.talk.talk import Talk
from leap_core.errors import LeapError, LeapNotFoundError
from leap_core.inference.speech.spoken_file import SpokenFile

from ..answers.sound import SoundSink, sound_library

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

MOST_APART = PLAYED // 4
"""Samples by which one side may be ahead before the other is filled with silence: a device has stopped."""


class DeviceRecording:
    """A WAV at 24 kHz, written while it comes. ``heard`` is called by one thread, ``played`` by any."""

    def __init__(self, path: Path) -> None:
        import soxr

        self._file = SpokenFile(path, channels=2)
        self._resampler = soxr.ResampleStream(HEARD, PLAYED, 1, dtype="float32")
        self._guard = threading.Lock()
        self._sides: list[list[NDArray[float32]]] = [[], []]
        self._has_failed = False

    def heard(self, samples: NDArray[float32]) -> None:
        """The user's side: mono, 16 kHz."""
        self._sides[0].append(self._resampler.resample_chunk(samples))
        self._write()

    def played(self, samples: NDArray[float32]) -> None:
        """The model's side: mono, 24 kHz."""
        with self._guard:
            self._sides[1].append(samples)

    def finish(self) -> bool:
        """Put the file in its place. False where nothing came, or not all could be written."""
        if self._has_failed:
            return False
        self._write(to_the_end=True)
        return self._file.finish()

    def _write(self, *, to_the_end: bool = False) -> None:
        import numpy as np

        with self._guard:
            left, right = (np.concatenate([np.zeros(0, np.float32), *side]) for side in self._sides)
            longer, shorter = max(len(left), len(right)), min(len(left), len(right))
            count = longer if to_the_end else max(shorter, longer - MOST_APART)
            self._sides = [[left[count:]], [right[count:]]]
        both = np.zeros((count, 2), np.float32)
        both[: len(left[:count]), 0] = left[:count]
        both[: len(right[:count]), 1] = right[:count]
        if count:
            try:
                self._file.write(AudioSample(tuple(both.ravel().tolist()), PLAYED))
            except LeapError:
                self._has_failed = True
                raise


LISTED = "leap talk --devices lists them; --device given twice names the microphone, then the loudspeaker"
INSTEAD = "give --input FILE --output FILE"
SILENT_SECONDS = 2.0
"""A device that asks for nothing and brings nothing for so long is gone."""
STARTING_SECONDS = 8.0
"""So much longer it may take to begin: a headset without a wire changes its profile first."""
HELD_UP_SECONDS = 0.5
"""After so long without a check this process was held up itself (Ctrl-Z), not the devices."""
INPUT, OUTPUT = "input", "output"
LATENCY = {INPUT: 0.2, OUTPUT: 0.06}
"""Seconds of sound that a device may hold while this process is late. The microphone's come in parts of that; the
loudspeaker's still sound when an answer is stopped."""
NAMES = {INPUT: "microphone", OUTPUT: "loudspeaker"}
Device = int | str | None


def list_devices() -> list[dict[str, Any]]:
    """What there is: number, name, system, what it is for, whether it is the default. Raises LeapError without the
    library."""
    library = sound_library("there is no list of devices", INSTEAD)
    systems = library.query_hostapis()
    defaults = list(library.default.device)
    return [
        {
            "number": number,
            "name": device["name"],
            "system": systems[device["hostapi"]]["name"],
            "input": device["max_input_channels"] > 0,
            "output": device["max_output_channels"] > 0,
            "default": " and ".join(NAMES[kind] for n, kind in enumerate(NAMES) if defaults[n] == number) or None,
        }
        for number, device in enumerate(library.query_devices())
    ]


class SoundDevices:
    """Connects ``talk`` to a microphone and a loudspeaker. ``microphone``, ``loudspeaker``: a number of
    ``list_devices``, a part of a name, or None for the system's own. ``on_lost`` is called when one is gone.

    Raises LeapError where one is missing, or on entering cannot be used, and LeapNotFoundError for a name that
    none or several have.
    """

    def __init__(
        self,
        talk: Talk,
        microphone: Device,
        loudspeaker: Device,
        recording: DeviceRecording | None,
        on_lost: Callable[[], object],
    ) -> None:
        self._library = sound_library("there is neither a microphone nor a loudspeaker", INSTEAD)
        self._talk, self._recording, self._on_lost = talk, recording, on_lost
        named = {INPUT: microphone, OUTPUT: loudspeaker}
        self._devices = {kind: self._find(kind, name) for kind, name in named.items()}
        self._streams: dict[str, Any] = {}
        self._last: dict[str, float] = {}
        self._blocks: SimpleQueue[bytes] = SimpleQueue()
        self._closing = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="leap-talk-microphone", daemon=True)
        self.failure: Exception | None = None
        """What ended the talk."""

    def __enter__(self) -> SoundDevices:
        try:
            for kind in (OUTPUT, INPUT):
                self._open(kind)
        except BaseException:
            self._close()
            raise
        self._checked = time.monotonic()
        self._listener.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._talk.close()
        self._closing.set()
        self._listener.join()
        self._close()

    def _find(self, kind: str, name: Device) -> Any:
        """What the library knows of it."""
        try:
            return self._library.query_devices(name, kind)
        except (ValueError, self._library.PortAudioError) as error:  # ValueError: no device or several have that name
            if name is None:
                raise LeapError(f"there is no {NAMES[kind]}", hint=f"connect one, or {INSTEAD}") from None
            if str(error).startswith("Multiple"):
                raise LeapNotFoundError(f"--device {name} matches several {NAMES[kind]}s", hint=LISTED) from None
            near = self._near(kind, str(name))
            hint = LISTED if near is None else f"did you mean {near}? {LISTED}"
            raise LeapNotFoundError(f"--device {name}: there is no such {NAMES[kind]}", hint=hint) from None

    def _near(self, kind: str, name: str) -> str | None:
        """The device with a word like this in its name."""
        from difflib import get_close_matches

        devices = [each["name"] for each in self._library.query_devices() if each[f"max_{kind}_channels"] > 0]
        of_word = {word: device for device in devices for word in [device.casefold(), *device.casefold().split()]}
        return next((of_word[word] for word in get_close_matches(name.casefold(), of_word, 1)), None)

    def _open(self, kind: str) -> None:
        stream_class, wanted = {
            INPUT: (self._library.RawInputStream, HEARD),
            OUTPUT: (self._library.RawOutputStream, PLAYED),
        }[kind]
        device = self._devices[kind]
        failure: Exception | None = None
        for rate in dict.fromkeys((wanted, round(device["default_samplerate"]))):
            use = self._hearing(rate) if kind == INPUT else self._playing(rate)
            try:
                stream = stream_class(
                    rate, device=device["index"], channels=1, dtype="float32", latency=LATENCY[kind], callback=use
                )
                stream.start()
            except self._library.PortAudioError as error:
                failure = error
                continue
            self._streams[kind] = stream
            self._last.setdefault(kind, time.monotonic() + STARTING_SECONDS)
            return
        raise LeapError(
            f"the {NAMES[kind]} {device['name']} cannot be used: {failure}",
            hint=f"choose another one with --device, or {INSTEAD}",
        )

    def _hearing(self, rate: int) -> Callable[..., None]:
        import soxr

        resampler = None if rate == HEARD else soxr.ResampleStream(rate, HEARD, 1, dtype="float32")
        self._at_model_rate = (lambda samples: samples) if resampler is None else resampler.resample_chunk

        def use(block: Any, _frames: int, _time: object, _status: object) -> None:
            self._last[INPUT] = time.monotonic()
            self._blocks.put(bytes(block))

        return use

    def _playing(self, rate: int) -> Callable[..., None]:
        import numpy as np
        import soxr

        resampler = None if rate == PLAYED else soxr.ResampleStream(PLAYED, rate, 1, dtype="float32")
        waiting: list[NDArray[float32]] = [np.zeros(0, np.float32)]

        def use(block: Any, frames: int, _time: object, _status: object) -> None:
            self._last[OUTPUT] = time.monotonic()
            if resampler is None:
                samples = self._take(frames)
            else:
                while len(waiting[0]) < frames:
                    more = resampler.resample_chunk(self._take(PLAYED // 50))
                    waiting[0] = np.concatenate([waiting[0], more])
                samples, waiting[0] = waiting[0][:frames], waiting[0][frames:]
            block[:] = samples.tobytes()

        return use

    def _take(self, count: int) -> NDArray[float32]:
        samples = self._talk.play(count)
        if self._recording is not None:
            self._recording.played(samples)
        return samples

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                block = self._blocks.get(timeout=0.1)
            except Empty:
                block = b""
            try:
                self._check()
                if block and self.failure is None:
                    self._hear(block)
            except Exception as error:  # the recording cannot be written; the loudspeaker may still go
                self._lose(error, INPUT)

    def _hear(self, block: bytes) -> None:
        import numpy as np

        samples = self._at_model_rate(np.frombuffer(block, np.float32))
        self._talk.feed(samples)
        if self._recording is not None:
            self._recording.heard(samples)

    def _check(self) -> None:
        """Notice a device that is gone."""
        now, before = time.monotonic(), self._checked
        self._checked = now
        if now - before > HELD_UP_SECONDS:
            self._last = {kind: max(last, now) for kind, last in self._last.items()}
        for kind, stream in self._streams.items():
            if now - self._last[kind] > SILENT_SECONDS or not stream.active:
                self._lose(
                    LeapError(f"the {NAMES[kind]} is gone", hint="leap talk -c continues with another one"), kind
                )

    def _lose(self, failure: Exception, kind: str) -> None:
        is_first = self.failure is None
        if is_first:
            self.failure = failure
        if kind == OUTPUT:
            self._talk.close()
        elif is_first:
            self._talk.end()  # what was said is still answered
        if is_first:
            self._on_lost()

    def _close(self) -> None:
        for stream in self._streams.values():
            # What waits in the device was meant to be heard only if nobody stopped it.
            stream.abort(ignore_errors=True)
            stream.close(ignore_errors=True)


STEP = 0.02
"""Seconds that are heard and played in turns."""


class SoundFiles:
    """Feeds ``talk`` samples (mono, 16 kHz) and writes what it says, with the silence between, to ``sink``. It
    hears as fast as answers are made if ``fast``, else in real time."""

    def __init__(
        self,
        talk: Talk,
        samples: NDArray[float32],
        sink: SoundSink | None,
        recording: DeviceRecording | None,
        *,
        fast: bool,
    ) -> None:
        self._talk, self._samples, self._sink, self._recording = talk, samples, sink, recording
        self._play = talk.play_all if fast else talk.play
        self._fast = fast
        self._steps = 0
        self._thread = threading.Thread(target=self._run, name="leap-talk-files", daemon=True)
        self.failure: Exception | None = None
        """What ended the talk."""

    def __enter__(self) -> SoundFiles:
        self._begin = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._talk.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            step = round(STEP * HEARD)
            for start in range(0, len(self._samples), step):
                if self._talk.is_closed:
                    return
                self._step(self._samples[start : start + step])
            self._talk.end()
            while not self._talk.is_quiet:
                self._step()
        except Exception as error:
            self.failure = error
            self._talk.close()

    def _step(self, heard: NDArray[float32] | None = None) -> None:
        import numpy as np

        heard = np.zeros(round(STEP * HEARD), np.float32) if heard is None else heard
        self._talk.feed(heard)
        played = self._play(round(STEP * PLAYED))
        if self._recording is not None:
            self._recording.played(played)
            self._recording.heard(heard)
        if self._sink is not None:
            self._sink.write(AudioSample(tuple(played.tolist()), PLAYED))
        self._steps += 1
        if not self._fast:
            time.sleep(max(0.0, self._begin + self._steps * STEP - time.monotonic()))
