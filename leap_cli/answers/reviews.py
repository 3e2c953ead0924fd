"""Extractions for a person to look over, and what is made of them without a model."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from ..exit_codes import ExitCode
from ..framework.arguments import FileName
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Output
from ..options.evidence import Evidence
from ..options.tasks import TaskSettings
from .file import check_file, is_standard, writing_to

if TYPE_CHECKING:
    from leap_core.tasks.evidence.evidence import Thresholds
    from leap_core.tasks.review.documents import ReviewedDocument


@dataclass(frozen=True)
class Review:
    """Files of reviewed documents: ``apply``'s decisions are carried out, thresholds are fitted on ``fit``'s. ``page``:
    the file of the page. ``served``: the file of decisions while the page is served. ``goes_on``: that file is there,
    and no model is asked."""

    apply: Path | None
    fit: Path | None
    page: str | None
    served: str | None
    goes_on: bool

    @property
    def files(self) -> dict[str, Path | str | None]:
        """What is read and written, by option."""
        return {"--apply": self.apply, "--calibrate": self.fit, "--review": self.page, "--review-serve": self.served}

    def without_model(
        self, schema: Any, format: str, evidence: Evidence, settings: TaskSettings, env: Environment
    ) -> ExitCode | None:
        """What needs no model, if that is asked for. Raises UsageError, LeapError."""
        if self.fit is not None:
            if format == "csv":
                raise click.UsageError("--calibrate prints text, or one JSON document with --format json")
            return fit_reviews(self.fit, as_json=format == "json", target=settings.target, env=env)
        if self.apply is not None:
            return apply_reviews(self.apply, schema, format, evidence=evidence.shown, target=settings.target, env=env)
        if not self.goes_on:
            return None
        Reviewing(self, evidence.below, env).go_on()
        return ExitCode.DONE

    def of_extraction(self, format: str, below: float | Thresholds, env: Environment) -> Reviewing | None:
        """What an extraction is shown by, if it is to be looked over. Raises UsageError."""
        if self.page is None and self.served is None:
            return None
        if format == "csv":
            raise click.UsageError(
                "a review cannot be combined with --format csv; leap extract --apply prints it as one"
            )
        reviewing = Reviewing(self, below, env)
        reviewing.check()
        return reviewing


class Reviewing:
    """What is to be looked over, as far as it has come. ``below``: what makes a value doubtful."""

    def __init__(self, wish: Review, below: float | Thresholds, env: Environment) -> None:
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
        for flag, name in (("--review", self._wish.page), ("--review-serve", self._wish.served)):
            if name is not None:
                check_file(self._env.cwd / name, name, flag)

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


def cases(env: Environment, names: Sequence[str], undecided: bool) -> Iterator[dict[str, Any]]:
    """Cases of these files for ``leap eval make``. Raises UsageError where there are none."""
    from leap_core.tasks.review.documents import read_reviews, reviews_as_cases

    if not names:
        raise click.UsageError("--from review takes files of reviewed documents")
    reviews = [each for name in names for each in read_reviews(env.cwd / name)]
    left = 0 if undecided else sum(bool(each.undecided) for each in reviews)
    if left == len(reviews):
        raise click.UsageError(f"in none of {left} documents all fields are decided: {UNDECIDED}")
    if left:
        Output(env).note(f"left out {left} of {len(reviews)} documents, in which fields have no decision; {UNDECIDED}")
    yield from reviews_as_cases(reviews, undecided=undecided)


UNDECIDED = "--undecided takes them as they were extracted"


def _build(arguments: Arguments) -> Review:
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
    goes_on = arguments["review_serve"] is not None and not any(map(arguments.is_set, ("schema", "files", "images")))
    if goes_on:
        for each, _ in arguments.typed_options():
            if each.name not in BESIDE:
                raise click.UsageError(f"--review-serve without --json-schema asks no model: {each.opts[0]} has no use")
    cwd = arguments.env.cwd
    apply, fit = (None if arguments[name] is None else cwd / arguments[name] for name in ("apply", "fit"))
    return Review(apply, fit, arguments["review"], arguments["review_serve"], goes_on)


REVIEWED_BESIDE = {"apply": ("schema", "format", "evidence", "target"), "fit": ("format", "target")}
"""What makes sense beside each; all else is about asking a model."""
BESIDE = ("review", "review_serve", "doubtful_below")
"""What makes sense where no model is asked."""
_APART = ("background", "dry_run", "strict")

REVIEW = OptionGroup(
    "review",
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
    _build,
    {"review": _APART, "review_serve": _APART},
)
