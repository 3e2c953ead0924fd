"""The order in which results are written: that of the lines, or that in which they come."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator
from itertools import chain

from .definition import BatchDefinition
from .input.lines import parse_line
from .input.row_formats import DELIMITERS
from .journal.journal_index import NOWHERE
from .journal.line_result import NPY, OPENAI, PLAIN, TEXT, Result, Row, table_header


class ResultWriter:
    """Puts the results of a batch into its sinks. ``places``: where the journal has each line's result, -1 nowhere.

    Results whose turn has not come stay in the journal, or in memory where there is none.
    """

    def __init__(self, batch: BatchDefinition, places: array[int]) -> None:
        self._batch, self._places = batch, places
        self._early: dict[int, Result] = {}
        self._next = 0

    def open(self) -> None:
        """Write what is known already."""
        self._batch.sink.open(self._known)
        if self._batch.failures is not None:
            self._batch.failures.open(self._problems)

    def write_known(self) -> None:
        """Write what is known in the order of the lines, and pass over the others. ``add`` is not called then."""
        self._batch.sink.open(lambda: chain(self._header(), self._each(self._line)))
        if self._batch.failures is not None:
            self._batch.failures.open(lambda: chain(self._problems(), self._each(self._failure)))

    def write_problems(self) -> None:
        """Write the file of failed lines alone, where no line can be used."""
        if self._batch.failures is not None and self._batch.problems:
            self._batch.failures.open(self._problems)

    def _problems(self) -> Iterator[str]:
        """The lines that are left out, for the file of failed lines."""
        for problem in self._batch.problems:
            line: dict[str, object] = {"custom_id": None}  # it may be what cannot be read
            if self._batch.format == OPENAI:
                line["response"] = None
            line |= {"error": {"code": "invalid_line", "message": problem.message}, "line": problem.number}
            yield json.dumps(line, ensure_ascii=False)

    def _each(self, written: Callable[[int, Result], str | None]) -> Iterator[str]:
        assert self._batch.journal is not None
        for n, place in enumerate(self._places):
            if place != NOWHERE and (line := written(n, self._batch.journal.result_at(place))) is not None:
                yield line

    def add(self, n: int, result: Result, place: int) -> None:
        """Write the result of a line, or keep it until its turn."""
        if not self._batch.ordered:
            self._write(n, result)
            return
        if place == NOWHERE:
            self._early[n] = result
        else:
            self._places[n] = place
        if n != self._next:
            return
        self._write(n, result)
        self._next += 1
        while (ready := self._ready()) is not None:
            self._write(self._next, ready)
            self._next += 1

    def _known(self) -> Iterator[str]:
        batch = self._batch
        yield from self._header()
        if batch.journal is None:
            return
        if batch.ordered:
            self._next = 0
            while (result := self._ready()) is not None:
                yield self._rendered(self._next, result)
                self._next += 1
            return
        for place, n in sorted((place, n) for n, place in enumerate(self._places) if place != NOWHERE):
            yield self._rendered(n, batch.journal.result_at(place))

    def _header(self) -> Iterator[str]:
        batch = self._batch
        if batch.format in DELIMITERS:
            yield table_header(batch.format, batch.lines.rows.columns)
        if batch.header is not None:
            yield batch.header

    def _ready(self) -> Result | None:
        """The result of the next line, if there is one yet."""
        if self._next >= len(self._places):
            return None
        place = self._places[self._next]
        if place == NOWHERE or self._batch.journal is None:
            return self._early.pop(self._next, None)
        return self._batch.journal.result_at(place)

    def _write(self, n: int, result: Result) -> None:
        self._early.pop(n, None)
        line, failure = self._line(n, result), self._failure(n, result)
        if line is not None:
            self._batch.sink.write(line)
        if failure is not None and self._batch.failures is not None:
            self._batch.failures.write(failure)

    def _line(self, n: int, result: Result) -> str | None:
        """What the output gets; None where that is nothing."""
        batch = self._batch
        if result.succeeded or batch.format == NPY:
            return self._rendered(n, result)
        in_output = batch.failures is None and batch.format != TEXT  # there is no text that could say so
        return self._rendered(n, result) if in_output else None

    def _failure(self, n: int, result: Result) -> str | None:
        """What the file of failed lines gets; None where that is nothing."""
        batch = self._batch
        if result.succeeded or batch.failures is None:
            return None
        line = json.loads(result.render(OPENAI if batch.format == OPENAI else PLAIN, self._row(n)))
        return json.dumps({**line, "line": batch.lines.number(n)}, ensure_ascii=False)

    def _rendered(self, n: int, result: Result) -> str:
        return result.render(self._batch.format, self._row(n))

    def _row(self, n: int) -> Row:
        """What is carried over from a line."""
        batch = self._batch
        if not batch.reader.keep_fields:
            return Row()
        fields = batch.reader.own_fields(parse_line(batch.lines.raw(n)))
        return Row(fields, batch.lines.rows.columns)
