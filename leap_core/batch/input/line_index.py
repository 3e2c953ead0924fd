"""The sound lines of a batch: where each one is and what it asks, some forty bytes a line."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import field

from ...errors import LeapError, LeapSchemaError, LeapSerializationError
from ...system.dataclass import dataclass
from .lines import Line, RequestReader
from .quick_check import LineChecker
from .rows import LONGEST_ROW, InputRows

DIGEST_BYTES = 16
MOST_PROBLEMS = 1000
"""Problems that are kept; the others are counted."""


@dataclass(frozen=True)
class LineProblem:
    """A line that cannot be used, and why."""

    number: int
    message: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.message}"


class InputChangedError(LeapSerializationError):
    """A line is no longer what was checked."""


class LineIndex:
    """Places, numbers and digests of lines, by their order. ``ids``: a hash of each line's name, of this process."""

    def __init__(self, rows: InputRows) -> None:
        self.rows = rows
        self.ids = array("q")
        self._offsets, self._lengths, self._numbers = array("Q"), array("Q"), array("Q")
        self._digests = bytearray()

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, number: int, offset: int, length: int, custom_id: str, digest: str) -> None:
        """Note a line; ``digest`` is hexadecimal."""
        self.ids.append(hash(custom_id))
        self._numbers.append(number)
        self._offsets.append(offset)
        self._lengths.append(length)
        self._digests += bytes.fromhex(digest)

    def raw(self, n: int) -> bytes:
        """The line as the input has it now."""
        return self.rows.read(self._offsets[n], self._lengths[n])

    def number(self, n: int) -> int:
        """Its number in the input, from 1."""
        return self._numbers[n]

    def digest(self, n: int) -> str:
        """What it asks and how it is called, as a name of 32 hexadecimal digits."""
        return self._digests[n * DIGEST_BYTES : (n + 1) * DIGEST_BYTES].hex()

    def whole_digest(self) -> str:
        """A name for all lines in their order."""
        return hashlib.sha256(self._digests).hexdigest()

    def without(self, dropped: Iterable[int]) -> LineIndex:
        """The same without some lines."""
        left_out = set(dropped)
        return self.only(n for n in range(len(self)) if n not in left_out)

    def only(self, places: Iterable[int]) -> LineIndex:
        """These lines alone."""
        rest = LineIndex(self.rows)
        for n in places:
            for column in ("ids", "_offsets", "_lengths", "_numbers"):
                getattr(rest, column).append(getattr(self, column)[n])
            rest._digests += self._digests[n * DIGEST_BYTES : (n + 1) * DIGEST_BYTES]
        return rest


class GivenLines(LineIndex):
    """Lines that are in memory, a block of those of a batch or the rows of a table."""

    def __init__(self) -> None:
        self._given: list[tuple[int, bytes, str]] = []  # there is no file, and so nothing of what the base class holds

    def __len__(self) -> int:
        return len(self._given)

    def give(self, number: int, raw: bytes, digest: str) -> None:
        """Note a line."""
        self._given.append((number, raw, digest))

    def raw(self, n: int) -> bytes:
        return self._given[n][1]

    def number(self, n: int) -> int:
        return self._given[n][0]

    def digest(self, n: int) -> str:
        return self._given[n][2]


def read_again(reader: RequestReader, lines: LineIndex, n: int) -> tuple[str, Line]:
    """The name and the request of a line that was checked. Raises InputChangedError."""
    number = lines.number(n)
    try:
        request = reader.read(lines.raw(n))
        custom_id = request.custom_id or f"line-{number}"
        if request.digest(custom_id) == lines.digest(n):
            return custom_id, request
    except (LeapError, UnicodeError):
        pass
    raise InputChangedError(
        f"line {number} of the input changed while the batch ran",
        hint="the results so far are kept; run the same command again to continue with the new lines",
    )


@dataclass
class CheckedLines:
    """The sound lines, what is wrong with the others (the first ``most_problems`` of ``problem_count``), the models
    that the sound ones name (None: none), and whether they ask for vectors (``embeds``: the answers that there are)."""

    index: LineIndex
    problems: list[LineProblem] = field(default_factory=list)
    problem_count: int = 0
    models: set[str | None] = field(default_factory=set)
    embeds: set[bool] = field(default_factory=set)
    most_problems: int = MOST_PROBLEMS

    def note(self, number: int, message: str) -> None:
        """Note a line that cannot be used."""
        self.problem_count += 1
        if len(self.problems) < self.most_problems:
            self.problems.append(LineProblem(number, message))


def check_lines(rows: InputRows, reader: RequestReader, most_problems: int = MOST_PROBLEMS) -> CheckedLines:
    """Read every row once. Blank lines are passed over, and counted."""
    index = LineIndex(rows)
    checked = CheckedLines(index, most_problems=most_problems)
    checker = LineChecker(reader)
    for number, offset, length, raw in rows:
        if not raw:
            checked.note(number, f"longer than {LONGEST_ROW // 1024**2} MiB")
            continue
        try:
            line = checker.check(raw, number)
        except UnicodeEncodeError:
            checked.note(number, "a text has half of a surrogate pair")
        except LeapError as error:
            checked.note(number, _in_words(error))
        else:
            index.add(number, offset, length, line.custom_id, line.digest)
            checked.models.add(line.model)
            checked.embeds.add(line.embeds)
    _refuse_doubles(checked, checker)
    return checked


def _refuse_doubles(checked: CheckedLines, checker: LineChecker) -> None:
    """Take out lines whose name an earlier line has."""
    import numpy

    index = checked.index
    hashes = numpy.frombuffer(index.ids, dtype=numpy.int64) if len(index) else numpy.zeros(0, numpy.int64)
    order = numpy.argsort(hashes, kind="stable")
    same = numpy.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    suspects = sorted({int(order[at]) for place in same for at in (place, place + 1)})
    first: dict[str, int] = {}
    doubles = []
    for n in suspects:
        name = checker.name_of(index.raw(n), index.number(n))
        if name in first:
            doubles.append(n)
            checked.note(index.number(n), f"the id {name!r} is already on line {first[name]}")
        first.setdefault(name, index.number(n))
    del hashes
    if doubles:
        checked.index = index.without(doubles)
        checked.problems.sort(key=lambda problem: problem.number)


def _in_words(error: LeapError) -> str:
    if isinstance(error, LeapSchemaError) and error.pointer:
        return f"schema{error.pointer}: {error.message}"
    return f"{error.message} ({error.hint})" if error.hint else error.message
