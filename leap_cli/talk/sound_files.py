"""A talk over files: what is in one is heard, and the answers go into another."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from leap_core.media.audio import RATE as HEARD
from leap_core.responses import AudioSample
from leap_core.talk.playback import RATE as PLAYED
from leap_core.talk.talk import Talk

from ..answers.spoken_output import Sink
from .recording import Recording

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

STEP = 0.02
"""Seconds that are heard and played in turns."""


class SoundFiles:
    """Lets ``talk`` hear samples (mono, 16 kHz) and writes what it says, with the silence between, to ``sink``. It
    hears as fast as answers are made if ``fast``, else in real time."""

    def __init__(
        self, talk: Talk, samples: NDArray[float32], sink: Sink | None, recording: Recording | None, *, fast: bool
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
