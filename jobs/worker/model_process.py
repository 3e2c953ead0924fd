"""The process in which llama.cpp runs for jobs: ``python -m jobs.worker.model_process OWNER``.

Only the worker starts it.

It reads one JSON line an attempt from its standard input, and writes one when that has ended. It keeps the model of
the last generation loaded. When its standard input ends, the worker has let it go or is dead, and it ends at once:
what it was doing is fenced off and done again by the next worker.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from leap_core.opening import HostUse, open_runner
from leap_core.options import ModelLoadingOptions
from leap_core.runner.contract import ModelRunner

from ..configuration import JobsConfiguration
from ..submission.variables import variables_of
from ..table.batch_rows import BatchRows
from ..table.job import BATCH, SHARD, Ending, Job
from ..table.table import Table
from .attempt import Attempt, Attempts
from .log import log
from .outcomes import run_attempt
from .tasks import OpenModel, batch, generate

LIFE_SECONDS = 1.0


class Models:
    """The one model that generations in this process share, loaded when the first of them comes."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._runner: ModelRunner | None = None

    @contextmanager
    def lend(self, reference: str, options: ModelLoadingOptions, *, open_model: OpenModel) -> Iterator[ModelRunner]:
        """The worker gives a process attempts of one model only, so the first reference is everybody's."""
        with self._guard:
            if self._runner is None:
                self._runner = open_model(reference, options)
            runner = self._runner
        yield runner


def main(owner: str) -> None:
    """Serve until standard input ends."""
    for number in (signal.SIGINT, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGINT,):
        signal.signal(number, signal.SIG_IGN)  # the worker decides when this ends
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what llama.cpp prints must not look like an answer
    guard = threading.Lock()

    def answer(value: Mapping[str, object]) -> None:
        with guard:
            answers.write(json.dumps(value) + "\n")

    threading.Thread(target=_show_life, args=(answer,), name="leap-life", daemon=True).start()
    configuration = JobsConfiguration.from_environment()
    table, output = Table(configuration.table_place), Table(configuration.table_place, durable=False)
    attempts = Attempts(output, owner, configuration.lease_seconds)
    models = Models()

    def work(id: str, number: int, model: str | None) -> None:
        try:
            job = table.get(id)
            if job is not None and job.attempt == number:
                parameters = job.parameters if model is None else {**job.parameters, "model": model}
                work_on(replace(job, parameters=parameters))
        finally:  # whatever happened: the worker waits for it
            answer({"id": id, "attempt": number})

    def work_on(job: Job) -> None:
        attempt = attempts.begin(job)
        try:
            run_attempt(attempt, table, _task(attempt, models, output))
        finally:
            attempts.over(attempt)

    for line in sys.stdin.buffer:
        request = json.loads(line)
        arguments = (request["id"], request["attempt"], request.get("model"))
        threading.Thread(target=work, args=arguments, daemon=True).start()
    os._exit(0)


def _show_life(answer: Callable[[Mapping[str, object]], None]) -> None:
    """Tell the worker each second that this process is not stuck."""
    while True:
        with suppress(OSError, ValueError):
            answer({"alive": True})
        time.sleep(LIFE_SECONDS)


def _task(attempt: Attempt, models: Models, table: Table) -> partial[Ending]:
    parameters = attempt.job.parameters
    host = HostUse.USE if parameters.get("host", True) else HostUse.NEVER
    opening = partial(open_runner, host=host, variables=variables_of(parameters), on_warning=log)
    if attempt.job.kind == SHARD:
        from .shards import shard

        return partial(shard, rows=BatchRows(table.database), load=partial(models.lend, open_model=opening))
    if attempt.job.kind == BATCH:
        return partial(batch, open_model=opening)
    return partial(generate, load=partial(models.lend, open_model=opening))


if __name__ == "__main__":
    main(sys.argv[1])
