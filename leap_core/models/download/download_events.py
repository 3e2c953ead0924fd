"""What a download reports while it runs. Events are plain values; who shows them is not known here."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

WINDOW_SECONDS = 5.0
PAUSE_SECONDS = 0.1
"""Events of progress are this far apart at least."""


@dataclass(frozen=True)
class Event:
    """The base of all events; ``to_json`` is what ``--format jsonl`` prints."""

    @property
    def kind(self) -> str:
        """planned, progress, notice, file_finished or finished."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()

    def to_json(self) -> dict[str, Any]:
        """The event's fields, paths as text, with its kind under "type"."""
        fields = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(self).items()}
        return {"type": self.kind, **fields}


@dataclass(frozen=True)
class Planned(Event):
    """What will be fetched: files with their sizes in bytes, and how many bytes of them are here already."""

    model: str
    files: tuple[dict[str, Any], ...]
    bytes: int
    total: int
    destination: Path


@dataclass(frozen=True)
class Progress(Event):
    """``bytes`` of ``total`` of all files are here; ``speed`` in bytes a second, ``eta`` in seconds or None."""

    file: str
    bytes: int
    total: int
    speed: float
    eta: float | None


@dataclass(frozen=True)
class Notice(Event):
    """Something worth a line: a retry, a start from the beginning, waiting for another process."""

    message: str


@dataclass(frozen=True)
class Unusable(Notice):
    """A notice that the model came whole, and cannot be run."""

    @property
    def kind(self) -> str:
        return "notice"


@dataclass(frozen=True)
class FileFinished(Event):
    """A file is in its place. ``source``: downloaded, present (it was there), or linked (from another cache)."""

    file: str
    path: Path
    sha256: str | None
    source: str


@dataclass(frozen=True)
class Finished(Event):
    """All files are there; ``path`` is the model's."""

    model: str
    path: Path


Listener = Callable[[Event], object]


class Speedometer:
    """Turns counts of bytes into Progress events, a few a second."""

    def __init__(self, listener: Listener, total: int) -> None:
        self._listener = listener
        self._total = total
        self._samples: deque[tuple[float, int]] = deque()
        self._last = 0.0

    def at(self, file: str, count: int) -> None:
        """``count`` bytes of all files are here, and ``file`` is being fetched."""
        now = time.monotonic()
        if not self._samples:
            self._samples.append((now, count))
        if now - self._last < PAUSE_SECONDS:
            return
        self._last = now
        self._samples.append((now, count))
        while len(self._samples) > 2 and now - self._samples[0][0] > WINDOW_SECONDS:
            self._samples.popleft()
        since, before = self._samples[0]
        speed = (count - before) / (now - since) if now > since else 0.0
        eta = (self._total - count) / speed if speed > 0 else None
        self._listener(Progress(file, count, self._total, speed, eta))
