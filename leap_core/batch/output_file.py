"""Where results go: a file that is brought in line with the journal first, or a stream."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from ..storage.atomic_files import descriptor_of
from ..storage.locks import Busy, locked
from .appending import append_whole
from .journal import being_written


class Sink(Protocol):
    """Takes rendered lines, in the order in which they shall stand."""

    def open(self, lines: Iterable[str]) -> None:
        """Begin with these lines, and nothing else."""
        ...

    def write(self, line: str) -> None:
        """Append one line."""
        ...

    def leave(self) -> None:
        """There is nothing to write: be there, with what was in it."""
        ...

    def close(self) -> None: ...


class OutputFile:
    """A file that holds whole lines only; opening it keeps what is right already. It is locked while it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # a link stays one
        self._descriptor: int | None = None
        self._locks = ExitStack()

    def open(self, lines: Iterable[str]) -> None:
        """Raises LeapUnavailableError when another batch writes to it."""
        self._lock(self.path)
        wanted = "".join(line + "\n" for line in lines).encode()
        there = self.path.read_bytes() if self.path.exists() else b""
        if not wanted.startswith(there[: there.rfind(b"\n") + 1]):
            self._replace(wanted)
            there = wanted
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        whole = there.rfind(b"\n") + 1
        if whole < len(there):  # a torn last line
            os.ftruncate(self._descriptor, whole)
        append_whole(self._descriptor, wanted[whole:])

    def write(self, line: str) -> None:
        assert self._descriptor is not None
        append_whole(self._descriptor, line.encode() + b"\n")

    def leave(self) -> None:
        self.path.touch()

    def close(self) -> None:
        with self._locks:
            if self._descriptor is not None:
                descriptor, self._descriptor = self._descriptor, None
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def _lock(self, path: Path) -> None:
        try:
            self._locks.enter_context(locked(path, wait=False))
        except Busy:
            raise being_written(self.path) from None

    def _replace(self, wanted: bytes) -> None:
        fresh = self.path.with_name(f".{self.path.name}.new")
        self._lock(fresh)  # so that the file is locked under its name at any time
        try:
            with fresh.open("wb") as file:
                file.write(wanted)
                file.flush()
                os.fsync(file.fileno())
            shutil.copymode(self.path, fresh)
            os.replace(fresh, self.path)
        finally:
            fresh.unlink(missing_ok=True)


class OutputStream:
    """A pipe, a terminal or a device: written once, and never read."""

    def __init__(self, write: Callable[[str], object], close: Callable[[], object] = lambda: None) -> None:
        self._write, self._close = write, close

    @staticmethod
    def of_device(path: str) -> OutputStream:
        """A device, a named pipe, or the name of what is open already."""
        descriptor = descriptor_of(path)
        place = path if descriptor is None else os.dup(descriptor)
        file = open(place, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - the stream's close closes it
        return OutputStream(file.write, file.close)

    def open(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def write(self, line: str) -> None:
        self._write(line + "\n")

    def leave(self) -> None:
        self.close()

    def close(self) -> None:
        self._close()
