"""What a model process does with the attempts that it is given. It keeps the model of the last generation loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from leap_core.conversation.logged_runner import logged
from leap_core.conversation.options import ModelLoadingOptions
from leap_core.conversation.priority import of_job
from leap_core.conversation.runner import ModelRunner
from leap_core.conversation.wrapping import wrapped
from leap_core.opening import HostUse, open_embedding_runner, open_runner
from leap_core.system.directories import Directories

from ..configuration import JobsConfiguration
from ..submission.shared_jobs import confined
from ..table.batch_rows import BatchRows
from ..table.job import BATCH, SHARD, TRANSCRIBE, Ending, Job
from ..table.requests import BatchRequest, ModelRequest
from ..table.table import Table
from ..worker_log import log
from .attempt import Attempt, Attempts
from .outcomes import run_attempt
from .remote_table import WorkerCalls, remote_tables
from .tasks import OpenModel, generate, transcribe

if TYPE_CHECKING:
    from leap_core.batch.answering import Runner
    from leap_core.conversation.prompt_progress import Report


class Models:
    """The one model that jobs in this process share, loaded when the first of them comes."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._runner: Runner | None = None

    @contextmanager
    def lend(
        self,
        reference: str,
        options: ModelLoadingOptions,
        *,
        open_model: OpenModel,
        priority: int,
        report: Report | None = None,
    ) -> Iterator[Any]:
        """The worker gives a process attempts of one model only, so the first reference is everybody's. ``priority``:
        of the requests that give none. ``report``: gets how far their prompts are read."""
        with self._guard:
            if self._runner is None:
                self._runner = open_model(reference, options)
            runner = self._runner
        yield wrapped(runner, priority=priority, report=report) if isinstance(runner, ModelRunner) else runner


class ModelWork:
    """The work of ``owner``'s process on the table that its environment leads to, or on the worker's,
    by ``calls``. Raises LeapError where that cannot be opened."""

    def __init__(self, owner: str, calls: WorkerCalls | None) -> None:
        self._configuration = configuration = JobsConfiguration.from_environment()
        self._table, output, self._rows = _opened(configuration) if calls is None else remote_tables(calls)
        self._attempts = Attempts(output, owner, configuration.lease_seconds)
        self._models = Models()

    def do(self, id: str, number: int, model: str | None) -> None:
        """Work on an attempt until it has ended, with the model of this name, or the job's own where it is None."""
        job = self._table.get(id)
        if job is None or job.attempt != number:
            return
        if model is not None:
            job = replace(job, parameters={**job.parameters, "model": model})
        attempt = self._attempts.begin(job)
        try:
            run_attempt(attempt, self._table, self._confined_task)
        finally:
            self._attempts.over(attempt)

    def _confined_task(self, attempt: Attempt) -> Ending:
        asked = confined(attempt.job, self._configuration)
        return self._task(attempt.job, asked)(attempt, asked)

    def _task(self, job: Job, asked: ModelRequest) -> partial[Ending]:
        host = HostUse.USE if asked.host else HostUse.NEVER
        variables = asked.environment()
        own = of_job(job.priority) if job.kind == BATCH else None  # where jobs share a model it is given each
        opening: Callable[..., Runner] = partial(
            _open_logged, host=host, variables=variables, kind=job.kind, priority=own
        )
        if isinstance(asked, BatchRequest) and asked.embeds:
            opening = partial(open_embedding_runner, host=host, variables=variables, on_warning=log)
        if job.kind in (BATCH, SHARD):
            from .batch_tasks import batch, shard  # here, because every process of a model would pay for it
        if job.kind == BATCH:
            return partial(batch, open_model=opening)
        load = partial(self._models.lend, open_model=opening, priority=of_job(job.priority))
        if job.kind == SHARD:
            return partial(shard, rows=self._rows, load=load)
        return partial(transcribe if job.kind == TRANSCRIBE else generate, load=load)


def _opened(configuration: JobsConfiguration) -> tuple[Table, Table, BatchRows]:
    table = Table(configuration.table_place)
    output = table.undurable()
    return table, output, BatchRows(output.database)


def _open_logged(
    reference: str,
    options: ModelLoadingOptions,
    *,
    host: HostUse,
    variables: Mapping[str, str],
    kind: str,
    priority: int | None = None,
) -> ModelRunner:
    """The model, with what is asked of it in the log of this process's user while that is on."""
    directories = Directories.from_environment(variables)
    runner = open_runner(reference, options, host=host, variables=variables, directories=directories, on_warning=log)
    log_of = partial(logged, command=f"job {kind}", directories=directories, variables=variables, on_warning=log)
    return wrapped(runner, log=log_of, priority=priority)
