"""The options of evidence and of the page on which a person looks over an extraction."""

from __future__ import annotations

from pathlib import Path
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


@dataclass(frozen=True)
class ReviewPage:
    """``page``: the file of the page. ``served``: the file of decisions while the page is served. ``goes_on``: that
    file is there, and no model is asked."""

    page: str | None
    served: str | None
    goes_on: bool

    @property
    def wanted(self) -> bool:
        """Whether there is anything to look over."""
        return self.page is not None or self.served is not None


def _build_review_page(arguments: Arguments) -> ReviewPage:
    goes_on = arguments["review_serve"] is not None and not any(map(arguments.is_set, ("schema", "files", "images")))
    if goes_on:
        for each, _ in arguments.typed_options():
            if each.name not in BESIDE:
                raise click.UsageError(f"--review-serve without --json-schema asks no model: {each.opts[0]} has no use")
    return ReviewPage(arguments["review"], arguments["review_serve"], goes_on)


BESIDE = ("review", "review_serve", "doubtful_below")
"""What makes sense where no model is asked."""
_APART = ("background", "dry_run", "strict")

REVIEW_PAGE = OptionGroup(
    "review",
    "Review",
    (
        option(
            "--review",
            type=FileName(),
            metavar="FILE.html",
            help="Write an HTML page to accept, correct or reject each value.",
        ),
        option(
            "--review-serve",
            type=FileName(),
            metavar="FILE.jsonl",
            help="Serve the review page on this machine and save decisions to this file; without --json-schema "
            "resume that file.",
        ),
    ),
    _build_review_page,
    {"review": _APART, "review_serve": _APART},
)


REVIEWED_BESIDE = {"apply": ("schema", "format", "evidence", "target"), "fit": ("format", "target")}
"""What makes sense beside each; all else is about asking a model."""


@dataclass(frozen=True)
class Reviewed:
    """Files of reviewed documents: ``apply``'s decisions are carried out, thresholds are fitted on ``fit``'s."""

    apply: Path | None
    fit: Path | None


def _build_reviewed(arguments: Arguments) -> Reviewed:
    for name, beside in REVIEWED_BESIDE.items():
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
            help="Print the reviewed documents of this file with their decisions; no model runs.",
        ),
        option(
            "--calibrate",
            "fit",
            type=FileName(),
            help="Fit --confidence-threshold to this file of reviewed documents and print the gain; -o saves it.",
        ),
    ),
    _build_reviewed,
)
