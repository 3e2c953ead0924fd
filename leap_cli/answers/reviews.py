"""Extractions for a person to look over, and what is made of them without a model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.output import Output
from ..options.review import ReviewPage
from .file import check_file, is_standard, writing_to

if TYPE_CHECKING:
    from leap_core.tasks.evidence.evidence import Thresholds
    from leap_core.tasks.review.documents import ReviewedDocument


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
                f"--review-serve {self._wish.served} already exists: omit --json-schema and texts to continue with "
                "it, or choose another name"
            )

    def _check_places(self) -> None:
        for option, name in (("--review", self._wish.page), ("--review-serve", self._wish.served)):
            if name is not None:
                check_file(self._env.cwd / name, name, option)

    def add(self, name: str, text: str, schema: dict[str, Any], document: Any, found: list[dict[str, Any]]) -> None:
        """Take in an extraction of this text."""
        from leap_core.system.files import text_of
        from leap_core.tasks.review.documents import review_document

        name = text_of(name)
        named = [each | {"place": each["place"] | {"file": name}} if "place" in each else each for each in found]
        self._reviews.append(review_document(name, text, schema, document, named))

    def write(self) -> None:
        """Write the files of what has come. Raises LeapError."""
        from leap_core.tasks.review.documents import create_reviews

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
        from leap_core.tasks.review.documents import read_reviews

        assert self._wish.served is not None
        self._check_places()
        path = self._env.cwd / self._wish.served
        if self._wish.page is not None:
            self._write_page(read_reviews(path))
        self._serve(path)

    def _write_page(self, reviews: list[ReviewedDocument]) -> None:
        from leap_core.system.files import replace_text
        from leap_core.tasks.review.page import page, page_data

        if self._wish.page is not None:
            path = self._env.cwd / self._wish.page
            replace_text(path, page(page_data(reviews, self._below, path.with_suffix(".jsonl").name, self._env.cwd)))

    def _serve(self, path: Path) -> None:
        from leap_core.server.review import serve_review
        from leap_core.tasks.review.documents import open_reviews

        output = Output(self._env)
        with open_reviews(path) as file:
            serve_review(
                file,
                self._below,
                self._env.cwd,
                lambda address: output.note(f"{address} is the review; Ctrl-C ends it"),
            )
            decided, count = file.decided
        name = shlex.quote(str(self._wish.served))
        output.note(
            f"decided: {decided} of {count} values, in {name}; leap extract --apply {name} prints the documents"
        )


def apply_reviews(
    path: Path, schema: Any, format: str, *, evidence: bool, target: str | None, env: Environment
) -> ExitCode:
    """Print the documents as they were decided. ``schema``: what theirs must equal, or None."""
    from leap_core.errors import LeapSerializationError
    from leap_core.tasks.extraction import CSV, JSONL, Extract
    from leap_core.tasks.review.documents import corrected_document, read_reviews

    if format == CSV and evidence:
        raise click.UsageError("--evidence cannot be combined with --format csv beside --apply: it has no decisions")
    reviews = read_reviews(path)
    for each in reviews:
        if schema is not None and each.schema != schema:
            raise LeapSerializationError(
                f"{path.name}: {each.file} was extracted by another schema than that of --json-schema",
                hint="leave --json-schema out: each document has its own",
            )
    if format == CSV and any(each.schema != reviews[0].schema for each in reviews):
        raise click.UsageError("--format csv needs documents of one schema; jsonl and json take several")
    documents = [corrected_document(each) for each in reviews]
    with writing_to(target, env) as place:
        output = Output(place)
        if format == CSV:
            task = Extract(reviews[0].schema, CSV)
            output.text("".join(f"{line}\n" for line in (task.header, *map(task.row, documents))))
        else:
            if evidence:
                pairs = zip(reviews, documents, strict=True)
                documents = [{"document": document, "evidence": review.evidence} for review, document in pairs]
            if format == JSONL:
                for document in documents:
                    output.text(json.dumps(document, ensure_ascii=False) + "\n")
            else:
                output.document(documents[0] if len(documents) == 1 else documents)
    undecided = sum(each.undecided for each in reviews)
    if undecided:
        total = undecided + sum(each.decided for each in reviews)
        Output(env).note(f"{undecided} of {total} fields have no decision, and are as they were extracted")
    return ExitCode.DONE


def fit_reviews(path: Path, *, as_json: bool, target: str | None, env: Environment) -> ExitCode:
    """Fit thresholds of doubt, print what they gain on the documents held back, and write them to ``target``."""
    from leap_core.tasks.review.documents import read_reviews
    from leap_core.tasks.review.fitting import Figures, fit_thresholds

    fit = fit_thresholds(read_reviews(path))
    output = Output(env)
    if target is not None and not is_standard(target):
        with writing_to(target, env) as place:
            Output(place).document(fit.thresholds.to_json())
    if as_json:
        output.document(fit.to_json())
        return ExitCode.DONE

    def row(name: str, found: Figures) -> dict[str, Any]:
        return {
            "held back": name,
            "flagged": f"{found.flagged} of {found.values}",
            "precision": _part(found.precision, found.found, found.flagged),
            "recall": _part(found.recall, found.found, found.wrong),
        }

    rows = [row("below 0.5", fit.before), row("fitted", fit.after)]
    output.records(rows, list(rows[0]), name="held back")
    thresholds = {"all fields" if not fit.thresholds.fields else "other fields": fit.thresholds.common}
    rows = [{"field": name, "below": f"{each:.6g}"} for name, each in {**fit.thresholds.fields, **thresholds}.items()]
    output.text("\n")
    output.records(rows, ["field", "below"], name="field")
    output.note(
        f"fitted on {fit.documents[0]} documents with {fit.fitted.values} values, {fit.fitted.wrong} of them wrong; "
        f"measured on {fit.documents[1]} others with {fit.before.values}, {fit.before.wrong} wrong"
    )
    return ExitCode.DONE


def _part(part: float | None, count: int, of: int) -> str:
    return "none" if part is None else f"{part:.2f} ({count} of {of})"
