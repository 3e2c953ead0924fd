"""Batches and decisions as people see them: progress, summaries, bars."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..framework.output import Output, one_line
from ..framework.wrapping import columns as columns_of
from ..framework.wrapping import fitted_cell

if TYPE_CHECKING:
    from leap_core.batch.checking import CheckedBatch
    from leap_core.batch.run import BatchProgress

PAUSE_SECONDS = 0.1
"""The progress is drawn this often at most."""
MOST_WARNINGS = 20
"""So many invalid lines are named one by one."""


def summary(progress: BatchProgress, *, skipped: int = 0) -> str:
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


def show_nothing(_progress: BatchProgress) -> None:
    pass


class ProgressLine:
    """Shows the progress on a terminal, a few times a second. ``nodes``: how many of a cluster answer, if any."""

    def __init__(self, output: Output, nodes: Callable[[], int | None] = lambda: None) -> None:
        self._output, self._nodes = output, nodes
        self._last = 0.0

    def __call__(self, progress: BatchProgress) -> None:
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


EIGHTHS = " ▏▎▍▌▋▊▉"
LABELS, ROW, WIDTH = 260, 24, 860
"""Of an SVG, in pixels: the space for labels, a bar's height with its gap, the whole width."""


def text_bars(rows: Sequence[tuple[str, float]], columns: int) -> list[str]:
    """A line for each label and number, the longest bar as long as ``columns`` leave space for."""
    largest = max((number for _, number in rows), default=0.0)
    width = max((len(label) for label, _ in rows), default=0)
    length = max(8, columns - width - 12)
    parts = ((label, number, number / largest if largest else 0.0) for label, number in rows)
    return [f"{label:<{width}}  {bar(part, length).rstrip()} {number:.4g}" for label, number, part in parts]


def svg_bars(title: str, groups: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> str:
    """A document with the bars of each named group; each group has a scale of its own."""
    parts, y = [f'<text x="10" y="24" font-size="16" font-weight="bold">{escape(title)}</text>'], 40
    for name, rows in groups:
        y += ROW
        parts.append(f'<text x="10" y="{y}" font-weight="bold">{escape(name)}</text>')
        largest = max((number for _, number in rows), default=0.0) or 1.0
        for label, number in rows:
            y += ROW
            length = number / largest * (WIDTH - LABELS - 100)
            parts.append(f'<text x="20" y="{y}">{escape(label)}</text>')
            parts.append(f'<rect x="{LABELS}" y="{y - 13}" width="{length:.1f}" height="16" fill="#3b7dd8"/>')
            parts.append(f'<text x="{LABELS + length + 6:.1f}" y="{y}">{number:.4g}</text>')
    font = 'font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + ROW}" {font}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


BAR = 24
LONGEST = 32


def bars(answers: Mapping[str, Any]) -> str:
    """The questions with their options, each with its probability as a bar and a number."""
    return "\n".join(line for name, answer in answers.items() for line in _lines(name, answer))


def _lines(name: str, answer: Mapping[str, Any]) -> list[str]:
    shares = answer["probabilities"]
    width = min(LONGEST, max(columns_of(one_line(text)) for text in shares))
    more = [f"confidence {answer['confidence']:.2f}"]
    if "score" in answer:
        more.insert(0, f"score {answer['score']:.2f}")
    if "stable" in answer:
        more.append(f"{answer['stable']} orders agree")
    best = max(shares, key=lambda text: shares[text])
    lines = [f"{one_line(name)}: {one_line(best)} ({', '.join(more)})"]
    for text, share in shares.items():
        cell = fitted_cell(one_line(text), width)
        lines.append(f"  {cell}{' ' * (width - columns_of(cell))}  {bar(share)} {share:6.1%}")
    return lines


def bar(share: float, width: int = BAR) -> str:
    """A share of 1 as a bar of ``width`` columns."""
    whole, eighth = divmod(round(share * width * 8), 8)
    return ("█" * whole + (EIGHTHS[eighth] if eighth else "")).ljust(width)
