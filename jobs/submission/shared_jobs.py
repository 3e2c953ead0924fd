"""Jobs that depend on no machine: the model named by its SHA-256, the lines of a batch queued as rows and shards."""

from __future__ import annotations

import json
import math
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_core.conversation.loading_options import LOADING
from leap_core.errors import LeapError, LeapJobError, LeapModelNotFoundError, LeapUnavailableError
from leap_core.models.digests import ModelDigests
from leap_core.system.dataclass import dataclass

from ..configuration import JobsConfiguration
from ..table.batch_rows import BatchLine, BatchRows, counted_anew, progress_of_batch
from ..table.claims import ALIVE_SECONDS, WorkerRow, wake
from ..table.job import BATCH, DOWNLOAD, LATER, SHARD, VERSION, Job, NewJob
from ..table.requests import (
    BUILTIN,
    AnswerRequest,
    BatchRequest,
    JobRequest,
    ModelRequest,
    ShardRequest,
    TranscriptRequest,
    request_of,
)
from ..table.store_protocol import Conflict, Database
from ..table.table import Table, dumps, new_id
from .new_jobs import Submitter, batch_label

if TYPE_CHECKING:
    from leap_core.batch.checking import CheckedBatch


def confined(job: Job, configuration: JobsConfiguration) -> Any:
    """What the job is asked for, as this worker may do it. Raises LeapJobError that says what its row may not name."""
    asked: JobRequest = request_of(job)
    if not configuration.is_shared:
        return asked
    refuse_files(asked)
    asked = replace(asked, variables={}, cwd=configuration.directories.data)
    if asked.kept is not None and not configuration.keeps(Path(str(asked.kept))):
        raise _forbidden("the file", asked.kept)
    if isinstance(asked, BatchRequest):
        asked = replace(asked, settings=asked.settings.of_no_machine())
    if job.kind == DOWNLOAD or job.model is None:
        _check_model(str(job.parameters.get("model")), configuration)
    return asked


def refuse_files(asked: JobRequest) -> None:
    """Raises LeapJobError for a job on a server that names a file of one machine."""
    if isinstance(asked, (AnswerRequest, TranscriptRequest)) and (asked.output or getattr(asked, "speech", None)):
        raise LeapJobError(
            "a job on a server cannot write a file of this machine",
            hint="leave out --background, or the file: leap jobs output prints the text",
        )
    loading = [asked.loading] if isinstance(asked, ModelRequest) else []
    loading += [asked.settings.loading] if isinstance(asked, BatchRequest) else []
    for name in (name for name, row in LOADING.items() if row.opens_files):
        if any(each.get(name) for each in loading):
            raise LeapJobError(f"a job on a server cannot name files: {name}", hint="leave it out, or --background")


def _check_model(reference: str, configuration: JobsConfiguration) -> None:
    """Refuse a path that leads out of the directory of models."""
    from leap_core.models.aliases_and_endpoints import find_endpoint
    from leap_core.models.resolving import Registry

    data = configuration.directories.data
    path = endpoint = None
    registry = Registry(cwd=data)
    with suppress(LeapError):  # an unknown name: the attempt says so
        path = registry.path_of(reference)
        endpoint = find_endpoint(reference, configuration.directories)
    # a row may not send this worker anywhere, nor choose what a plugin opens
    if (endpoint is not None and endpoint.name is None) or registry.opener_of(reference):
        raise _forbidden("the endpoint" if endpoint else "the model", reference)
    if path is not None and not path.resolve().is_relative_to(configuration.directories.models.resolve()):
        raise _forbidden("the model", reference)


def _forbidden(what: str, name: object) -> LeapJobError:
    return LeapJobError(
        f"the row of the job names {what} {str(name)!r}, which is not one of this worker's",
        hint="somebody else may have written to the table",
    )


MOST_SHARDS_WANTED = 64
SMALLEST_SHARD, LARGEST_SHARD = 16, 500
"""Lines of a shard: enough to keep all slots of a model busy, and few enough to be shared out."""


@dataclass(frozen=True)
class NewBatch:
    """``job``: the batch, whose parameters each shard gets too. ``lines`` gives its ``count`` lines anew at each call.
    ``output``: where the results are meant to go, which no other batch may have meanwhile; what earlier ones with it
    have answered is taken over, unless it is to be begun ``anew``. ``max_workers``: shards that run at once."""

    job: NewJob
    lines: Callable[[], Iterator[BatchLine]]
    count: int
    output: str
    anew: bool = False
    max_workers: int | None = None


def add_batch(table: Table, batch: NewBatch) -> str:
    """Queue a batch, wholly or not at all; its id. Raises LeapUnavailableError when another batch has its output."""
    id = new_id()
    parameters = {**batch.job.parameters, "total": batch.count, "reused": 0}
    parent = replace(batch.job, parameters=parameters, kind="batch")

    def add() -> str:
        database = table.database
        table.insert(id, parent, output=batch.output)
        rows = BatchRows(database)
        numbers: list[int] = []
        rows.add_lines(id, _numbered(batch.lines(), numbers))
        if not batch.anew:
            rows.take_over(id, batch.output)
        counted_anew(database, id)
        reused = int(database.rows("SELECT done FROM jobs WHERE id=:id", {"id": id})[0]["done"])
        stretches = list(_stretches(numbers, shard_size(batch.count)))
        _insert_shards(database, id, batch, stretches)
        kept = json.loads(database.rows("SELECT parameters FROM jobs WHERE id=:id", {"id": id})[0]["parameters"])
        database.change(
            "UPDATE jobs SET parameters=:parameters, open_shards=:count WHERE id=:id",
            {"id": id, "parameters": dumps({**kept, "reused": reused}), "count": len(stretches)},
        )
        database.change(
            "UPDATE jobs SET progress=:progress WHERE id=:id",
            {"id": id, "progress": dumps(progress_of_batch(database, id))},
        )
        count = min(len(stretches), batch.max_workers or len(stretches))
        wake(database, {(SHARD, parent.model, parent.machine): count}, ALIVE_SECONDS)
        return id

    try:
        return table.database.transaction(add)
    except Conflict:
        busy = table.in_use(batch.output)
        if busy == id:  # the connection was lost after this had been committed
            return id
        hint = f"wait for the job {busy}, or give another output" if busy else "try again"
        raise LeapUnavailableError(f"another batch writes to {batch.output}", hint=hint) from None


def _insert_shards(database: Database, parent: str, batch: NewBatch, stretches: Sequence[tuple[int, int, int]]) -> None:
    """Queue the shards; beyond ``max_workers`` each is held back till another one has ended. What all of them have in
    common is among the parameters of the batch."""
    job, most = batch.job, batch.max_workers
    run_after = LATER if job.after or job.after_any else job.run_after
    columns = [
        *("id", "kind", "state", "parameters", "priority", "retries", "run_after", "model", "machine", "origin"),
        *("version", "parent", "max_workers", "held", "created"),
    ]
    shared = (job.priority, job.retries, run_after, job.model, job.machine, job.origin, VERSION, parent, most)
    (created,) = database.rows("SELECT leap_now() AS now")
    database.insert_rows(
        "jobs",
        columns,
        (
            (
                f"{parent}.{n}",
                SHARD,
                "queued",
                dumps(ShardRequest.row(n, first, last, count)),
                *shared,
                int(most is not None and n >= most),
                created["now"],
            )
            for n, (first, last, count) in enumerate(stretches)
        ),
    )


def shard_size(count: int) -> int:
    """Lines of each shard of a batch of so many."""
    return max(SMALLEST_SHARD, min(LARGEST_SHARD, math.ceil(count / MOST_SHARDS_WANTED)))


def _numbered(lines: Iterable[BatchLine], numbers: list[int]) -> Iterator[BatchLine]:
    """The lines; their numbers are added to ``numbers``."""
    for line in lines:
        numbers.append(line.number)
        yield line


def _stretches(numbers: Sequence[int], size: int) -> Iterator[tuple[int, int, int]]:
    """First and last number and count of each stretch of ``size`` lines."""
    for start in range(0, len(numbers), size):
        stretch = numbers[start : start + size]
        yield stretch[0], stretch[-1], len(stretch)


MOST_BYTES = 32 * 1024 * 1024
"""A job's parameters take at most this, images and audio included. A batch has one such bound a line."""
LOCAL_PARAMETERS = ("variables", "cwd")


@dataclass(frozen=True)
class SharedModel:
    """A model as every machine knows it. ``name``: no path. ``digest``: its SHA-256. ``origin``: where it may be
    fetched, see ``leap_core.models.reference``."""

    name: str
    digest: str
    origin: str | None = None


def shared_job(job: NewJob, model: SharedModel) -> NewJob:
    """The job as any machine can run it that has the model. Raises LeapJobError for one that is too
    large, or writes a file."""
    refuse_files(request_of(job))
    parameters = {name: value for name, value in job.parameters.items() if name not in LOCAL_PARAMETERS}
    parameters["model"] = model.name
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
    from leap_core.batch.settings import KEPT

    settings = request.settings
    if settings.escalation.escalate_to is not None:
        raise LeapJobError("jobs of several machines know no second model", hint="leave out --background")
    if settings.output.path == KEPT:
        name = f"results-{uuid.uuid4().hex}"  # that no other batch has
        settings = replace(settings, output=replace(settings.output, path=name))
    settings = settings.from_anywhere(request.cwd)
    with ExitStack() as resources:
        if request.rows is not None:
            kept = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="leap-"))) / "rows.jsonl"
            with kept.open("wb") as file:
                file.writelines(request.rows)
            settings = replace(settings, input=replace(settings.input, source=str(kept)))
        checked, model = _checked(replace(request, settings=settings), submitter, workers)
        resources.enter_context(checked)
        asked = replace(
            request,
            label=batch_label(request, settings.output.path),
            model=model.name,
            embeds=checked.embeds,
            columns=list(checked.lines.rows.columns),
            loading={**settings.loading, "slots": settings.limits.concurrency},
            settings=replace(
                nowhere := settings.of_no_machine(),
                output=replace(nowhere.output, format=settings.output_format, keep_fields=checked.reader.keep_fields),
                model=None,
            ),
        )
        parameters = {name: value for name, value in asked.to_json().items() if name not in LOCAL_PARAMETERS}
        checked = replace(checked, fingerprint=json.dumps([model.digest, settings.loading], sort_keys=True))
        yield NewBatch(
            NewJob(BATCH, parameters, model=model.digest, origin=model.origin),
            partial(_lines_of, checked),
            len(checked.lines),
            f"{submitter.configuration.machine}:{settings.output.path}",
            anew=settings.output.overwrite,
            max_workers=request.max_workers,
        )


def _checked(
    request: BatchRequest, submitter: Submitter, workers: Sequence[WorkerRow]
) -> tuple[CheckedBatch, SharedModel]:
    """The checked lines, and their model."""
    from leap_core.batch.checking import check_batch
    from leap_core.batch.input.remote_files import is_url
    from leap_core.batch.input.rows import PARQUET, compression_of
    from leap_core.batch.journal.line_result import NPY

    settings, variables, cwd = request.settings, submitter.variables, request.cwd
    at_once = settings.output_format in (NPY, PARQUET) or compression_of(settings.output.path)
    if at_once or is_url(settings.output.path):
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


def _lines_of(checked: CheckedBatch) -> Iterator[BatchLine]:
    from leap_core.batch.input.lines import key_of

    index = checked.lines
    for n in range(len(index)):
        digest, raw = index.digest(n), checked.reader.for_another_machine(index.raw(n))
        if len(raw) > MOST_BYTES:
            raise _too_large(f"line {index.number(n)} and its files take", len(raw), "make them smaller")
        yield BatchLine(index.number(n), key_of(digest, checked.fingerprint), digest, raw)
