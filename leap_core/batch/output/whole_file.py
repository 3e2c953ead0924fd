"""An output that is there once it is whole: it grows under another name, and takes its own when all lines are in it; or
on this machine, and is sent to another one then."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from ...storage.locks import Busy, locked
from ..input import remote_files
from ..journal.journal import being_written
from .output_file import Lines


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
        """Append what ``Result.render`` made."""
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
