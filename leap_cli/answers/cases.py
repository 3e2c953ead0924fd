"""Where ``leap eval make`` takes its cases from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from leap_core.system.features import is_there, own_parts

from ..framework.environment import Environment
from ..framework.output import Output

SESSIONS, LOG, BATCH = "sessions", "log", "batch"
FEATURES = {"review": "leap_cli.answers.reviews:cases"}
SOURCES = (SESSIONS, LOG, BATCH, *(name for name, value in FEATURES.items() if is_there(value)))


def cases_from(
    env: Environment, source: str, names: Sequence[str], limit: int | None, *, undecided: bool = False
) -> list[str]:
    """The lines of a file of cases. ``undecided``: also of reviewed documents of which not all was decided. Raises
    UsageError where nothing is there, LeapSessionError for an unknown session."""
    if source in (features := own_parts(FEATURES)):
        found = features[source](env, names, undecided)
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
    from leap_core.batch.input.small_files import read_rows
    from leap_core.evaluation.cases import cases_of_batch

    if len(names) != 2:
        raise click.UsageError("--from batch takes two files: the lines of the batch and its results")
    lines, results = (read_rows(env.cwd / Path(name))[1] for name in names)
    by_id = {
        identifier_of(row) or place.replace(" ", "-"): row if isinstance(row, dict) else {"prompt": row}
        for place, row in lines
    }
    yield from cases_of_batch(by_id, [row for _, row in results])
