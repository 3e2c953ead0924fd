"""What a model says aloud, written to a file while it speaks. The file's name is taken only once it is whole."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from ...conversation.media.wav import WavWriter
from ...conversation.responses import AudioSample
from ...errors import LeapError
from ...system.files import cannot_write, descriptor_of, replacing

BARE_SUFFIXES = (".pcm", ".raw")
"""Names that represent bare 16-bit little-endian samples; every other gets a WAV."""


class _Discarded(Exception):
    """What came is given up."""


class SpokenFile:
    """Writes to ``path``: beside it first, and in its place when ``finish`` is called. A place that nothing can take
    (a pipe, a device) is written to as the sound comes.

    ``channels``: whose samples come in turns. Raises LeapError where the file cannot be written.
    """

    def __init__(self, path: Path, channels: int = 1) -> None:
        self.path = path
        self._channels = channels
        self._target = Path(os.path.realpath(path))
        self._open = ExitStack()
        self._writer: WavWriter | None = None
        self._is_over = False

    @property
    def seconds(self) -> float:
        """Length of what came so far."""
        return self._writer.samples / self._channels / self._rate if self._writer is not None else 0.0

    def write(self, sample: AudioSample) -> None:
        """Add a piece. The first one sets the sample rate."""
        try:
            if self._writer is None:
                self._rate = sample.sample_rate
                header = self.path.suffix.lower() not in BARE_SUFFIXES
                self._writer = WavWriter(self._opened(), self._rate, header=header, channels=self._channels)
            self._writer.write(sample.samples)
        except OSError as error:
            self.discard()
            raise cannot_write(self.path, error) from None

    def finish(self) -> bool:
        """Put the file in its place. False where no sound came: then there is none, and an older one stays."""
        if self._writer is None or self._is_over:
            return False
        self._is_over = True
        try:
            with self._open:
                self._writer.finish()
        except OSError as error:
            raise cannot_write(self.path, error) from None
        return True

    def discard(self) -> None:
        """Give up what came; an older file stays as it is."""
        self._writer = None
        with suppress(_Discarded, OSError), self._open:
            raise _Discarded

    def _opened(self) -> IO[bytes]:
        descriptor = descriptor_of(str(self.path))
        if descriptor is not None:
            return self._open.enter_context(open(os.dup(descriptor), "wb"))
        if self._target.is_dir():
            raise LeapError(f"cannot write {self.path}: it is a directory")
        if self._target.exists() and not self._target.is_file():
            return self._open.enter_context(self._target.open("wb"))
        file = self._open.enter_context(replacing(self._target))
        if self._target.exists():
            os.chmod(file.name, self._target.stat().st_mode & 0o777)
        return file
