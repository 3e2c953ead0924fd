"""The options of the page on which a person looks over an extraction."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import option
from ...framework.text_arguments import FileName


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


def _build(arguments: Arguments) -> ReviewPage:
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
            help="Write a page on which a person accepts, corrects or rejects each value, beside its text.",
        ),
        option(
            "--review-serve",
            type=FileName(),
            metavar="FILE.jsonl",
            help="Serve that page to this machine, and keep decisions in this file; without --json-schema go on with "
            "what it holds.",
        ),
    ),
    _build,
    {"review": _APART, "review_serve": _APART},
)
