"""The options of evidence: where the values of an extraction are in its text, and which are doubtful."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leap_core.system.dataclass import dataclass

from ..framework.arguments import FileName
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option

if TYPE_CHECKING:
    from leap_core.tasks.evidence.evidence import Thresholds


@dataclass(frozen=True)
class Evidence:
    """Where values are in a text. ``shown``: beside each document. ``strict``: what becomes of values that are not in
    the text. ``passes``: how often a text is read. ``doubtful``: the file of values to look at, which are those
    ``below`` this probability."""

    shown: bool
    strict: str | None
    passes: int
    doubtful: str | None
    below: float | Thresholds


def _build(arguments: Arguments) -> Evidence:
    shown, strict, passes, doubtful = arguments.of("evidence", "strict", "passes", "doubtful").values()
    return Evidence(shown, strict, passes, doubtful, _read_threshold(arguments["doubtful_below"], arguments.env))


EVIDENCE = OptionGroup(
    "evidence",
    "",
    (
        option("--evidence", is_flag=True, help="Add each value's source location and confidence."),
        option(
            "--strict-evidence",
            "strict",
            type=click.Choice(["absent", "fail"]),
            is_flag=False,
            flag_value="absent",
            help="Values that are not in the text: omit them, or fail.",
        ),
        option(
            "--passes",
            type=click.IntRange(1, 10),
            default=1,
            show_default=True,
            help="Extraction passes over each text; later passes add what the first missed.",
        ),
        option(
            "--low-confidence", "doubtful", metavar="FILE", help="Write low-confidence values to this file as JSONL."
        ),
        option(
            "--confidence-threshold",
            "doubtful_below",
            type=FileName(),
            default="0.5",
            show_default=True,
            metavar="P|FILE",
            help="Mark values as low-confidence if a token is less probable than this (or than in a file of "
            "--calibrate), or if they are not in the text.",
        ),
    ),
    _build,
)


def _read_threshold(value: str, env: Environment) -> float | Thresholds:
    """A probability, or the thresholds of a file. Raises UsageError, LeapSerializationError."""
    from leap_core.tasks.evidence.evidence import read_thresholds

    try:
        number = float(value)
    except ValueError:
        return read_thresholds(env.cwd / value)
    if not 0 <= number <= 1:
        raise click.UsageError(f"--confidence-threshold {value} is not in the range from 0 to 1")
    return number
