"""The options of evidence: where values are in a text, and which of them to doubt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ...framework.environment import Environment
from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import option
from ...framework.text_arguments import FileName

if TYPE_CHECKING:
    from leap_core.tasks.evidence.doubt import Thresholds


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
        option(
            "--evidence",
            is_flag=True,
            help="Say of each value where it stands in the text, and how sure the model was.",
        ),
        option(
            "--strict-evidence",
            "strict",
            type=click.Choice(["absent", "fail"]),
            is_flag=False,
            flag_value="absent",
            help="Leave out values that are not in the text, or let the text fail.",
        ),
        option(
            "--passes",
            type=click.IntRange(1, 10),
            default=1,
            show_default=True,
            metavar="N",
            help="Read each text this many times; further passes add what the first missed.",
        ),
        option("--doubtful", metavar="FILE", help="Write values to look at to this file, as JSON lines."),
        option(
            "--doubtful-below",
            type=FileName(),
            default="0.5",
            show_default=True,
            metavar="P|FILE",
            help="Doubt values of which a token had a smaller probability than this, or than --fit wrote to this file, "
            "and those that are not in the text.",
        ),
    ),
    _build,
)


def _read_threshold(value: str, env: Environment) -> float | Thresholds:
    """A probability, or the thresholds of a file. Raises UsageError, LeapSerializationError."""
    from leap_core.tasks.evidence.doubt import read_thresholds

    try:
        number = float(value)
    except ValueError:
        return read_thresholds(env.cwd / value)
    if not 0 <= number <= 1:
        raise click.UsageError(f"--doubtful-below {value} is not in the range from 0 to 1")
    return number
