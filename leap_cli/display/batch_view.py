"""Batches as people see them: progress while they run, invalid lines, and the summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..framework.output import Output

if TYPE_CHECKING:
    from leap_core.batch.checking import CheckedBatch
    from leap_core.batch.definition import Progress

PAUSE_SECONDS = 0.1
"""The progress is drawn this often at most."""
MOST_WARNINGS = 20
"""So many invalid lines are named one by one."""


def summary(progress: Progress, *, skipped: int = 0) -> str:
    """``500 lines: 498 answered (200 of them before), 2 failed; 61.2 s, 4.9 lines/s, 312 tokens/s``"""
    before = f" ({progress.reused} of them before)" if progress.reused else ""
    left = progress.total - progress.finished
    parts = [f"{progress.succeeded} answered{before}", f"{progress.failed} failed"]
    parts += [f"{left} not done"] if left else []
    parts += [f"{skipped} invalid and left out"] if skipped else []
    speed = ""
    if progress.seconds:
        speed = (
            f"; {progress.seconds:.1f} s, {progress.lines_per_second:.1f} lines/s,"
            f" {progress.tokens_per_second:.0f} tokens/s"
        )
    lines = "1 line" if progress.total == 1 else f"{progress.total} lines"
    return f"{lines}: {', '.join(parts)}{speed}"


def missing_lines(missing: Mapping[int, Sequence[int]], count: int) -> Iterator[str]:
    """``part 3 of 7: lines 17, 90 and 201 have no result (--shard 3/7 answers them)``, for each part."""
    for number, lines in missing.items():
        numbers = ", ".join(map(str, lines[:MOST_WARNINGS]))
        more = f" and {len(lines) - MOST_WARNINGS} more" if len(lines) > MOST_WARNINGS else ""
        named = f"line {numbers} has" if len(lines) == 1 else f"lines {numbers}{more} have"
        yield f"part {number} of {count}: {named} no result (--shard {number}/{count} answers what is missing)"


def show_nothing(_progress: Progress) -> None:
    pass


class ProgressLine:
    """Shows the progress on a terminal, a few times a second. ``nodes``: how many of a cluster answer, if any."""

    def __init__(self, output: Output, nodes: Callable[[], int | None] = lambda: None) -> None:
        self._output, self._nodes = output, nodes
        self._last = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last < PAUSE_SECONDS:
            return
        self._last = now
        eta = progress.eta
        to_go = "" if eta is None else f", {int(eta) // 60}:{int(eta) % 60:02d} to go"
        failed = f", {progress.failed} failed" if progress.failed else ""
        nodes = self._nodes()
        where = "" if nodes is None else f"{nodes} node{'s' if nodes != 1 else ''}: "
        self._output.progress(
            f"{where}{progress.finished} of {progress.total} lines{failed}, {progress.lines_per_second:.1f} lines/s,"
            f" {progress.tokens_per_second:.0f} tokens/s{to_go}"
        )


def warn_of_problems(output: Output, checked: CheckedBatch) -> None:
    for problem in checked.problems[:MOST_WARNINGS]:
        output.warning(f"{problem}; left out")
    if checked.problem_count > MOST_WARNINGS:
        output.warning(f"{checked.problem_count - MOST_WARNINGS} more lines are invalid and left out")
