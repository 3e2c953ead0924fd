"""What a batch has done so far, kept beside its output: one JSON line a result, appended as the results come.

A result counts once its line is whole. What the end of the process, or of the machine, tore is cut off when the
journal is opened again. The file is locked while a batch runs, and the lock goes with its process. Results stay on the
disk: memory holds where each one is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from ...addresses import shown
from ...errors import LeapError, LeapSerializationError, LeapUnavailableError
from ...storage.atomic_files import text_of
from ...storage.locks import Busy, locked
from ...storage.positioned import BINARY, read_at
from .appending import append_whole
from .journal_index import JournalIndex, read_index
from .line_result import Result

BEGINNING = b'{"leap_batch_journal":1'
"""The first line begins so, and goes on with the output that the journal is of; in older journals it ends here."""
LONGEST_HEADER = 1 << 16
OUTPUT = "output"
STREAM = "-"
BEGUN = "begun_by"
"""The field of a line that names the run which began the journal anew."""
SYNC_SECONDS = 1.0
"""Most work, in seconds, that the loss of power can undo."""
READ_BYTES = 1 << 14


def journal_path(output: Path) -> Path:
    """Where the journal of this output is: one for a file and all links to it."""
    output = output.resolve()
    return output.with_name(output.name + ".journal")


def is_journal_of(path: Path, output: Path | str) -> bool | None:
    """Whether the journal at ``path`` is that of this output, a file or a URL; None when no journal is there. One
    beside its output counts as that, whatever both were called before. Raises LeapSerializationError when the file
    cannot be read."""
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST_HEADER)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LeapSerializationError(f"cannot read {path}: {error.strerror}") from None
    if not line.startswith(BEGINNING) or not line.endswith(b"\n"):
        return None
    if isinstance(output, Path) and path == journal_path(output):
        return True
    named = _output_in(line)
    if named is not None and isinstance(output, str):
        named = shown(named)  # older journals have the whole URL
    return named in (None, _seen_from(path, output))


def being_written(output: Path) -> LeapUnavailableError:
    """The error of a batch whose output another one is writing."""
    return LeapUnavailableError(f"another batch is writing to {output}", hint="wait for it, or give another output")


class Journal:
    """The open journal of one batch; ``output`` is the file of its results, or its URL, None a stream.

    ``while_waiting``: wait while another process has it, calling this a few times a second; it may raise. Raises
    LeapUnavailableError when another process has the journal and there is no waiting, LeapSerializationError when the
    file is something else.
    """

    def __init__(
        self, path: Path, output: Path | str | None = None, *, while_waiting: Callable[[], object] | None = None
    ) -> None:
        self.path = path
        name = STREAM if output is None else _seen_from(path, output)
        self._header = BEGINNING + b"," + json.dumps({OUTPUT: name}).encode()[1:] + b"\n"
        self._created = False
        self._resources = ExitStack()
        try:
            with suppress(FileExistsError, FileNotFoundError):  # others must not read prompts and answers
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
                self._created = True
            self._resources.enter_context(locked(path, wait=while_waiting is not None, while_waiting=while_waiting))
        except Busy:
            if isinstance(output, Path) and path == journal_path(output):
                raise being_written(output) from None
            raise LeapUnavailableError(
                f"another batch uses the journal {path}", hint="wait for it, or give another journal"
            ) from None
        try:
            self._begun_by, self.index = self._read()
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | BINARY)
            self._resources.callback(os.close, self._file)
            self._end = os.fstat(self._file).st_size
        except BaseException:
            self._resources.close()
            raise
        self._synced = time.monotonic()

    def append(self, result: Result) -> int:
        """Keep a result; the place of its line. OSError means that it was not kept, and the journal is as before."""
        line = text_of(json.dumps(result.to_json(), ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"
        append_whole(self._file, line)
        place = self._end
        self._end += len(line)
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self.sync()
        return place

    def result_at(self, place: int) -> Result:
        """The result whose line begins there. Raises LeapSerializationError when it cannot be read any more."""
        return _result_at(self._file, place, self.path)

    def sync(self) -> None:
        """Bring what was appended to the disk."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def begin(self, run_id: str | None = None) -> None:
        """Start over: nothing is known any more but who has begun."""
        os.ftruncate(self._file, 0)
        append_whole(self._file, self._header)
        self.index, self._begun_by = JournalIndex(), run_id
        if run_id is not None:
            append_whole(self._file, json.dumps({BEGUN: run_id}).encode() + b"\n")
        self._end = os.fstat(self._file).st_size

    def was_begun_by(self, run_id: str | None) -> bool:
        """Whether this run, and not another one before, has begun the journal anew."""
        return run_id is not None and self._begun_by == run_id

    def close(self) -> None:
        """Free the journal; one that was made for this and in which nothing was ever kept is removed."""
        if self._created and os.fstat(self._file).st_size <= len(self._header):
            self.path.unlink(missing_ok=True)
        self._resources.close()

    def _read(self) -> tuple[str | None, JournalIndex]:
        """Who began the journal, and where its results lie; the file is repaired."""
        with self.path.open("rb") as file:
            header = file.readline(LONGEST_HEADER)
            if not header.startswith(BEGINNING[: len(header)]):
                raise LeapSerializationError(
                    f"{self.path} is not the journal of a batch", hint="move it away, or give another output"
                )
            if not header.endswith(b"\n"):
                self.path.write_bytes(self._header)
                return None, JournalIndex()
            begun_by, index, whole = read_index(file, len(header), BEGUN)
        if whole < self.path.stat().st_size:
            os.truncate(self.path, whole)
        return begun_by, index


class JournalView:
    """A journal as it is now, only read: whoever writes to it goes on. Raises LeapSerializationError, and OSError where
    it cannot be opened. Close it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        header = self._file.readline(LONGEST_HEADER)
        if not header.startswith(BEGINNING[: len(header)]):
            self._file.close()
            raise LeapSerializationError(f"{path} is not the journal of a batch")
        _, self.index, _ = read_index(self._file, len(header), BEGUN)

    def result_at(self, place: int) -> Result:
        """As a journal's."""
        return _result_at(self._file.fileno(), place, self.path)

    def close(self) -> None:
        self._file.close()


def _result_at(descriptor: int, place: int, path: Path) -> Result:
    line = b""
    while not line.endswith(b"\n"):
        piece = read_at(descriptor, READ_BYTES, place + len(line))
        end = piece.find(b"\n") + 1
        line += piece[:end] if end else piece
        if not piece:
            break
    try:
        return Result.from_json(json.loads(line))
    except (ValueError, TypeError, KeyError, LeapError):
        raise LeapSerializationError(
            f"{path} is damaged at byte {place}", hint="--replace answers all lines anew"
        ) from None


def _output_in(header: bytes) -> str | None:
    with suppress(ValueError):
        value = json.loads(header)
        return str(value[OUTPUT]) if OUTPUT in value else None
    return None


def _seen_from(journal: Path, output: Path | str) -> str:
    """The output's path, which stays true when both move together, or its URL
    without secrets."""
    if isinstance(output, str):
        return shown(output)
    output, directory = output.resolve(), journal.resolve().parent
    return os.path.relpath(output, directory) if output.anchor == directory.anchor else str(output)
