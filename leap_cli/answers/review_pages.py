"""Extractions for a person to look over: a page in a file, or served to this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..framework.environment import Environment
from ..framework.output import Output
from ..options.tasks.review_page import ReviewPage
from .file import check_file

if TYPE_CHECKING:
    from leap_core.tasks.evidence.doubt import Thresholds
    from leap_core.tasks.review.review_lines import ReviewedDocument


class Reviewing:
    """What is to be looked over, as far as it has come. ``below``: what makes a value doubtful."""

    def __init__(self, wish: ReviewPage, below: float | Thresholds, env: Environment) -> None:
        self._wish, self._below, self._env = wish, below, env
        self._reviews: list[ReviewedDocument] = []

    def check(self) -> None:
        """Raises UsageError where the files cannot be, or would take the place of decisions."""
        self._check_places()
        if self._wish.served is not None and (self._env.cwd / self._wish.served).exists():
            raise click.UsageError(
                f"--review-serve {self._wish.served} is there already: leave out --json-schema and texts to go on with "
                "it, or choose another name"
            )

    def _check_places(self) -> None:
        for option, name in (("--review", self._wish.page), ("--review-serve", self._wish.served)):
            if name is not None:
                check_file(self._env.cwd / name, name, option)

    def add(self, name: str, text: str, schema: dict[str, Any], document: Any, found: list[dict[str, Any]]) -> None:
        """Take in an extraction of this text."""
        from leap_core.storage.atomic_files import text_of
        from leap_core.tasks.review.review_lines import review_document

        name = text_of(name)
        named = [each | {"place": each["place"] | {"file": name}} if "place" in each else each for each in found]
        self._reviews.append(review_document(name, text, schema, document, named))

    def write(self) -> None:
        """Write the files of what has come. Raises LeapError."""
        from leap_core.tasks.review.review_file import create_reviews

        if self._reviews and self._wish.served is not None:
            create_reviews(self._env.cwd / self._wish.served, self._reviews)
        if self._reviews:
            self._write_page(self._reviews)

    def serve(self) -> None:
        """Serve the page until Ctrl-C, where that is wanted and there is anything to see. Raises LeapError."""
        if self._wish.served is not None and self._reviews:
            self._serve(self._env.cwd / self._wish.served)

    def go_on(self) -> None:
        """The page of a file of decisions, written and served. Raises LeapError."""
        from leap_core.tasks.review.review_lines import read_reviews

        assert self._wish.served is not None
        self._check_places()
        path = self._env.cwd / self._wish.served
        if self._wish.page is not None:
            self._write_page(read_reviews(path))
        self._serve(path)

    def _write_page(self, reviews: list[ReviewedDocument]) -> None:
        from leap_core.storage.atomic_files import replace_text
        from leap_core.tasks.review.review_page import page, page_data

        if self._wish.page is not None:
            path = self._env.cwd / self._wish.page
            replace_text(path, page(page_data(reviews, self._below, path.with_suffix(".jsonl").name)))

    def _serve(self, path: Path) -> None:
        from leap_core.host.server.process.review_server import serve_review
        from leap_core.tasks.review.review_file import open_reviews

        output = Output(self._env)
        with open_reviews(path) as file:
            serve_review(file, self._below, lambda address: output.note(f"{address} is the review; Ctrl-C ends it"))
            decided, count = file.decided
        name = shlex.quote(str(self._wish.served))
        output.note(
            f"decided: {decided} of {count} values, in {name}; leap extract --apply {name} prints the documents"
        )
