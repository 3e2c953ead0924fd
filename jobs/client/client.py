"""``JobsClient``: the jobs of one data directory."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.request import Request
from leap_core.errors import LeapJobError, LeapUnavailableError
from leap_core.models.digests import ModelDigests
from leap_core.schemas.json_values import JsonObject
from leap_core.system.dataclass import dataclass

from ..configuration import JobsConfiguration
from ..scheduling.schedules import PAUSED, RUN, SKIP, Every, repeated, resume
from ..submission.new_jobs import (
    Following,
    Submitter,
    batch_job,
    command_job,
    discard_input,
    download_job,
    folder_job,
    followers,
    function_job,
    generation_job,
    transcription_job,
)
from ..submission.shared_jobs import SharedModel, add_batch, shared_batch, shared_job, shared_model
from ..table.claims import WorkerRow, WorkerRows
from ..table.job import FINAL, KINDS, SCHEDULE, Job, NewJob, State
from ..table.requests import BUILTIN, AnswerRequest, BatchRequest, DownloadRequest, TranscriptRequest
from ..table.table import Table
from ..worker_process import WorkerKeeper
from .results import NO_WORKER, lines_of, waiting_reason, write_lines
from .watching import JobWatcher

if TYPE_CHECKING:
    from leap_core.batch.settings import BatchSettings
    from leap_core.conversation.calls import LeapFunction

    from ..queue import WakeUpQueue


WORKERS_SECONDS = 5.0
"""The client looks this often whether any worker of a server is alive."""


@dataclass(frozen=True)
class Policy:
    """``priority``: higher goes first. ``retries``: how often a failed job is tried again. ``delay``: seconds
    before the first attempt. ``after``: ids of jobs, or their beginnings, that must have ended well before it begins,
    ``after_any``: in any way. ``then``: what is done when it has ended. ``every``: when it is due again and again;
    ``missed``: ``run`` or ``skip`` what was due while no worker ran; ``overlap``: ``skip`` or ``queue`` what is due
    while the one before continues. ``client``: the program that asks, in letters and digits, for ``list``. ``command``:
    the command line that asked for the job, for people."""

    priority: int = 0
    retries: int = 2
    delay: float = 0.0
    after: Sequence[str] = ()
    after_any: Sequence[str] = ()
    then: Following | None = None
    every: str | None = None
    missed: str = RUN
    overlap: str = SKIP
    client: str | None = None
    command: Sequence[str] = ()


class JobsClient(JobWatcher):
    """The jobs of one data directory. Safe to use from several threads; a context manager.

    ``variables`` replace the process's environment. With ``autostart`` a worker is started where none
    runs; without it jobs wait for one. ``on_warning``
    is called if a job will have to wait for long.
    """

    def __init__(
        self,
        variables: Mapping[str, str] | None = None,
        *,
        autostart: bool = True,
        on_warning: Callable[[str], object] = lambda _message: None,
    ) -> None:
        self._variables = dict(os.environ if variables is None else variables)
        self.configuration = JobsConfiguration.from_environment(self._variables)
        self.table = Table(self.configuration.table_place)
        self._autostart, self._on_warning = autostart, on_warning
        self._warned: str | None = None
        self._workers_looked = float("-inf")
        self._queue: WakeUpQueue | None = None
        self._submitter = Submitter(self.configuration, self._variables)
        self._keeper = WorkerKeeper(self.configuration, self._variables)

    def close(self) -> None:
        if self._queue is not None:
            self._queue.close()
        self.table.close()

    def __enter__(self) -> JobsClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- submitting

    def generate(self, prompt: str | Sequence[ChatMessage], *, policy: Policy | None = None, **request: Any) -> str:
        """Answer a prompt, or a conversation, in the background; the job's id. ``request``: as of ``generation``."""
        request.setdefault("model_may_come", _comes_after(policy))
        return self.submit([self._with(self.generation(prompt, **request), policy)])[0]

    def generation(
        self,
        prompt: str | Sequence[ChatMessage],
        *,
        system: str | None = None,
        options: GenerationOptions | None = None,
        functions: Sequence[LeapFunction] = (),
        **request: Any,
    ) -> NewJob:
        """A job that answers a prompt, to be submitted with others. ``request``: other fields of AnswerRequest. Raises
        LeapModelNotFoundError when this machine has no such model."""
        messages = [ChatMessage("user", prompt)] if isinstance(prompt, str) else list(prompt)
        if system is not None:
            messages.insert(0, ChatMessage("system", system))
        answer = AnswerRequest(request=Request(messages, functions, options or GenerationOptions()), **request)
        place = self._shared_model(answer.model, answer.cwd)
        if place is None:
            return generation_job(answer, self._submitter)
        job = generation_job(replace(answer, model=BUILTIN), self._submitter)  # perhaps only a worker has the model
        return shared_job(job, place)

    def transcribe(self, data: bytes, name: str, *, policy: Policy | None = None, **request: Any) -> str:
        """Write down what is said in a sound, which messages call ``name``, in the background; the job's id.
        ``request``: fields of TranscriptRequest. Raises LeapSerializationError for what is no sound."""
        asked = TranscriptRequest(label=name, **request)
        place = self._shared_model(asked.model, asked.cwd)
        with self._keeping(transcription_job(asked, data, self._submitter)) as job:
            if place is not None:  # the sound is kept in a file here
                job = replace(shared_job(job, place), machine=self.configuration.machine)
            return self.submit([self._with(job, policy)])[0]

    def download(self, model: str, *, policy: Policy | None = None, **request: Any) -> str:
        """Download a model in the background, to this machine; the job's id. ``request``: fields of
        DownloadRequest."""
        job = download_job(DownloadRequest(model, **request), self._variables)
        if self.configuration.is_shared:
            job = replace(job, machine=self.configuration.machine)
        return self.submit([self._with(job, policy)])[0]

    def function(self, name: str, arguments: JsonObject, *, label: str, policy: Policy | None = None) -> str:
        """Call a function of a feature or plugin in the background; the job's id. ``arguments``: what it finds in its
        FunctionJob. ``label``: what lists of jobs show."""
        return self.submit([self._with(function_job(name, arguments, label, self._submitter), policy)])[0]

    def watch_folder(
        self,
        directory: Path,
        arguments: Sequence[str],
        *,
        patterns: Sequence[str] = (),
        cwd: Path | None = None,
        outputs: Sequence[int] = (),
    ) -> str:
        """Run leap with these arguments for each file that comes into a directory and fits a pattern; the id of the
        job that sees to it. ``{}``, ``{name}`` and ``{stem}`` represent the file; without one it comes last.
        ``outputs``: which of the arguments name a file that is written, as ``--output=NAME``; no two files get one."""
        job = folder_job(directory, patterns, arguments, cwd or Path.cwd(), self._submitter, outputs)
        return self.submit([job])[0]

    def command(
        self,
        arguments: Sequence[str],
        *,
        label: str,
        cwd: Path | None = None,
        policy: Policy | None = None,
        **request: Any,
    ) -> str:
        """Run leap with these arguments in the background; the job's id. What it prints is the job's output.
        ``request``: ``outputs`` and ``standard_input`` of ``command_job``. Raises LeapJobError on a server."""
        with self._keeping(command_job(arguments, label, cwd or Path.cwd(), self._submitter, **request)) as job:
            return self.submit([self._with(job, policy)])[0]

    def batch(self, settings: BatchSettings, *, policy: Policy | None = None, **request: Any) -> str:
        """Answer the lines of a file in the background; the job's id. All lines are checked before it is submitted.
        ``request``: fields of BatchRequest."""
        request.setdefault("model_may_come", _comes_after(policy))
        asked = BatchRequest(settings=settings, **request)
        if self.configuration.is_shared:
            return self._shared_batch(asked, policy)
        with self._keeping(batch_job(asked, self._submitter)) as job:
            return self.submit([self._with(job, policy)])[0]

    @contextmanager
    def _keeping(self, job: NewJob) -> Iterator[NewJob]:
        """The job while it is submitted; where that fails, what was kept for it goes."""
        try:
            yield job
        except BaseException:
            discard_input(job.parameters, self.configuration)
            raise

    def _shared_batch(self, request: BatchRequest, policy: Policy | None) -> str:
        if policy is not None and policy.every:
            raise LeapJobError("a batch on a server comes only once: its lines are in the table")
        with shared_batch(request, self._submitter, self.workers()) as batch:
            id = add_batch(self.table, replace(batch, job=self._with(batch.job, policy)))
        job = self.get(id)
        self._wake([(id, 1, job.kind, job.priority)])
        self._warn_of_waiting([job])
        return id

    def _shared_model(self, model: str, cwd: Path) -> SharedModel | None:
        """A model for a job on a server; None where jobs stay on this machine."""
        if not self.configuration.is_shared:
            return None
        return shared_model(model, self._submitter, cwd, self.workers())

    def _with(self, job: NewJob, policy: Policy | None) -> NewJob:
        """The job as the policy wants it. Raises LeapJobError for jobs to come after that are not there, and for what
        cannot follow a job on a server."""
        policy, usual = policy or Policy(), None
        if self.configuration.webhook is not None and not self.configuration.is_shared:
            usual = Following(webhook=self.configuration.webhook)
        then = policy.then or usual
        marks = {"client": policy.client, "command": list(policy.command)}
        made = replace(
            job,
            parameters={**job.parameters, **{name: value for name, value in marks.items() if value}},
            priority=policy.priority,
            retries=policy.retries,
            run_after=time.time() + policy.delay if policy.delay > 0 else 0.0,
            after=tuple(self.table.find(id).id for id in policy.after),
            after_any=tuple(self.table.find(id).id for id in policy.after_any),
            followers=() if then is None else followers(then, self._submitter),
        )
        if policy.every is None:
            return made
        if made.after or made.after_any:
            raise LeapJobError("a job that comes again and again comes after no other one")
        return repeated(made, Every.of(policy.every), missed=policy.missed, overlap=policy.overlap)

    def submit(self, jobs: Iterable[NewJob]) -> Sequence[str]:
        """Queue jobs, all or none, and start a worker where none runs; their ids."""
        jobs = list(jobs)
        self._open_queue()  # on a full disk it says so, before anything is queued
        ids = self.table.add(jobs)
        now = time.time()
        due = [job.run_after <= now and not job.after and not job.after_any for job in jobs]
        for id, job in zip(ids, jobs, strict=True):
            if job.run_after > now:
                begin = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.run_after))
                self._on_warning(
                    f"{id}: the first run begins at {begin}" if job.kind == SCHEDULE else f"{id} begins at {begin}"
                )
        self._wake([(id, 1, job.kind, job.priority) for id, job, is_due in zip(ids, jobs, due, strict=True) if is_due])
        if self.configuration.is_shared:
            different = {(job.model, job.machine): id for id, job in zip(ids, jobs, strict=True)}
            self._warn_of_waiting([self.get(id) for id in different.values()])
        return ids

    # -- watching: see JobWatcher

    def stats(self) -> JsonObject:
        """Counts of jobs by kind and state, and the worker's description."""
        counts = self.table.counts()
        kinds = {kind: {state.value: counts.get((kind, state), 0) for state in State} for kind in KINDS}
        return {"jobs": kinds, "worker": self.worker()}

    # -- changing

    def cancel_all(self) -> Sequence[str]:
        """Cancel all queued jobs, and ask the running ones to stop; the ids of both."""
        jobs = self.table.jobs(states=[State.QUEUED, State.RUNNING])
        self.table.cancel_all()
        return [job.id for job in jobs]

    def meant_by(self, ids: Iterable[str]) -> dict[str, str]:
        """The ids that begin like these, by what was given, where that is not whole; unknown ones are left out."""
        meant = {}
        for id in ids:
            with suppress(LeapJobError):
                found = self.table.find(id).id
                if found != id:
                    meant[id] = found
        return meant

    def cancel(self, id: str, *, wait: bool = True) -> Job:
        """Cancel a job and wait until it has really stopped. What it has put out is kept; one that ended stays so."""
        job = self.get(id)
        if job.state.is_final:
            return job
        self.table.request_cancel(job.id)
        self.table.release()
        return self.wait(job.id) if wait else self.get(job.id)

    def retry(self, id: str) -> Job:
        """Queue a failed or cancelled job again; a download and a batch resume where they were, a schedule with its
        next time."""
        job = self.table.retry(self.get(id).id)
        if job.kind == SCHEDULE:
            resume(self.table, job)
        self._wake([(job.id, job.attempt, job.kind, job.priority)])
        return job

    def remove(self, id: str) -> str:
        """Forget a job that has ended, and its output; its full id."""
        job = self.get(id)
        self.table.remove(job.id)
        discard_input(job.parameters, self.configuration)
        return job.id

    def prunable(self, older_than: float = 0.0, states: Collection[State] = FINAL) -> Sequence[str]:
        """The ids of the jobs that ``prune`` would forget."""
        before = _ended_before(older_than)
        return [job.id for job in self.table.jobs(states=states) if job.finished is not None and job.finished < before]

    def prune(self, older_than: float = 0.0, states: Collection[State] = FINAL) -> Sequence[str]:
        """Forget the jobs that ended more than this many seconds ago, or all that ended; their ids."""
        ended = {job.id: job for job in self.table.jobs(states=states)}
        ids = self.table.prune(_ended_before(older_than), states)
        for id in ids:
            if id in ended:
                discard_input(ended[id].parameters, self.configuration)
        return ids

    # -- the worker

    def worker(self) -> JsonObject:
        """Whether a worker runs, and which."""
        return self._keeper.describe()

    def start_worker(self) -> JsonObject:
        """Start a worker where none runs, and wait until it is up. Raises LeapUnavailableError."""
        return self._keeper.start()

    def stop_worker(self) -> bool:
        """End the worker; what it was doing is queued again. False when none runs."""
        return self._keeper.stop()

    def ensure_worker(self, job: Job | None = None) -> None:
        """Start a worker where none runs, if autostart is on. Raises LeapUnavailableError when none comes up for a
        while. On a server nothing is started: ``on_warning`` is called when no worker is alive, or none can do
        ``job``."""
        if self.configuration.is_shared:
            now = time.monotonic()
            if now - self._workers_looked > WORKERS_SECONDS:
                self._workers_looked = now
                self._warn_of_waiting([] if job is None else [job])
        elif self._autostart:
            self._keeper.ensure_running()

    def workers(self) -> Sequence[WorkerRow]:
        """The workers that report to the table: of this machine, or of all that share the server."""
        return WorkerRows(self.table.database).all()

    def drain(self, ids: Collection[str]) -> int:
        """Have workers end after their work; how many do."""
        return WorkerRows(self.table.database).drain(ids)

    def output(self, id: str) -> Iterator[str]:
        """The lines of a job's output, in the order of its input, as far as they are there."""
        return lines_of(self.table.find(id), self.table.database)

    def write_output(self, id: str, path: Path) -> int:
        """Write the lines of a job's output to a file, or continue where an earlier call ended; how many were
        written."""
        job = self.table.find(id)
        return write_lines(lines_of(job, self.table.database), path, job)

    def is_due(self, schedule: Job) -> bool:
        """Whether a schedule has a next run: it has not ended, and is not paused."""
        return not schedule.state.is_final and schedule.run_after < PAUSED

    def waiting_reason(self, job: Job) -> str | None:
        """What a job waits for: other jobs, its time, or on a server a worker, such as one that has its model; None
        where one will do it."""
        if job.kind == SCHEDULE and job.run_after >= PAUSED:
            return "leap jobs schedules --resume"
        if waited := job.comes_after:
            return f"the end of {', '.join(waited)}"
        if job.state is State.QUEUED and not job.failures and job.run_after > time.time():
            return f"its time, {time.strftime('%Y-%m-%d %H:%M', time.localtime(job.run_after))}"
        return self._waiting_reason(job, self.workers()) if self.configuration.is_shared else None

    def _waiting_reason(self, job: Job, workers: Sequence[WorkerRow]) -> str | None:
        digests = ModelDigests(self.configuration.directories)
        return waiting_reason(job, workers, lambda model: model in digests.installed())

    def _warn_of_waiting(self, jobs: Sequence[Job]) -> None:
        """Say why the first of these jobs waits that does; without one, when no worker is alive."""
        workers = self.workers()
        reasons = [self._waiting_reason(job, workers) for job in jobs]
        if not jobs and not any(worker.is_alive and not worker.draining for worker in workers):
            reasons = [NO_WORKER]
        message = next(filter(None, reasons), None)
        if message is not None and message != self._warned:
            self._on_warning(message)
        self._warned = message

    def ensure_worker_for_unfinished(self) -> None:
        """Start a worker where one was killed and left jobs behind. One that was stopped has queued its jobs again and
        removed its state file, and is not replaced. Raises nothing when none comes up."""
        if self.configuration.is_shared:
            return
        with suppress(LeapUnavailableError, OSError):
            if self.table.running() or (self.configuration.worker_state.exists() and self.table.unfinished()):
                self.ensure_worker()

    def _open_queue(self) -> WakeUpQueue | None:
        if self._queue is None and not self.configuration.is_shared:  # a server that keeps the jobs wakes workers
            from ..queue import WakeUpQueue

            self._queue = WakeUpQueue(self.configuration.queue)
        return self._queue

    def _wake(self, messages: Sequence[tuple[str, int, str, int]]) -> None:
        """Wake the worker. On failure the next status query retries: the jobs are in the table."""
        with suppress(LeapUnavailableError):
            queue = self._open_queue()
            if queue is not None:
                queue.send(messages)
            self.ensure_worker()


def _comes_after(policy: Policy | None) -> bool:
    return policy is not None and bool(policy.after or policy.after_any)


def _ended_before(older_than: float) -> float:
    return time.time() - older_than if older_than > 0 else math.inf  # the clock may have been set back
