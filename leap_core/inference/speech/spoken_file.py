"""What a model says aloud, written to a file while it speaks. The file's name is taken only once it is whole."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ...conversation.media.wav import WavWriter
from ...conversation.responses import AudioSample
from ...errors import LeapError
from ...system.files import cannot_write, descriptor_of

BARE_SUFFIXES = (".pcm", ".raw")
"""Names that represent bare 16-bit little-endian samples; every other gets a WAV."""


class SpokenFile:
    """Writes to ``path``: beside it first, and in its place when ``finish`` is called. A place that nothing can take
    (a pipe, a device) is written to as the sound comes.

    ``channels``: whose samples come in turns. Raises LeapError where the file cannot be written.
    """

    def __init__(self, path: Path, channels: int = 1) -> None:
        self.path = path
        self._channels = channels
        self._target = Path(os.path.realpath(path))
        self._file: BinaryIO | None = None
        self._unfinished: Path | None = None
        self._writer: WavWriter | None = None

    @property
    def seconds(self) -> float:
        """Length of what came so far."""
        return self._writer.samples / self._channels / self._rate if self._writer is not None else 0.0

    def write(self, sample: AudioSample) -> None:
        """Add a piece. The first one sets the sample rate."""
        try:
            if self._writer is None:
                self._rate = sample.sample_rate
                is_bare = self.path.suffix.lower() in BARE_SUFFIXES
                header = not is_bare
                self._writer = WavWriter(self._opened(), self._rate, header=header, channels=self._channels)
            self._writer.write(sample.samples)
        except OSError as error:
            self.discard()
            raise cannot_write(self.path, error) from None

    def finish(self) -> bool:
        """Put the file in its place. False where no sound came: then there is none, and an older one stays."""
        file, self._file = self._file, None
        if file is None or self._writer is None:
            return False
        try:
            with file:
                self._writer.finish()
                if self._unfinished is not None:
                    os.fsync(file.fileno())
            if self._unfinished is not None:
                os.chmod(self._unfinished, self._mode())
                os.replace(self._unfinished, self._target)
        except OSError as error:
            self.discard()
            raise cannot_write(self.path, error) from None
        return True

    def discard(self) -> None:
        """Give up what came; an older file stays as it is."""
        file, self._file, self._writer = self._file, None, None
        with suppress(OSError):
            if file is not None:
                file.close()
            if self._unfinished is not None:
                self._unfinished.unlink()

    def _opened(self) -> BinaryIO:
        descriptor = descriptor_of(str(self.path))
        if descriptor is not None:
            self._file = open(os.dup(descriptor), "wb")  # noqa: SIM115
        elif self._target.exists() and not self._target.is_file():
            if self._target.is_dir():
                raise LeapError(f"cannot write {self.path}: it is a directory")
            self._file = self._target.open("wb")
        else:
            handle, name = tempfile.mkstemp(dir=self._target.parent, prefix=f".{self._target.name}.")
            self._unfinished = Path(name)
            self._file = open(handle, "wb")  # noqa: SIM115
        return self._file

    def _mode(self) -> int:
        if self._target.exists():
            return self._target.stat().st_mode & 0o777
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask
