"""Numbers as horizontal bars: in a terminal, and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

EIGHTHS = " ▏▎▍▌▋▊▉"
LABELS, ROW, WIDTH = 260, 24, 860
"""Of an SVG, in pixels: the room for labels, a bar's height with its gap, the whole width."""


def text_bars(rows: Sequence[tuple[str, float]], columns: int) -> list[str]:
    """A line for each label and number, the longest bar as long as ``columns`` leave room for."""
    largest = max((number for _, number in rows), default=0.0)
    width = max((len(label) for label, _ in rows), default=0)
    room = max(8, columns - width - 12)
    return [
        f"{label:<{width}}  {_bar(number / largest if largest else 0.0, room)} {number:.4g}" for label, number in rows
    ]


def _bar(part: float, room: int) -> str:
    whole, eighth = divmod(round(part * room * 8), 8)
    return "█" * whole + (EIGHTHS[eighth] if eighth else "")


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
