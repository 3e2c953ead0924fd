"""``leap index``: make one's own files searchable."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import LeapGroup, leap_group
from ...framework.environment import Environment
from ...framework.error_boundary import exit_code_of, outcome_of
from ...framework.interrupts import cancelling_on_interrupt
from ...framework.options import option
from ...framework.output import Format, Output
from ...framework.output_format import format_option
from ...options.embedding_options import BUILTIN_EMBED, EMBEDDER, EMBEDDER_OF_INDEX, full_reference, open_embedder
from ...options.loading import ModelChoice

if TYPE_CHECKING:
    from leap_core.search.index_file import IndexSettings
    from leap_core.search.indexes import Indexes
    from leap_core.search.updating import Update

MAKE = "make"
VERBS = {
    "add",
    "build",
    "create",
    "new",
    "search",
    "ask",
    "query",
    "find",
    "help",
    "open",
    "refresh",
    "rebuild",
    "clear",
}
"""Words that are meant as commands of other programs; `leap index make` takes them as names all the same."""
FORMAT = format_option("names")


class _IndexGroup(LeapGroup):
    """``leap index NAME PATH`` is ``leap index make NAME PATH``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = next((arg for arg in args if not arg.startswith("-")), None)
        helps = {"-h", "--help"} & set(args[:1])
        if first is not None and not helps and first not in self.commands and not ctx.resilient_parsing:
            if first in VERBS:
                raise click.UsageError(f"{first!r} is no command here: leap index NAME PATH... makes an index", ctx)
            args = [MAKE, *args]
        return super().parse_args(ctx, args)


@leap_group("index", cls=_IndexGroup)
def command() -> None:
    """Make files searchable under a name, for `leap search` and `leap ask`: leap index NAME PATH...

    Text, Markdown, code, HTML and (with the extra pdf) PDF files are cut into passages. Words and vectors of each
    passage go into one file in the data directory.
    """


@command.command(MAKE, short_help="Make an index, or bring it up to date with other paths.")
@click.argument("name")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@EMBEDDER
@click.option("--words-only", is_flag=True, help="Keep no vectors, so that searching finds words alone.")
@option(
    "--files",
    "include",
    formerly=("--include",),
    multiple=True,
    metavar="PATTERN",
    help="Read only files whose path fits, such as '*.md'.",
)
@click.option(
    "--chunk-tokens", type=int, default=256, show_default=True, help="Cut passages of at most this many tokens."
)
@click.option(
    "--overlap", type=int, default=32, show_default=True, help="Let neighbouring passages share this many tokens."
)
@click.pass_obj
def make(
    env: Environment,
    /,
    name: str,
    paths: tuple[str, ...],
    embedder: ModelChoice,
    words_only: bool,
    include: tuple[str, ...],
    chunk_tokens: int,
    overlap: int,
) -> ExitCode:
    """Index the files PATH (and those below directories) under NAME.

    Done again, only what has changed is read and embedded again; an index that was interrupted, even by a power
    failure, goes on where it stopped.
    """
    from leap_core.search.index_file import IndexSettings

    if words_only and embedder.name is not None:
        raise click.UsageError("--words-only goes without --model")
    indexes = _indexes(env)
    indexes.path_of(name)
    reference = None if words_only else _embedding_model(env, embedder.name)
    settings = IndexSettings(
        paths=tuple(os.path.abspath(env.cwd / os.path.expanduser(path)) for path in paths),
        patterns=include,
        model=reference,
        tokens=chunk_tokens,
        overlap=overlap,
    )
    _update(env, indexes, name, settings, embedder)
    return ExitCode.DONE


@command.command("update", short_help="Bring indexes up to date with their files.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@EMBEDDER_OF_INDEX
@click.pass_obj
def update(env: Environment, /, names: tuple[str, ...], embedder: ModelChoice) -> ExitCode:
    """Read again what has changed in the files of indexes; all of them without a NAME.

    One that cannot be brought up to date does not keep the others from it; the exit code tells of the first such one.
    """
    from leap_core.errors import LeapError

    indexes = _indexes(env)
    code = ExitCode.DONE
    for name in names or indexes.names():
        outcome = outcome_of(partial(_update_named, env, indexes, name, embedder))
        if isinstance(outcome, LeapError):
            Output(env).error(f"{name}: {outcome.message}", outcome.hint)
            code = code or exit_code_of(outcome)
    return code


def _update_named(env: Environment, indexes: Indexes, name: str, embedder: ModelChoice) -> None:
    with indexes.open(name) as index:
        settings = index.settings
    if settings is not None:
        _update(env, indexes, name, settings, embedder)


@command.command("list", short_help="List the indexes.")
@FORMAT
@click.pass_obj
def list_indexes(env: Environment, /, format: str) -> None:
    """List the indexes with what is in them."""
    indexes = _indexes(env)
    output = Output(env, format)
    records = [_record(indexes, name) for name in indexes.names()]
    output.records(records, ["name", "files", "chunks", "without_vector", "model", "paths"], name="name")
    if not records and output.format is Format.TEXT:
        output.note("there is no index; `leap index NAME PATH` makes one")


@command.command("info", short_help="Show what an index holds and how it was made.")
@click.argument("name")
@FORMAT
@click.pass_obj
def info(env: Environment, /, name: str, format: str) -> None:
    """Show what the index NAME holds and how it was made."""
    Output(env, format).record(_record(_indexes(env), name), name="name")


@command.command("remove", short_help="Remove indexes; the files themselves stay.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.pass_obj
def remove(env: Environment, /, names: tuple[str, ...]) -> None:
    """Remove indexes. The files that they were made of stay."""
    output = Output(env)
    for name in names:
        _indexes(env).remove(name)
        output.text(f"{name}\n")


def _embedding_model(env: Environment, model: str | None) -> str | None:
    """The reference to note in the index; None where none was named and the built-in one is not there."""
    from leap_core.models.references.resolving import find_local

    if model is not None:
        return full_reference(env, model)
    if find_local(BUILTIN_EMBED, variables=env.variables, cwd=env.cwd) is not None:
        return BUILTIN_EMBED
    Output(env).note("there is no built-in embedding model, so only words are indexed; -m names one")
    return None


def _indexes(env: Environment) -> Indexes:
    from leap_core.search.indexes import Indexes

    return Indexes.of(env.directories)


def _record(indexes: Indexes, name: str) -> dict[str, Any]:
    with indexes.open(name) as index:
        settings, counts = index.settings, index.counts()
    described: dict[str, Any] = {} if settings is None else vars(settings)
    return {"name": name, **counts, **described, "path": str(indexes.path_of(name))}


def _update(env: Environment, indexes: Indexes, name: str, settings: IndexSettings, embedder: ModelChoice) -> Update:
    from leap_core.search.updating import update_index

    output = Output(env)
    with ExitStack() as stack:
        runner = None
        if settings.model is not None:
            runner = stack.enter_context(open_embedder(env, settings.model, embedder))
        stop = stack.enter_context(cancelling_on_interrupt())
        update = update_index(
            indexes.path_of(name),
            settings,
            runner,
            on_progress=lambda step, done, count: output.progress(f"{name}: {step}, {done} of {count}"),
            stop=stop,
        )
    for path, reason in list(update.skipped.items())[:20]:
        output.warning(f"{path} is left out: {reason}")
    counts = f"{update.added} new, {update.changed} changed, {update.removed} gone, {update.unchanged} as before"
    output.text(f"{name}\n")
    output.note(f"{counts}; {update.embedded} passages embedded")
    return update
