"""Where ``leap eval make`` takes its cases from, and temperatures fitted to cases."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from leap_core.errors import LeapError

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.output import Format, Output
from ..input.files import read_text_file
from ..options.loading import load_model, note_builtin
from ..options.tasks import TaskSettings

SESSIONS, LOG, BATCH, REVIEW = "sessions", "log", "batch", "review"
UNDECIDED = "--undecided takes them as they were extracted"


def cases_from(
    env: Environment, source: str, names: Sequence[str], limit: int | None, *, undecided: bool = False
) -> list[str]:
    """The lines of a file of cases. ``undecided``: also of reviewed documents of which not all was decided. Raises
    UsageError where nothing is there, LeapSessionError for an unknown session."""
    if source == REVIEW:
        found = _of_reviews(env, names, undecided)
    elif undecided:
        raise click.UsageError("--undecided goes with --from review")
    else:
        found = {SESSIONS: _of_sessions, LOG: _of_log, BATCH: _of_batch}[source](env, names)
    lines = [json.dumps(case, ensure_ascii=False) for case in islice(found, limit)]
    if not lines:
        raise click.UsageError(f"there is nothing in {source} that makes a case")
    return lines


def _of_sessions(env: Environment, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    from leap_core.conversation.sessions import SessionStore
    from leap_core.evaluation.cases import cases_of_conversation

    with SessionStore(env.directories.sessions_file) as store:
        for session in [store.find(name) for name in names] or store.list():
            marks = store.marks(session.id)
            _note_bad(env, [mark.rating for mark in marks])
            yield from cases_of_conversation(session.label, store.history(session.id), marks)


def _of_log(env: Environment, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    from leap_core.conversation.prompt_log import PromptLog
    from leap_core.evaluation.cases import case_of_entry
    from leap_core.system.configuration import log_file

    path = log_file(env.directories)
    if not path.exists():
        raise click.UsageError("nothing was logged: leap sessions log on begins a log")
    with PromptLog(path) as log:
        entries = [match.entry for match in log.search(" ".join(names))] if names else log.entries()
    _note_bad(env, [entry.rating for entry in entries])
    yield from filter(None, map(case_of_entry, entries))


def _note_bad(env: Environment, ratings: Sequence[str | None]) -> None:
    bad = ratings.count("bad")
    if bad:
        Output(env).note(f"left out {'1 answer that is' if bad == 1 else f'{bad} answers that are'} rated bad")


def _of_batch(env: Environment, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    from leap_core.batch.input.lines import identifier_of
    from leap_core.evaluation.cases import cases_of_batch
    from leap_core.evaluation.rows import read_rows

    if len(names) != 2:
        raise click.UsageError("--from batch takes two files: the lines of the batch and its results")
    lines, results = (read_rows(env.cwd / Path(name))[1] for name in names)
    by_id = {
        identifier_of(row) or place.replace(" ", "-"): row if isinstance(row, dict) else {"prompt": row}
        for place, row in lines
    }
    yield from cases_of_batch(by_id, [row for _, row in results])


def _of_reviews(env: Environment, names: Sequence[str], undecided: bool) -> Iterator[dict[str, Any]]:
    from leap_core.evaluation.cases import cases_of_reviews
    from leap_core.tasks.review.documents import read_reviews

    if not names:
        raise click.UsageError("--from review takes files of reviewed documents")
    reviews = [each for name in names for each in read_reviews(env.cwd / name)]
    left = 0 if undecided else sum(bool(each.undecided) for each in reviews)
    if left == len(reviews):
        raise click.UsageError(f"in none of {left} documents all fields are decided: {UNDECIDED}")
    if left:
        Output(env).note(f"left out {left} of {len(reviews)} documents, in which fields have no decision; {UNDECIDED}")
    yield from cases_of_reviews(reviews, undecided=undecided)


def fit_temperatures(
    fields: dict[str, Any], name: str, format: str, settings: TaskSettings, env: Environment
) -> ExitCode:
    """Fit, keep, and say how good the answers to cases held back are, before and after."""
    from leap_core.system.directories import Directories
    from leap_core.tasks.decisions.calibration import fit, keep
    from leap_core.tasks.decisions.deciding import cases_of
    from leap_core.tasks.task_fields import read_case

    output = Output(env, Format.JSON if format in ("json", "jsonl") else Format.TEXT)
    lines = [line for line in read_text_file(name, env).split("\n") if line.strip()]
    read = []
    for n, line in enumerate(lines, 1):
        try:
            read.append(read_case(fields, json.loads(line)))
        except (LeapError, ValueError) as error:
            reason = error.message if isinstance(error, LeapError) else f"not JSON: {error}"
            raise click.UsageError(f"--calibrate {name}, line {n}: {reason}") from None
    with load_model(env, settings.model) as runner:
        note_builtin(env, settings.model.name, output)
        cases = []
        for n, case in enumerate(read, 1):
            output.progress(f"case {n} of {len(read)}")
            decision, asked = case.put_to(runner)
            cases += cases_of(runner, decision, case.right, asked)
            way = case.way_of(runner)
        if not cases:
            raise click.UsageError(f"--calibrate {name} has no cases")
        found = fit(cases)
        fingerprint = runner.decision_model.fingerprint
        if not fingerprint:
            raise click.UsageError("--calibrate needs a local model file, to fingerprint its weights")
        path = keep(found, runner.model_id, fingerprint, way, Directories.from_environment(env.variables))
        record = {
            "model": runner.model_id,
            "readout": way,
            "temperatures": dict(found.temperatures),
            "fitted_cases": found.fitted_cases,
            "held_back_cases": found.after.cases,
            "accuracy": round(found.after.accuracy, 4),
            "ece_before": round(found.before.ece, 4),
            "ece_after": round(found.after.ece, 4),
            "log_loss_before": round(found.before.log_loss, 4),
            "log_loss_after": round(found.after.log_loss, 4),
            "file": str(path),
        }
    if output.format is Format.JSON:
        output.document(record)
    else:
        shown = {**record, "temperatures": ", ".join(f"{key} {value:.3g}" for key, value in found.temperatures.items())}
        output.record(shown, name="model")
    return ExitCode.DONE
