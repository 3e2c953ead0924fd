"""Answers to questions as people read them: a bar for each option."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..framework.output import one_line
from ..framework.wrapping import columns as columns_of
from ..framework.wrapping import fitted_cell

BAR = 24
LONGEST = 32
FULL, PARTS = "█", " ▏▎▍▌▋▊▉"


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


def bar(share: float) -> str:
    """A share of 1 as a bar of BAR columns."""
    eighths = round(share * BAR * 8)
    drawn = FULL * (eighths // 8) + (PARTS[eighths % 8] if eighths % 8 else "")
    return drawn.ljust(BAR)
