"""Where results go: a file that is brought in line with the journal first, or a stream."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Protocol

from ...system.files import BINARY, descriptor_of, read_at, replacing
from ...system.locks import Busy, locked
from ..input import remote_files
from ..journal.journal import append_whole, being_written

PIECE = 1 << 16
Lines = Callable[[], Iterator[str]]
"""Rendered lines from the first one on; it may be called twice."""


class Sink(Protocol):
    """Takes rendered lines, in their final order."""

    def open(self, lines: Lines) -> None:
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
    """A file that holds whole lines only; opening it keeps what is right already. It is locked while it is open.

    ``while_waiting``: wait while another batch writes to it, calling this a few times a second; it may raise.
    """

    def __init__(self, path: Path, *, while_waiting: Callable[[], object] | None = None) -> None:
        self.path = path.resolve()  # a link stays one
        self._while_waiting = while_waiting
        self._descriptor: int | None = None
        self._locks = ExitStack()

    def open(self, lines: Lines) -> None:
        """Raises LeapUnavailableError when another batch writes to it."""
        self._lock(self.path)
        agreed, rest = self._agreement(lines())
        if agreed is None:
            self._replace(lines())
            rest = iter(())
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | BINARY, 0o644)
        if agreed is not None:
            os.ftruncate(self._descriptor, agreed)  # a torn last line
        for line in rest:
            self.write(line)

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

    def _agreement(self, lines: Iterator[str]) -> tuple[int | None, Iterator[str]]:
        """How many bytes of the file agree with ``lines``, None when its whole lines are not their beginning; and the
        lines that are not in it yet."""
        if not self.path.exists():
            return 0, lines
        with self.path.open("rb") as file:
            whole = _whole_lines(file.fileno())
            place = 0
            for line in lines:
                data = line.encode() + b"\n"
                if place == whole:
                    return place, _with_first(line, lines)
                if file.read(len(data)) != data:
                    return None, lines
                place += len(data)
        return (place if place == whole else None), iter(())

    def _lock(self, path: Path) -> None:
        waiting = self._while_waiting
        try:
            self._locks.enter_context(locked(path, wait=waiting is not None, while_waiting=waiting))
        except Busy:
            raise being_written(self.path) from None

    def _replace(self, lines: Iterator[str]) -> None:
        fresh = self.path.with_name(f".{self.path.name}.new")
        self._lock(fresh)  # so that the file is locked under its name at any time
        with replacing(self.path, unfinished=fresh) as file:
            for line in lines:
                file.write(line.encode() + b"\n")
            shutil.copymode(self.path, fresh)


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

    def open(self, lines: Lines) -> None:
        for line in lines():
            self.write(line)

    def write(self, line: str) -> None:
        self._write(line + "\n")

    def leave(self) -> None:
        self.close()

    def close(self) -> None:
        self._close()


def _with_first(line: str, lines: Iterator[str]) -> Iterator[str]:
    yield line
    yield from lines


def _whole_lines(descriptor: int) -> int:
    """Where the last whole line of a file ends."""
    place = os.fstat(descriptor).st_size
    while place:
        begin = max(0, place - PIECE)
        end = read_at(descriptor, place - begin, begin).rfind(b"\n") + 1
        if end:
            return begin + end
        place = begin
    return 0


class WholeFile(ABC):
    """Takes the file's name when it is closed after ``count`` lines. With a ``url`` it is sent there instead, and
    grows beside ``path`` till then."""

    def __init__(self, path: Path, count: int, url: str | None = None) -> None:
        self.path = path.resolve()
        self._url = url
        self._fresh = self.path.with_name(f".{self.path.name}.new")
        self._count, self._lines = count, 0
        self._file: IO[bytes] | None = None
        self._locks = ExitStack()

    def open(self, lines: Lines) -> None:
        """Raises LeapUnavailableError when another batch writes to it."""
        try:
            self._locks.enter_context(locked(self._fresh, wait=False))
        except Busy:
            raise being_written(self.path) from None
        self._file = self._fresh.open("wb")
        self.begin(self._file)
        for line in lines():
            self.write(line)

    def write(self, line: str) -> None:
        """Append what ``LineResult.render`` made."""
        assert self._file is not None
        self._lines += 1
        self.add(self._file, line)

    def leave(self) -> None:
        """There is nothing to write: be there, with what was in it."""
        if not (self.path.exists() if self._url is None else remote_files.exists(self._url)):
            self._count = 0
            self.open(lambda: iter(()))
            self.close()

    def close(self) -> None:
        """Take the name, or go where lines are missing."""
        with self._locks:
            file, self._file = self._file, None
            if file is None:
                return
            whole = self._lines == self._count
            with file:
                if not whole:
                    self.give_up()
                else:
                    self.finish(file)
                    file.flush()
                    os.fsync(file.fileno())
            if whole and self._url is None:
                os.replace(self._fresh, self.path)
                return
            try:
                if whole and self._url is not None:
                    with self._fresh.open("rb") as written:
                        remote_files.send(written, self._url)
            finally:
                self._fresh.unlink(missing_ok=True)

    @abstractmethod
    def begin(self, file: IO[bytes]) -> None:
        """Write what comes before the lines."""

    @abstractmethod
    def add(self, file: IO[bytes], line: str) -> None:
        """Write a line, or keep it."""

    def give_up(self) -> None:
        """Let go of what was begun: lines are missing."""
        return None

    @abstractmethod
    def finish(self, file: IO[bytes]) -> None:
        """Write what comes after the last line."""
