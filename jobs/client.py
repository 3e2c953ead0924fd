"""Jobs for programs: submit, watch, wait, cancel, retry. All that the command line does goes through here.

from jobs.client import JobsClient

with JobsClient() as jobs:
    id = jobs.generate("Why is the sky blue?", model="LFM2.5-1.2B-Instruct")
    for event in jobs.follow(id):
        ...
    print(jobs.wait(id).result)
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_core.errors import LeapJobError, LeapUnavailableError
from leap_core.messages import ChatMessage, ChatMessageRole
from leap_core.options import GenerationOptions, ModelLoadingOptions
from leap_core.storage.directories import private_directory

from .configuration import Places
from .keeper.keeper import WorkerKeeper
from .submitted_variables import DOWNLOAD_VARIABLES, MODEL_VARIABLES, carried
from .table.job import BATCH, DOWNLOAD, FINAL, GENERATE, KINDS, Event, Job, JsonObject, State
from .table.table import NewJob, Table

if TYPE_CHECKING:
    from leap_core.batch.settings import BatchSettings
    from leap_core.functions import LeapFunction

    from .queue import Queues

BUILTIN = "builtin"
LOOK_SECONDS = 0.02
LABEL_CHARACTERS = 48


@dataclass(frozen=True)
class Policy:
    """``priority``: higher goes first. ``retries``: failed attempts to bear. ``delay``: seconds to wait at first."""

    priority: int = 0
    retries: int = 2
    delay: float = 0.0


class JobsClient:
    """The jobs of one data directory. Safe to use from several threads; a context manager.

    ``variables`` stand for the process's environment. Without ``autostart`` jobs wait for a worker that somebody else
    starts.
    """

    def __init__(self, variables: Mapping[str, str] | None = None, *, autostart: bool = True) -> None:
        self._variables = dict(os.environ if variables is None else variables)
        self.places = Places.from_environment(self._variables)
        self.table = Table(self.places.table)
        self._autostart = autostart
        self._queues: Queues | None = None
        self._keeper = WorkerKeeper(self.places, self._variables)

    def close(self) -> None:
        if self._queues is not None:
            self._queues.close()
        self.table.close()

    def __enter__(self) -> JobsClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- submitting

    def generate(
        self,
        prompt: str | Sequence[ChatMessage],
        *,
        model: str = BUILTIN,
        system: str | None = None,
        options: GenerationOptions | None = None,
        functions: Sequence[LeapFunction] = (),
        loading: Mapping[str, Any] | None = None,
        host: bool = True,
        policy: Policy | None = None,
        cwd: Path | None = None,
    ) -> str:
        """Answer a prompt, or a conversation, in the background; the job's id. ``loading``: fields of
        ModelLoadingOptions. ``host``: use the warm model where there is one. Raises LeapModelNotFoundError when there
        is no such model on this machine."""
        job = self.generation(
            prompt,
            model=model,
            system=system,
            options=options,
            functions=functions,
            loading=loading,
            host=host,
            cwd=cwd,
        )
        return self.submit([_with(job, policy)])[0]

    def generation(
        self,
        prompt: str | Sequence[ChatMessage],
        *,
        model: str = BUILTIN,
        system: str | None = None,
        options: GenerationOptions | None = None,
        functions: Sequence[LeapFunction] = (),
        loading: Mapping[str, Any] | None = None,
        host: bool = True,
        cwd: Path | None = None,
    ) -> NewJob:
        """The job that ``generate`` submits, to be submitted with others."""
        from leap_core.models.references.resolving import resolve_local

        resolve_local(model, variables=self._variables, cwd=cwd or Path.cwd())
        slots = self.places.concurrency[GENERATE]
        settings = {"slots": slots, **{k: v for k, v in (loading or {}).items() if v is not None}}
        ModelLoadingOptions(**settings)
        messages = [ChatMessage(ChatMessageRole.USER, prompt)] if isinstance(prompt, str) else list(prompt)
        if system is not None:
            messages.insert(0, ChatMessage(ChatMessageRole.SYSTEM, system))
        parameters: JsonObject = {
            "label": _label(messages[-1].text if messages else ""),
            "model": self._model_from_anywhere(model, cwd or Path.cwd()),
            "messages": [message.to_json() for message in messages],
            "options": (options or GenerationOptions()).to_json(),
            "tools": [function.to_json_object() for function in functions],
            "loading": settings,
            "variables": carried(self._variables, MODEL_VARIABLES),
            "host": host,
        }
        return NewJob(GENERATE, parameters)

    def download(
        self,
        model: str,
        *,
        quantization: str | None = None,
        revision: str | None = None,
        options: Mapping[str, Any] | None = None,
        policy: Policy | None = None,
        cwd: Path | None = None,
    ) -> str:
        """Fetch a model in the background; the job's id. ``options``: fields of DownloadOptions."""
        parameters: JsonObject = {
            "label": f"{model}:{quantization}" if quantization else model,
            "model": model,
            "quantization": quantization,
            "revision": revision,
            "options": dict(options or {}),
            "cwd": str(cwd or Path.cwd()),
            "variables": carried(self._variables, DOWNLOAD_VARIABLES),
        }
        return self.submit([_with(NewJob(DOWNLOAD, parameters), policy)])[0]

    def batch(
        self,
        settings: BatchSettings,
        *,
        rows: Iterable[bytes] | None = None,
        default_model: str | None = None,
        host: bool = True,
        policy: Policy | None = None,
        cwd: Path | None = None,
    ) -> str:
        """Answer the lines of a file in the background; the job's id. All lines are checked before it is submitted.

        ``rows``: the lines, if they are not in a file; they are kept until the job is removed. ``host``: use the warm
        model where there is one.
        """
        from leap_core.batch.settings import check_batch, rows_of

        cwd = cwd or Path.cwd()
        name = Path(settings.source).name if rows is None else "standard input"
        settings = settings.from_anywhere(cwd)
        if rows is not None or not Path(settings.source).is_file():  # a pipe can be read once, and not by the worker
            rows = list(rows_of(settings.source) if rows is None else rows)
        else:
            rows = rows_of(settings.source)
        checked = check_batch(settings, rows, default_model=default_model, variables=self._variables, cwd=cwd)
        parameters: JsonObject = {
            "label": f"{name} -> {Path(settings.output).name}",
            "cwd": str(cwd),
            "variables": carried(self._variables, MODEL_VARIABLES),
            "host": host,
        }
        if isinstance(rows, list):
            parameters["kept"] = self._keep(rows)
            settings = replace(settings, source=parameters["kept"])
        settings = replace(settings, model=self._model_from_anywhere(checked.model, cwd))
        parameters["batch"] = settings.to_json()
        return self.submit([_with(NewJob(BATCH, parameters), policy)])[0]

    def _keep(self, rows: Sequence[bytes]) -> str:
        """Write lines that came through a pipe to a file that outlives it."""
        directory = private_directory(self.places.directories.data / "batches")
        with tempfile.NamedTemporaryFile("wb", dir=directory, suffix=".jsonl", delete=False) as file:
            file.writelines(rows)
            file.flush()
            os.fsync(file.fileno())
        return file.name

    def submit(self, jobs: Iterable[NewJob]) -> Sequence[str]:
        """Queue jobs, all or none, and see to it that a worker runs; their ids."""
        jobs = list(jobs)
        self._open_queues()  # what is wrong with them is told before anything is queued
        ids = self.table.add(jobs)
        now = time.time()
        self._wake([(id, 1, job.kind, job.priority) for id, job in zip(ids, jobs, strict=True) if job.run_after <= now])
        return ids

    def _model_from_anywhere(self, model: str, cwd: Path) -> str:
        """A reference that means the same in any directory."""
        from leap_core.models.references.resolving import path_of

        path = path_of(model, variables=self._variables, cwd=cwd)
        return model if path is None else str(path.absolute())

    # -- watching

    def get(self, id: str) -> Job:
        """The job whose id begins so. Raises LeapJobError."""
        return self.table.find(id)

    def list(
        self, *, states: Collection[State] = (), kinds: Collection[str] = (), limit: int | None = None
    ) -> Sequence[Job]:
        """Jobs, newest first."""
        return self.table.jobs(states=states, kinds=kinds, limit=limit)

    def events(self, id: str, attempt: int | None = None) -> Sequence[Event]:
        """What a job has put out: in this attempt, or in the newest one that said anything."""
        id = self.get(id).id
        if attempt is None:
            attempt = self.table.last_attempt_with_output(id)
        return [] if attempt is None else self.table.events(id, attempt)

    def follow(self, id: str) -> Iterator[Event]:
        """The job's output, from its beginning and on as it comes, until the job has ended.

        When an attempt is given up and another begins, the events begin anew with a higher ``attempt``.
        """
        id = self.get(id).id
        attempt = self.table.last_attempt_with_output(id) or 1
        after = -1
        while True:
            job = self.get(id)
            newest = self.table.last_attempt_with_output(id) or attempt
            if newest > attempt:
                attempt, after = newest, -1
            events = self.table.events(id, attempt, after)
            yield from events
            if events:
                after = events[-1].number
            elif job.state.is_final:
                return
            else:
                self.see_to_worker()
                time.sleep(LOOK_SECONDS)

    def changes(self, id: str) -> Iterator[Job]:
        """The job now, and again whenever something about it has changed, until it has ended."""
        id = self.get(id).id
        before: Job | None = None
        while True:
            job = self.get(id)
            if before is None or replace(job, heartbeat=None) != replace(before, heartbeat=None):
                yield job
                before = job
            if job.state.is_final:
                return
            self.see_to_worker()
            time.sleep(LOOK_SECONDS)

    def wait(self, id: str, timeout: float | None = None) -> Job:
        """Wait for the job's end. Raises TimeoutError after so many seconds, LeapUnavailableError without a worker."""
        id = self.get(id).id
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            job = self.get(id)
            if job.state.is_final:
                return job
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"the job {id} is still {job.state.value} after {timeout:g} s")
            self.see_to_worker()
            time.sleep(LOOK_SECONDS)

    def stats(self) -> JsonObject:
        """Counts of jobs by kind and state, and what is known of the worker."""
        counts = self.table.counts()
        kinds = {kind: {state.value: counts.get((kind, state), 0) for state in State} for kind in KINDS}
        return {"jobs": kinds, "worker": self.worker()}

    # -- changing

    def cancel(self, id: str, *, wait: bool = True) -> Job:
        """Cancel a job and wait until it has really stopped. What it has put out is kept; one that ended stays so."""
        job = self.get(id)
        if job.state.is_final:
            return job
        self.table.request_cancel(job.id)
        return self.wait(job.id) if wait else self.get(job.id)

    def retry(self, id: str) -> Job:
        """Queue a failed or cancelled job again; a download and a batch go on where they were."""
        job = self.table.retry(self.get(id).id)
        self._wake([(job.id, job.attempt, job.kind, job.priority)])
        return job

    def remove(self, id: str) -> str:
        """Forget a job that has ended, and its output; its full id."""
        job = self.get(id)
        self.table.remove(job.id)
        _discard_kept(job)
        return job.id

    def prune(self, older_than: float = 0.0, states: Collection[State] = FINAL) -> Sequence[str]:
        """Forget the jobs that ended more than this many seconds ago, or all that ended; their ids."""
        ended = {job.id: job for job in self.table.jobs(states=states)}
        before = time.time() - older_than if older_than > 0 else math.inf  # the clock may have been set back
        ids = self.table.prune(before, states)
        for id in ids:
            if id in ended:
                _discard_kept(ended[id])
        return ids

    # -- the worker

    def worker(self) -> JsonObject:
        """Whether a worker runs, and which."""
        return self._keeper.describe()

    def start_worker(self) -> JsonObject:
        """See to it that a worker runs, and wait until it does. Raises LeapUnavailableError."""
        return self._keeper.start()

    def stop_worker(self) -> bool:
        """End the worker; what it was doing is queued again. False when none runs."""
        return self._keeper.stop()

    def see_to_worker(self) -> None:
        """Start a worker where none runs, if this client does such things. Raises LeapUnavailableError when none comes
        up for a while."""
        if self._autostart:
            self._keeper.see_to_it()

    def see_to_running(self) -> None:
        """Start a worker where one was killed and left jobs behind: one that is stopped queues what runs again, and
        tells that it is gone. Raises nothing when none comes up."""
        if self.table.running() or (self.places.worker_state.exists() and self.table.unfinished()):
            with suppress(LeapUnavailableError, OSError):
                self.see_to_worker()

    def _open_queues(self) -> Queues:
        if self._queues is None:
            from .queue import Queues

            self._queues = Queues(self.places.queue, self.places.queue_url)
        return self._queues

    def _wake(self, messages: Sequence[tuple[str, int, str, int]]) -> None:
        """Have jobs begun. They are in the table: where this fails, whoever asks after them next sees to it."""
        with suppress(LeapUnavailableError):
            self._open_queues().send(messages)
            self.see_to_worker()


def ended_well(jobs: Iterable[Job]) -> None:
    """Raise LeapJobError for the first job that did not succeed."""
    for job in jobs:
        if job.state is not State.SUCCEEDED:
            message = (job.error or {}).get("message", job.state.value)
            raise LeapJobError(f"the job {job.id}: {message}", hint=(job.error or {}).get("hint"))


def _discard_kept(job: Job) -> None:
    if "kept" in job.parameters:
        Path(job.parameters["kept"]).unlink(missing_ok=True)


def _with(job: NewJob, policy: Policy | None) -> NewJob:
    policy = policy or Policy()
    after = time.time() + policy.delay if policy.delay > 0 else 0.0
    return replace(job, priority=policy.priority, retries=policy.retries, run_after=after)


def _label(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= LABEL_CHARACTERS else words[: LABEL_CHARACTERS - 1] + "…"
