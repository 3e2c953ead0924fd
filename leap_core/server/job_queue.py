"""The queue of jobs as a server uses it: answers that outlive their connection, batches, and the list for the page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..batch.settings import BatchSettings
from ..conversation.loading_options import LOADING
from ..conversation.option_rows import Host
from ..conversation.request import Request as Asked
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .access import refuse_other_origins
from .http import STORE, AsciiJSON
from .models.loaded_model import LoadedModel
from .records import Records, not_found

MOST_LISTED = 100


@dataclass(frozen=True)
class JobState:
    """How a job is: ``state`` is queued, running, succeeded, failed or cancelled; ``message``: why it failed."""

    state: str
    message: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class BatchState(JobState):
    """How a batch's job is; times in seconds since 1970, None where they have not come. ``counted``: its lines were
    read, so that a failure is one of lines."""

    cancelling: bool = False
    started: float | None = None
    finished: float | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    counted: bool = False


@dataclass(frozen=True)
class AnswerState(JobState):
    """How the job of an answer is. ``events``: what the newest ``attempt`` put out, beyond the event ``number`` that
    was asked for; the last of them is ``number``."""

    attempt: int = 0
    number: int = -1
    events: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class QueuedAnswer:
    """What a job is to answer. ``loading``: fields of ModelLoadingOptions."""

    request: Asked
    model: str
    loading: Mapping[str, Any]
    cwd: Path


class JobQueue(Protocol):
    """The queue that the work goes to."""

    def submit(self, settings: BatchSettings, cwd: Path) -> str:
        """Have a batch answered; the job's id. Raises LeapError when its lines cannot be used."""
        ...

    def ask(self, answer: QueuedAnswer) -> str:
        """Have a conversation answered; the job's id."""
        ...

    def state(self, job: str) -> BatchState | None:
        """How a batch's job is, queued where that cannot be read just now; None when it is not there any more."""
        ...

    def answered(self, job: str, attempt: int, number: int) -> AnswerState | None:
        """How an answer's job is; None when it is not there any more."""
        ...

    def cancel(self, job: str) -> None:
        """Have it end soon."""
        ...

    def forget(self, job: str) -> None:
        """Remove a job, and what it put out."""
        ...

    def counts(self) -> Mapping[str, int]:
        """How many jobs are in each state."""
        ...

    def jobs(self, limit: int, only: Collection[str] | None = None) -> list[JsonObject]:
        """The newest jobs of all kinds, or of these ids: id, kind, state, percent, label, cancelling."""
        ...


def loading_of(model: LoadedModel) -> JsonObject:
    """How the server loads a model, as fields of ModelLoadingOptions."""
    names = (name for name, row in LOADING.items() if row.host is Host.FIELD)
    loading = {name: value for name in names if (value := getattr(model.load_request, name)) is not None}
    return {**loading, **(model.load_request.details or {})}


def answered_by(model: LoadedModel, name: str | None, settings: BatchSettings) -> BatchSettings:
    """The settings with a model as the server holds it, and with the adapters behind its ``name``."""
    loading = loading_of(model)
    adapters = model.named_adapters(name)
    answers_to = [model.name, *sorted(model.references)]
    if adapters is not None and name is not None:
        loading["adapters"] = [adapter.to_json() for adapter in adapters]
        answers_to = [name]  # the model alone is another
    return replace(
        settings,
        model=model.load_request.reference,
        loading=loading,
        limits=replace(settings.limits, concurrency=model.options.slots),
        input=replace(settings.input, answers_to=tuple(answers_to)),
    )


class JobEndpoints:
    """The jobs that the page shows: those of ``records``, which this server has made for its clients, or with None all
    of the user, for a server that was started to show them. Pages of other origins are refused."""

    def __init__(self, queue: JobQueue, records: Sequence[Records] | None) -> None:
        self._queue, self._records = queue, records

    def routes(self) -> list[Route]:
        return [Route("/leap/jobs", self.list_jobs), Route("/leap/jobs/{id}/cancel", self.cancel_job, methods=["POST"])]

    async def list_jobs(self, request: Request) -> Response:
        """Jobs of all kinds, unfinished ones first, and how many more there are."""
        refuse_other_origins(request)
        own = await STORE.run(self._own)
        jobs = await STORE.run(self._queue.jobs, MOST_LISTED, own)
        count = sum((await STORE.run(self._queue.counts)).values()) if own is None else len(own)
        return AsciiJSON({"jobs": jobs, "more": max(0, count - len(jobs)) if len(jobs) == MOST_LISTED else 0})

    async def cancel_job(self, request: Request) -> Response:
        """End a job of any kind."""
        refuse_other_origins(request)
        id = request.path_params["id"]
        own = await STORE.run(self._own)
        if own is not None and id not in own:
            raise not_found("job", id)
        await STORE.run(self._queue.cancel, id)
        return AsciiJSON({"cancelling": id})

    def _own(self) -> set[str] | None:
        if self._records is None:
            return None
        found = (record for records in self._records for record in records.all())
        return {id for record in found for id in _jobs_of(record) if id is not None}


def _jobs_of(record: JsonObject) -> list[str | None]:
    """The jobs of what a server has made; those of a batch of messages are several."""
    return [record.get("job"), *(job["id"] for job in record.get("jobs", ()))]
