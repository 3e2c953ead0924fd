"""What a process writes, read in a thread and kept within a bound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import IO


class StreamTail:
    """Reads a stream to its end and keeps ``limit`` bytes of it: the last ones with ``keep_end``, else the first."""

    def __init__(self, limit: int, *, keep_end: bool) -> None:
        self.data = bytearray()
        self.on_full: Callable[[], object] | None = None
        self._limit = limit
        self._keep_end = keep_end

    def read(self, stream: IO[bytes]) -> None:
        """Read until the stream ends."""
        with stream, suppress(OSError, ValueError):
            while piece := stream.read1(65536):  # type: ignore[attr-defined]
                self.data += piece
                if len(self.data) >= self._limit:
                    if self._keep_end:
                        del self.data[: -self._limit]
                    else:
                        del self.data[self._limit :]
                        if self.on_full is not None:
                            self.on_full()

    @property
    def text(self) -> str:
        """What is kept, without the space around it."""
        return self.data.decode("utf-8", "replace").strip()
