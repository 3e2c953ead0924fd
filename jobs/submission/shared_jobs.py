"""Jobs that depend on no machine: their model is named by its SHA-256, their lines are rows, no path is in them."""

from __future__ import annotations

from leap_core.json_fields import JsonObject
import json
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from leap_core.addresses import shown
from leap_core.errors import LeapJobError, LeapModelNotFoundError
from leap_core.models.references.digest_names import ModelDigests

from ..table.batch_rows import BatchLine
from ..table.batch_submission import NewBatch
from ..table.job import BATCH, NewJob
from ..table.worker_rows import WorkerRow
from .requests import BUILTIN, BatchRequest, Submitter
from .shared_rows import refuse_files

if TYPE_CHECKING:
    from leap_core.batch.batch_settings import BatchSettings
    from leap_core.batch.checking import CheckedBatch

MOST_BYTES = 32 * 1024 * 1024
"""A job's parameters take at most this, pictures and sound included. A batch has one such bound a line."""
LOCAL_PARAMETERS = ("variables", "cwd")


@dataclass(frozen=True)
class SharedModel:
    """A model as every machine knows it. ``name``: no path. ``digest``: its SHA-256. ``origin``: where it may be
    fetched, see ``leap_core.models.references.origins``."""

    name: str
    digest: str
    origin: str | None = None


def shared_job(job: NewJob, model: SharedModel) -> NewJob:
    """The job as any machine can run it that has the model. Raises LeapJobError for one that is too
    large, or writes a file."""
    parameters = {name: value for name, value in job.parameters.items() if name not in LOCAL_PARAMETERS}
    parameters["model"] = model.name
    refuse_files(parameters)
    size = len(json.dumps(parameters))
    if size > MOST_BYTES:
        raise _too_large("the prompt and its attachments take", size, "leave out --background")
    return replace(job, parameters=parameters, model=model.digest, origin=model.origin)


def shared_model(model: str, submitter: Submitter, cwd: Path, workers: Sequence[WorkerRow]) -> SharedModel:
    """A model that this machine or a worker has. Raises LeapModelNotFoundError that
    says which models the workers have."""
    digests = ModelDigests(submitter.configuration.directories)
    try:
        digest = digests.of_reference(model, submitter.variables, cwd)
        return SharedModel(_portable(model, digest, digests), digest, digests.origins().get(digest))
    except LeapModelNotFoundError as error:
        alive = [worker for worker in workers if worker.is_alive]
        for worker in alive:
            for digest, name in worker.models.items():
                if name.lower() == model.lower() or name.lower().startswith(model.lower() + "-"):
                    return SharedModel(name, digest, worker.origins.get(digest))
        names = sorted({f"{name} on {worker.machine}" for worker in alive for name in worker.models.values()})
        if not names:
            raise
        raise LeapModelNotFoundError(
            f"neither this machine nor a worker has the model {model!r}", hint=f"there are {', '.join(names)}"
        ) from error


def _portable(model: str, digest: str, digests: ModelDigests) -> str:
    """A name of the model that is no path."""
    with suppress(OSError):
        name = digests.installed().get(digest)
        if name is not None:
            return name
    return model if os.path.sep not in model else Path(model).name


def _too_large(what: str, size: int, hint: str) -> LeapJobError:
    most = MOST_BYTES // 2**20
    return LeapJobError(f"{what} {size / 2**20:.1f} MiB, and {most} MiB are the most on a server", hint=hint)


@contextmanager
def shared_batch(request: BatchRequest, submitter: Submitter, workers: Sequence[WorkerRow]) -> Iterator[NewBatch]:
    """A batch as rows, to be queued within the ``with``: its input is open till then. Raises what ``check_batch``
    raises."""
    from leap_core.batch.batch_settings import KEPT

    settings = request.settings
    if settings.escalate_to is not None:
        raise LeapJobError("jobs of several machines know no second model", hint="leave out --background")
    if settings.output == KEPT:
        settings = replace(settings, output=f"results-{uuid.uuid4().hex}")  # a name that no other batch has
    settings = settings.from_anywhere(request.cwd)
    with ExitStack() as resources:
        if request.rows is not None:
            kept = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="leap-"))) / "rows.jsonl"
            with kept.open("wb") as file:
                file.writelines(request.rows)
            settings = replace(settings, source=str(kept))
        checked, model = _checked(replace(request, settings=settings), submitter, workers)
        resources.enter_context(checked)
        label = request.label or f"{request.source_name} -> {Path(shown(settings.output)).name}"
        parameters: JsonObject = {"label": label, "host": request.host, "model": model.name}
        if checked.embeds:
            parameters["embeds"] = True
        fingerprint = json.dumps([model.digest, settings.loading], sort_keys=True)
        batch = _as_rows(
            replace(checked, fingerprint=fingerprint),
            settings,
            NewJob(BATCH, parameters, model=model.digest, origin=model.origin),
        )
        yield replace(
            batch, output=f"{submitter.configuration.machine}:{settings.output}", max_workers=request.max_workers
        )


def _checked(
    request: BatchRequest, submitter: Submitter, workers: Sequence[WorkerRow]
) -> tuple[CheckedBatch, SharedModel]:
    """The checked lines, and their model."""
    from leap_core.batch.checking import check_batch
    from leap_core.batch.input.compressed import compression_of
    from leap_core.batch.input.remote_files import is_url
    from leap_core.batch.input.row_formats import PARQUET
    from leap_core.batch.journal.line_result import NPY

    settings, variables, cwd = request.settings, submitter.variables, request.cwd
    at_once = settings.output_format in (NPY, PARQUET) or compression_of(settings.output)
    if at_once or is_url(settings.output):
        raise LeapJobError("a batch on a server has lines in a file as its results, no array", hint="-o FILE.jsonl")
    named = settings.model or request.default_model
    if named is not None:  # perhaps only a worker has it: the lines are checked all the same
        checked = check_batch(replace(settings, model=BUILTIN), default_model=None, variables=variables, cwd=cwd)
        if checked.embeds and settings.model is None:  # the default is to answer prompts
            checked.close()
            named = None
    if named is None:
        checked = check_batch(settings, default_model=None, variables=variables, cwd=cwd)
    try:
        return checked, shared_model(named or checked.model, submitter, cwd, workers)
    except BaseException:
        checked.close()
        raise


def _as_rows(checked: CheckedBatch, settings: BatchSettings, job: NewJob) -> NewBatch:
    from leap_core.batch.input.line_digests import key_of

    index = checked.lines

    def lines() -> Iterator[BatchLine]:
        for n in range(len(index)):
            digest, raw = index.digest(n), checked.reader.for_another_machine(index.raw(n))
            if len(raw) > MOST_BYTES:
                raise _too_large(f"line {index.number(n)} and its files take", len(raw), "make them smaller")
            yield BatchLine(index.number(n), key_of(digest, checked.fingerprint), digest, raw)

    batch: JsonObject = {
        **replace(settings, source="-", output="-", journal=None, errors=None).to_json(),
        "format": settings.output_format,
        "keep_fields": checked.reader.keep_fields,
        "model": None,
        "input_digest": None,
    }
    parameters = {**job.parameters, "batch": batch, "columns": list(index.rows.columns), "output": settings.output}
    parameters["loading"] = {**settings.loading, "slots": settings.concurrency}
    return NewBatch(
        replace(job, parameters=parameters),
        lines,
        len(index),
        settings.output,
        anew=settings.overwrite,
    )
