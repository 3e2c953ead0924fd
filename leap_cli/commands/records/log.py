"""``leap sessions log``: prompts and answers that were logged, listed, shown, found and forgotten."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...completion.value_types import ModelName
from ...display.log import listed, record_of, text_of_entry
from ...exit_codes import ExitCode
from ...framework.click_classes import format_flag, leap_group
from ...framework.environment import Environment
from ...framework.options import Duration, Since, in_bytes
from ...framework.output import Format, Output, confirm_removal, removal_flags
from ...options.loading import MODEL, ModelChoice

if TYPE_CHECKING:
    from leap_core.conversation.prompt_log import Entry, PromptLog

SHOWN = 20
"""Entries that are listed where nothing else is said."""

limit_flag = click.option(
    "--limit", type=click.IntRange(1), help=f"List at most this many entries, {SHOWN} by default."
)
model_flag = click.option(
    "-m", "--model", type=ModelName(), help="List only answers of this model, or of names with this prefix."
)
since_flag = click.option("--since", type=Since(), help="List entries of the last 2h or 7d, or since a date.")


@leap_group("log", short_help="List, find and rate logged prompts and answers.")
def log() -> None:
    """The prompt log: prompts and answers of all commands, since leap sessions log on. Off by default.

    An entry is identified by its number.
    """


@log.command("list", short_help="List logged prompts, newest first.")
@limit_flag
@model_flag
@since_flag
@click.option("--data", is_flag=True, help="Print only answers that are JSON, one per line.")
@click.option(
    "--json-schema", "--schema", metavar="SCHEMA", help="Print only JSON that matches this schema; needs --data."
)
@format_flag
def list_entries(
    env: Environment,
    /,
    limit: int | None,
    model: str | None,
    since: float | None,
    data: bool,
    json_schema: str | None,
    format: str,
) -> None:
    """List logged prompts, newest first. With --data, print the JSON answers, oldest first."""
    output = Output(env, format)
    if json_schema is not None and not data:
        raise click.UsageError("--json-schema is for --data")
    if data:
        from leap_core.conversation.prompt_log import documents, forms_of

        from ...options.constraints import read_schema_argument

        schemas = None if json_schema is None else forms_of(read_schema_argument(json_schema, env))
        with _log(env) as log:
            for document in () if log is None else documents(log, schemas, limit=limit, model=model, since=since):
                output.text(json.dumps(document, ensure_ascii=False) + "\n")
        return
    with _log(env) as log:
        entries = [] if log is None else log.entries(limit=limit or SHOWN, model=model, since=since)
        whole = 0 if log is None else log.count()
    columns = ["id", "age", "command", "model", "prompt", "answer"]
    output.records(listed(entries, output.format), columns, name="id", none=_nothing(env, whole))
    if output.format is Format.TEXT and len(entries) == (limit or SHOWN) < whole:
        output.note(f"{whole} entries in all; --limit lists more")


@log.command(short_help="Print an entry in full.")
@click.argument("id", metavar="[ENTRY]", type=click.IntRange(1), required=False)
@format_flag
def show(env: Environment, /, id: int | None, format: str) -> None:
    """Print one entry in full, by default the newest."""
    output = Output(env, format)
    entry = _entry(env, id)
    if output.format is Format.TEXT:
        output.record(record_of(entry), name="id")
        output.text(text_of_entry(entry))
    else:
        output.record(entry.to_json(), name="id")


@log.command(short_help="Run a logged prompt again and compare.")
@click.argument("id", metavar="[ENTRY]", type=click.IntRange(1), required=False)
@MODEL
@format_flag
def replay(env: Environment, /, id: int | None, model: ModelChoice, format: str) -> ExitCode:
    """Run a logged prompt again, by default the newest, and report whether the answer is the same.

    The exit code is 0 for the same answer and 1 for another one, with the first difference and its likely reason. The
    entry's model answers, or the one of -m. Entries of later turns, and those with images or audio, are refused,
    because the log does not hold all of their input.
    """
    from leap_core.conversation.prompt_log import difference, entry_of, made_by, request_of
    from leap_core.conversation.streams import last_of

    from ...options.loading import load_model

    output = Output(env, format)
    entry = _entry(env, id)
    asked = request_of(entry)
    with load_model(env, replace(model, name=model.name or entry.model)) as runner:
        again = entry_of(entry.command, runner.model_id, asked)
        again.made_by = made_by(runner)
        again.end(last_of(asked.start(runner)), 0.0)
    found = {"id": entry.id, "model": again.model, **difference(entry, again), "answer": again.answer}
    if output.format is Format.TEXT:
        output.record({key: value for key, value in found.items() if key != "answer"}, name="id")
    else:
        output.record(found, name="id")
    return ExitCode.DONE if found["same"] else ExitCode.UNEXPECTED


@log.command(short_help="Rate an answer, for training data.")
@click.argument("id", metavar="ENTRY", type=click.IntRange(1))
@click.argument("rating", type=click.Choice(["good", "bad", "none"]))
@format_flag
def rate(env: Environment, /, id: int, rating: str, format: str) -> None:
    """Rate the answer of an entry good or bad; none removes its rating.

    leap export --for-training omits bad answers, and with --rating good exports only good ones.
    """
    _entry(env, id)
    with _log(env) as log:
        assert log is not None
        log.rate(id, None if rating == "none" else rating)
    Output(env, format).record({"id": id, "rating": rating}, name="id")


@log.command(short_help="Search logged prompts and answers.")
@click.argument("text", nargs=-1, required=True)
@limit_flag
@model_flag
@since_flag
@format_flag
def search(
    env: Environment, /, text: tuple[str, ...], limit: int | None, model: str | None, since: float | None, format: str
) -> None:
    """Find entries with all words of TEXT (or their prefixes) in prompt or answer, best first.

    If no entry matches, entries that contain TEXT as a substring are listed.
    """
    output = Output(env, format)
    with _log(env) as log:
        matches = [] if log is None else log.search(" ".join(text), limit=limit or SHOWN, model=model, since=since)
    rows = listed([match.entry for match in matches], output.format)
    rows = [row | {"snippet": match.snippet} for row, match in zip(rows, matches, strict=True)]
    output.records(rows, ["id", "age", "model", "snippet"], name="id", none="no entry has these words")


@log.command(short_help="Show whether prompts are logged, and where.")
@format_flag
def status(env: Environment, /, format: str) -> None:
    """Show whether prompts are logged, in which file, and how many there are."""
    from leap_core.system.configuration import log_file, log_is_on

    output = Output(env, format)
    file = log_file(env.directories)
    with _log(env) as log:
        count = 0 if log is None else log.count()
    size = sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*")) if file.is_file() else 0
    text = output.format is Format.TEXT
    is_on = log_is_on(env.directories, env.variables)
    record: dict[str, Any] = {"state": "on" if is_on else "off", "file": str(file), "entries": count}
    output.record(record | ({"size": in_bytes(size)} if text else {"bytes": size}), name="state")


@log.command(short_help="Log prompts and answers from now on.")
def on(env: Environment, /) -> ExitCode:
    """Log prompts and answers from now on: the same as leap config set log true."""
    return _turn(env, on=True)


@log.command(short_help="Stop logging.")
def off(env: Environment, /) -> ExitCode:
    """Stop logging: the same as leap config set log false. leap sessions log clear deletes the log."""
    return _turn(env, on=False)


@log.command(short_help="Delete the log.")
@click.option("--older-than", type=Duration(), help="Delete only entries older than this, such as 30d.")
@removal_flags
def clear(env: Environment, /, older_than: float | None, yes: bool, dry_run: bool) -> None:
    """Delete the log for good: the text is wiped from the file."""
    before = None if older_than is None else time.time() - older_than
    with _log(env) as log:
        if log is None:
            Output(env).note("the log is empty")
            return
        count = log.count(before)
        entries = "1 entry" if count == 1 else f"{count} entries"
        if count and confirm_removal(env, f"{entries} of the log", yes=yes, dry_run=dry_run):
            removed = log.clear(before)
            Output(env).note(f"{removed} {'entry' if removed == 1 else 'entries'} removed")
        elif not count:
            Output(env).note("there is nothing to remove")


def _log(env: Environment) -> AbstractContextManager[PromptLog | None]:
    """The log; None where nothing was ever logged."""
    from leap_core.conversation.prompt_log import PromptLog
    from leap_core.system.configuration import log_file

    file = log_file(env.directories)
    return PromptLog(file) if file.is_file() else nullcontext()


def _entry(env: Environment, id: int | None) -> Entry:
    """The entry with this number, or the newest. Raises UsageError where there is none."""
    with _log(env) as log:
        entry = None if log is None else log.get(id)
    if entry is None:
        which = "the log is empty" if id is None else f"there is no entry {id} in the log"
        raise click.UsageError(f"{which}; leap sessions log list shows those there are")
    return entry


def _nothing(env: Environment, whole: int) -> str:
    from leap_core.system.configuration import log_is_on

    if whole:
        return "nothing that was logged is of this kind"
    if log_is_on(env.directories, env.variables):
        return "nothing was logged yet"
    return "prompts are not logged; leap sessions log on does that from now on"


def _turn(env: Environment, *, on: bool) -> ExitCode:
    from leap_core.system.configuration import log_file

    from ...config.settings import set_value

    set_value(env.directories.config_file, "log", on)
    output = Output(env)
    file = log_file(env.directories)
    output.note(f"prompts and answers are kept in {file}" if on else "prompts are not logged from now on")
    if env.variables.get("LEAP_LOG"):
        output.warning("$LEAP_LOG is set, and overrides the file")
    return ExitCode.DONE
