"""What ``leap extract`` makes of reviewed documents without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.output import Output
from .file import is_standard, writing_to


def apply_reviews(
    path: Path, schema: Any, format: str, *, evidence: bool, target: str | None, env: Environment
) -> ExitCode:
    """Print the documents as they were decided. ``schema``: what theirs must equal, or None."""
    from leap_core.errors import LeapSerializationError
    from leap_core.tasks.extraction import CSV, JSONL, Extract
    from leap_core.tasks.review.corrections import corrected_document
    from leap_core.tasks.review.review_lines import read_reviews

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
    from leap_core.tasks.review.fitting import Figures, fit_thresholds
    from leap_core.tasks.review.review_lines import read_reviews

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
