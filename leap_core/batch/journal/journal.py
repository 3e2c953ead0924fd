"""What a batch has done so far, kept beside its output: one JSON line a result, appended as it comes, and indexed.

A result counts once its line is whole. What the end of the process, or of the machine, tore is cut off when the
journal is opened again. The file is locked while a batch runs, and the lock goes with its process. Results stay on the
disk: memory holds where each one is.
"""

from __future__ import annotations

import json
import os
import re
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from ...errors import LeapError, LeapSerializationError, LeapUnavailableError
from ...system.addresses import shown
from ...system.files import BINARY, read_at, text_of
from ...system.locks import Busy, locked
from .line_result import LineResult

KEY_BYTES = 16
MOST_COMPARED = 200_000
"""Results of a journal that are compared one by one with the lines of today."""
NOWHERE = -1

USUAL = re.compile(
    rb'\{"key":"([0-9a-f]{32})","custom_id":("(?:[^"\\]|\\.)*"),"model":"(?:[^"\\]|\\.)*","created":\d+,'
    rb'"(response|embedding|error)":\{[^\0]*\}\}?\n'
)
"""A line as journals are written, which needs no parsing to be found; the others are parsed."""


class JournalIndex:
    """The results of a journal in the order in which they were written."""

    def __init__(self) -> None:
        self._keys = bytearray()
        self._places = array("q")
        self._names = array("q")
        self._succeeded = bytearray()

    def __len__(self) -> int:
        return len(self._places)

    def add(self, key: str, place: int, custom_id: str, succeeded: bool) -> None:
        """Note a result; a later one of the same key replaces it."""
        self._keys += bytes.fromhex(key)
        self._places.append(place)
        self._names.append(hash(custom_id))
        self._succeeded.append(succeeded)

    def places_of(self, keys: bytes, *, also_failed: bool = False) -> array[int]:
        """Where the newest result of each key (16 bytes each) is, if that succeeded; -1 for the others.
        ``also_failed``: also if it did not."""
        import numpy

        count = len(keys) // KEY_BYTES
        if not len(self) or not count:
            return array("q", [NOWHERE]) * count
        kind = numpy.dtype([("high", ">u8"), ("low", ">u8")])
        rows = numpy.frombuffer(self._keys, kind)
        order = numpy.lexsort((numpy.arange(len(self)), rows["low"], rows["high"]))
        ordered = rows[order]
        high = ordered["high"].astype(numpy.uint64)
        targets = numpy.frombuffer(keys, kind)
        last = numpy.searchsorted(high, targets["high"].astype(numpy.uint64), side="right") - 1  # the newest of its key
        at = numpy.clip(last, 0, None)
        same = (ordered["high"][at] == targets["high"]) & (ordered["low"][at] == targets["low"]) & (last >= 0)
        good = same & (also_failed | (numpy.frombuffer(self._succeeded, numpy.uint8)[order][at] == 1))
        places = numpy.where(good, numpy.frombuffer(self._places, numpy.int64)[order][at], NOWHERE)
        return array("q", places.astype(numpy.int64).tobytes())

    def count_outdated(self, keys: bytes, names: Sequence[int]) -> int:
        """How many succeeded results have a name among these hashes, and none of these keys: their options, model or
        lines have changed. 0 of more than MOST_COMPARED."""
        if len(self) > MOST_COMPARED:
            return 0
        here, now = set(names), {keys[n : n + KEY_BYTES] for n in range(0, len(keys), KEY_BYTES)}
        results = (bytes(self._keys[n : n + KEY_BYTES]) for n in range(0, len(self._keys), KEY_BYTES))
        done = zip(results, self._names, self._succeeded, strict=True)
        return len({key for key, name, succeeded in done if succeeded and name in here} - now)

    def count_without(self, names: Sequence[int]) -> int:
        """How many succeeded results, one a key, have a name that is not among these hashes."""
        import numpy

        if not len(self):
            return 0
        names_here = numpy.frombuffer(self._names, numpy.int64)
        foreign = ~numpy.isin(names_here, numpy.asarray(names, numpy.int64))
        raw = numpy.frombuffer(self._keys, numpy.uint8).reshape(-1, KEY_BYTES)
        good = foreign & (numpy.frombuffer(self._succeeded, numpy.uint8) == 1)
        return len({bytes(row) for row in raw[good]})


def read_index(file: IO[bytes], offset: int, begun_field: str) -> tuple[str | None, JournalIndex, int]:
    """Read the results from ``offset`` on: who began the journal, where each is, and where the last whole line
    ends."""
    index, begun_by = JournalIndex(), None
    for line in file:
        if not line.endswith(b"\n"):
            break
        place, offset = offset, offset + len(line)
        usual = USUAL.fullmatch(line)
        if usual is not None:
            index.add(usual[1].decode(), place, json.loads(usual[2]), usual[3] != b"error")
            continue
        try:
            value: Any = json.loads(line)
            if begun_field in value:
                begun_by = value[begun_field]
                continue
            result = LineResult.from_json(value)
            index.add(result.key, place, result.custom_id, result.succeeded)
        except (ValueError, TypeError, KeyError, LeapError):
            continue  # a hole that a power failure left: this line is done again
    return begun_by, index, offset


def append_whole(descriptor: int, data: bytes) -> None:
    """Append all of ``data``. When that fails (a full disk) the file is cut back to what it was, and OSError raised."""
    before = os.fstat(descriptor).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, before)
        raise


BEGINNING = b'{"leap_batch_journal":1'
"""The first line begins so, and continues with the output that the journal is of."""
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

    def append(self, result: LineResult) -> int:
        """Keep a result; the place of its line. OSError means that it was not kept, and the journal is as before."""
        line = text_of(json.dumps(result.to_json(), ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"
        append_whole(self._file, line)
        place = self._end
        self._end += len(line)
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self.sync()
        return place

    def result_at(self, place: int) -> LineResult:
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
    """Read a journal as it is now; a process that writes to it is not disturbed. Raises LeapSerializationError, and
    OSError where it cannot be opened. Close it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        header = self._file.readline(LONGEST_HEADER)
        if not header.startswith(BEGINNING[: len(header)]):
            self._file.close()
            raise LeapSerializationError(f"{path} is not the journal of a batch")
        _, self.index, _ = read_index(self._file, len(header), BEGUN)

    def result_at(self, place: int) -> LineResult:
        """As a journal's."""
        return _result_at(self._file.fileno(), place, self.path)

    def close(self) -> None:
        self._file.close()


def _result_at(descriptor: int, place: int, path: Path) -> LineResult:
    line = b""
    while not line.endswith(b"\n"):
        piece = read_at(descriptor, READ_BYTES, place + len(line))
        end = piece.find(b"\n") + 1
        line += piece[:end] if end else piece
        if not piece:
            break
    try:
        return LineResult.from_json(json.loads(line))
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
