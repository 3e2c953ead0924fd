"""The parts of a batch, each answered for itself, put together in the order of the input."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from .definition import BatchDefinition, Progress
from .journal.journal import Journal, JournalView
from .journal.journal_index import NOWHERE
from .part import Part
from .result_writer import ResultWriter


@dataclass(frozen=True)
class Merged:
    """How many lines have which result. ``missing``: the numbers of the lines that have none, by their part."""

    progress: Progress
    missing: dict[int, list[int]]


def merge(batch: BatchDefinition, journals: Sequence[Path]) -> Merged:
    """Write the output of a batch whose parts have these journals. A part that never began has none, and one that is
    still at work goes on. The results go into the batch's own journal: merging again, or running the batch, goes on
    from there."""
    if not len(batch.lines):
        batch.sink.leave()
        return Merged(Progress(0), {})
    journal = batch.journal
    assert journal is not None, "only a file can be merged into"
    if batch.overwrite:
        journal.begin()
    lines_of_parts: list[list[int]] = [[] for _ in journals]
    for n in range(len(batch.lines)):
        lines_of_parts[Part.of_line(batch.lines.digest(n), len(journals)) - 1].append(n)
    places = array("q", [NOWHERE]) * len(batch.lines)
    succeeded = 0
    for lines, path in zip(lines_of_parts, journals, strict=True):
        succeeded += _take_over(batch, journal, path, lines, places)
    journal.sync()
    with ExitStack() as resources:
        for sink in filter(None, (batch.sink, batch.failures)):
            resources.callback(sink.close)
        ResultWriter(batch, places).write_known()
    missing = {
        number: numbers
        for number, lines in enumerate(lines_of_parts, start=1)
        if (numbers := [batch.lines.number(n) for n in lines if places[n] == NOWHERE])
    }
    failed = len(places) - places.count(NOWHERE) - succeeded
    return Merged(Progress(len(places), succeeded=succeeded, failed=failed), missing)


def _take_over(batch: BatchDefinition, journal: Journal, path: Path, lines: list[int], places: array[int]) -> int:
    """Note where the results of these lines are, once those of the part's journal are in the batch's own; how many
    of them succeeded."""
    keys = b"".join(bytes.fromhex(batch.key(n)) for n in lines)
    here, here_any = journal.index.places_of(keys), journal.index.places_of(keys, also_failed=True)
    with ExitStack() as resources:
        there = there_any = array("q", [NOWHERE]) * len(lines)
        if path.exists():
            part = resources.enter_context(closing(JournalView(path)))
            there, there_any = part.index.places_of(keys), part.index.places_of(keys, also_failed=True)
        succeeded = 0
        for at, n in enumerate(lines):
            succeeded += here[at] != NOWHERE or there[at] != NOWHERE
            if here[at] != NOWHERE:
                places[n] = here[at]
            elif there[at] != NOWHERE or (here_any[at] == NOWHERE and there_any[at] != NOWHERE):
                places[n] = journal.append(part.result_at(there_any[at] if there[at] == NOWHERE else there[at]))
            else:
                places[n] = here_any[at]
    return succeeded
