"""The options that take what a person decided about extracted values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import option
from ...framework.text_arguments import FileName

BESIDE = {"apply": ("schema", "format", "evidence", "target"), "fit": ("format", "target")}
"""What makes sense beside each; all else is about asking a model."""


@dataclass(frozen=True)
class Reviewed:
    """Files of reviewed documents: ``apply``'s decisions are carried out, thresholds are fitted on ``fit``'s."""

    apply: Path | None
    fit: Path | None


def _build(arguments: Arguments) -> Reviewed:
    for name, beside in BESIDE.items():
        if arguments[name] is None:
            continue
        for each, _ in arguments.typed_options():
            if each.name not in (name, *beside):
                raise click.UsageError(
                    f"{arguments.flag(name)} cannot be combined with {arguments.flag(str(each.name))}"
                )
        if arguments["files"]:
            raise click.UsageError(f"{arguments.flag(name)} takes no texts: the file of reviewed documents has them")
    cwd = arguments.env.cwd
    return Reviewed(*(None if arguments[name] is None else cwd / arguments[name] for name in ("apply", "fit")))


REVIEWED = OptionGroup(
    "reviewed",
    "Review",
    (
        option(
            "--apply",
            type=FileName(),
            metavar="FILE",
            help="Print the documents of this file of reviewed ones as they were decided, and ask no model.",
        ),
        option(
            "--fit",
            type=FileName(),
            metavar="FILE",
            help="Fit --doubtful-below on this file of reviewed documents, and print what that gains; -o writes it.",
        ),
    ),
    _build,
)
