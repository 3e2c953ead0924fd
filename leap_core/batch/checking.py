"""A batch whose lines were all read once, before any work: what is wrong with them, and which model answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from ..conversation.options import ModelLoadingOptions
from ..errors import (
    LeapModelNotDownloadedError,
    LeapModelNotFoundError,
    LeapOptionsError,
    LeapSerializationError,
    LeapUnavailableError,
)
from ..system.dataclass import dataclass
from ..system.features import own_parts
from .answering import Pace
from .escalation import When
from .input.line_index import MOST_PROBLEMS, CheckedLines, LineIndex, LineProblem, check_lines
from .input.lines import RequestReader
from .input.rows import JSONL, InputRows
from .journal.journal import Journal
from .journal.line_result import NPY, TEXT
from .output.file_formats import SpokenLines
from .output.output_file import OutputFile
from .run import Batch, BatchProgress
from .settings import STANDARD, BatchCluster, BatchInput, BatchSettings, fingerprint_of

BUILTIN, BUILTIN_EMBED = "builtin", "builtin-embed"
MOST_TOLD = 5
"""Problems that an error message lists."""


@dataclass(frozen=True)
class CheckedBatch:
    """A batch whose lines were all read once. ``named_model``: whether the settings or the lines name the model.
    ``problems``: the first of ``problem_count`` lines that cannot be used, all of
    them where they go into a file. ``embeds``: the lines ask for vectors. Close
    it: the input stays open till then."""

    settings: BatchSettings
    reader: RequestReader
    lines: LineIndex
    problems: list[LineProblem]
    problem_count: int
    model: str
    named_model: bool
    fingerprint: str
    embeds: bool = False

    @property
    def input_digest(self) -> str:
        """Equal for an equal input that is read with equal settings."""
        return self.lines.whole_digest()

    def open(
        self,
        journal: Journal | None,
        write: Callable[[str], object],
        on_result: Callable[[BatchProgress], object],
        run_id: str | None = None,
        while_waiting: Callable[[], object] | None = None,
    ) -> Batch:
        """The batch, ready to run. Runs with one ``run_id`` are attempts of the same: only the first overwrites."""
        settings, output = self.settings, self.settings.output
        errors, part = output.errors, settings.cluster.part
        return Batch(
            self.lines,
            self.reader,
            self.fingerprint,
            settings.sink(write, len(self.lines), while_waiting),
            journal,
            format=settings.output_format,
            ordered=output.ordered,
            concurrency=settings.limits.concurrency,
            on_result=on_result,
            overwrite=output.overwrite,
            run_id=run_id,
            failures=None if errors is None else OutputFile(Path(errors), while_waiting=while_waiting),
            spoken=SpokenLines(None if output.speech is None else Path(output.speech)),
            header=output.header,
            problems=self.problems if part is None or part.number == 1 else [],
            pace=Pace.of(settings.limits),
        )

    def close(self) -> None:
        """Close the input."""
        self.lines.rows.close()

    def __enter__(self) -> CheckedBatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_batch(
    settings: BatchSettings,
    stdin: IO[bytes] | None = None,
    *,
    default_model: str | None,
    variables: Mapping[str, str],
    cwd: Path,
    model_may_come: bool = False,
) -> CheckedBatch:
    """Check places, lines and model. ``stdin`` is read when the source is "-". ``model_may_come``: one that can be
    fetched need not be here yet; then the fingerprint is empty.

    Raises LeapSerializationError that names the lines which cannot be used (unless they are to be skipped), and
    LeapModelNotFoundError when there is no such model.
    """
    given = settings.input
    settings.check_places()
    reader = settings.reader()
    name = "standard input" if given.source == STANDARD else given.source
    rows = _open_rows(given, stdin, name)
    try:
        _check_columns(rows, reader)
        wants_all = given.skip_invalid and settings.output.errors is not None  # the file gets every one
        checked = check_lines(rows, reader, sys.maxsize if wants_all else MOST_PROBLEMS)
        lines = checked.index
        if checked.problem_count and not given.skip_invalid:
            raise _unusable(name, checked)
        if given.input_digest not in (None, lines.whole_digest()):
            raise LeapSerializationError(
                f"{name} changed since the batch was submitted",
                hint="submit it again: what was answered is kept in the journal",
            )
        part = settings.cluster.part
        if part is not None:
            lines = lines.only(n for n in range(len(lines)) if part.has(lines.digest(n)))
        embeds = _embeds(checked, settings, name)
        default_model = None if embeds else default_model  # that one writes
        named = settings.model or default_model or _named_by(checked.models)
        model = named or (BUILTIN_EMBED if embeds else BUILTIN)
        fingerprint = ""
        with suppress(LeapModelNotDownloadedError) if model_may_come else nullcontext():
            fingerprint = _fingerprint(settings, model, default_model, variables, cwd) if len(lines) else ""
        fingerprint += _of_more(settings, embeds, bool(len(lines)), variables, cwd)
    except BaseException:
        rows.close()
        raise
    problems, count = checked.problems, checked.problem_count
    return CheckedBatch(settings, reader, lines, problems, count, model, named is not None, fingerprint, embeds)


def _open_rows(given: BatchInput, stdin: IO[bytes] | None, name: str) -> InputRows:
    try:
        return InputRows(given.source, given.source_format, stdin if given.source == STANDARD else None)
    except LeapSerializationError as error:
        if given.source_format == JSONL:
            raise
        raise LeapSerializationError(f"{name}: {error.message}", hint=error.hint) from None


def _of_more(settings: BatchSettings, embeds: bool, has_lines: bool, variables: Mapping[str, str], cwd: Path) -> str:
    """What escalation and speech add to a fingerprint. Raises LeapOptionsError where there can be no escalation."""
    more, escalation, on = "", settings.escalation, settings.cluster.on
    if escalation.escalate_to is not None and (embeds or on is not None):
        what = "vectors" if embeds else f"a batch on {on}"
        raise LeapOptionsError("escalate_to", f"{what} cannot escalate to a second model")
    if escalation.escalate_to is not None and has_lines:
        When.parse(escalation.when, escalation.check)
        far = fingerprint_of(escalation.escalate_to, ModelLoadingOptions(), variables=variables, cwd=cwd)
        more += f" else {far} when {escalation.when}"
        more += f" by {escalation.check}" if escalation.check is not None else ""
    if settings.output.speech is not None:  # a result without sound does not stand for one with it
        more += " aloud"
    return more


def _embeds(checked: CheckedLines, settings: BatchSettings, name: str) -> bool:
    """Whether the lines ask for vectors. Raises LeapSerializationError where some do and some do not."""
    if len(checked.embeds) > 1:
        raise LeapSerializationError(
            f"{name}: some lines ask for vectors and some for answers", hint="make two batches of them"
        )
    embeds = True in checked.embeds
    if embeds and settings.output.speech is not None:
        raise LeapSerializationError("the lines ask for vectors, which cannot be spoken")
    if embeds and settings.output_format == TEXT:
        raise LeapSerializationError("the lines ask for vectors, which are no text", hint="leave --format text out")
    if not embeds and checked.embeds and settings.output_format == NPY:
        raise LeapSerializationError("only vectors go into an array (.npy), and the lines ask for answers")
    return embeds


def _check_columns(rows: InputRows, reader: RequestReader) -> None:
    """Refuse a template that no row of a table could fill."""
    if not rows.is_table or reader.template is None:
        return
    missing = reader.template.missing(rows.columns)
    if missing:
        raise LeapSerializationError(
            f"the table has no column {', '.join(missing)}; it has {', '.join(rows.columns)}",
            hint="--pattern '{column}' makes the prompts of columns",
        )


def _fingerprint(
    settings: BatchSettings, model: str, default_model: str | None, variables: Mapping[str, str], cwd: Path
) -> str:
    try:
        return fingerprint_of(model, settings.loading_options(), variables=variables, cwd=cwd)
    except LeapModelNotFoundError as error:
        if settings.model or default_model:
            raise
        raise LeapModelNotFoundError(
            f"the lines ask for the model {model!r}: {error.message}", hint="-m MODEL answers every line with one model"
        ) from None


def _unusable(name: str, checked: CheckedLines) -> LeapSerializationError:
    count, total = checked.problem_count, checked.problem_count + len(checked.index)
    listed = "; ".join(str(problem) for problem in checked.problems[:MOST_TOLD])
    more = f"; and {count - MOST_TOLD} more" if count > MOST_TOLD else ""
    of = "1 line" if total == 1 else f"{total} lines"
    hint = "--skip-invalid leaves them out"
    if count == total:
        hint = "--input-format lines takes each line as a prompt; see leap batch --help for the others"
    return LeapSerializationError(f"{name}: {count} of {of} cannot be used: {listed}{more}", hint=hint)


def _named_by(models: set[str | None]) -> str | None:
    """The model that all lines name, if any does."""
    if not models - {None}:
        return None
    if len(models) > 1:
        several = ", ".join(sorted(repr(model) for model in models - {None}))
        others = ", and some name none" if None in models else ""
        raise LeapSerializationError(
            f"the lines name the models {several}{others}", hint="-m MODEL answers every line with one model"
        )
    return next(iter(models))


CLUSTERS = {"ray": "leap_core.batch.clusters.opening:open_on_cluster"}


def open_on_cluster(checked: CheckedBatch, cluster: BatchCluster, **given: Any) -> Any:
    """The runner that answers on the cluster of the batch, not yet entered. ``given``: see ``CLUSTERS``. Raises
    LeapUnavailableError where this leap knows no cluster, and LeapModelNotFoundError."""
    for open_runner in own_parts(CLUSTERS).values():
        return open_runner(checked, cluster, **given)
    raise LeapUnavailableError("this leap runs no batches on clusters")
