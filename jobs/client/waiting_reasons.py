"""Why a job on a server waits: no worker is alive, or none of them has its model or is on its machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..table.job import BATCH, Job, State
from ..table.worker_rows import WorkerRow

NO_WORKER = "no worker is alive: the job waits until one is started with leap jobs worker"


def waiting_reason(job: Job, workers: Sequence[WorkerRow], is_here: Callable[[str], bool]) -> str | None:
    """What a queued job, or a batch that runs, waits for; None where a worker will do it. ``is_here`` says whether
    this machine has the model of a SHA-256."""
    if job.state is not State.QUEUED and not (job.kind == BATCH and job.state is State.RUNNING):
        return None
    alive = [worker for worker in workers if worker.is_alive and not worker.draining]
    if not alive:
        return NO_WORKER
    if job.machine is not None and not any(worker.machine == job.machine for worker in alive):
        return f"no worker is alive on {job.machine}, which alone can do the job"
    if job.model is None or any(job.model in worker.models for worker in alive):
        return None
    return _without_model(job, job.model, workers, alive, is_here)


def _without_model(
    job: Job, model: str, workers: Sequence[WorkerRow], alive: Sequence[WorkerRow], is_here: Callable[[str], bool]
) -> str:
    name = job.parameters.get("model") or model[:12]
    fetching = sorted({worker.machine for worker in alive if worker.fetches})
    if job.origin is not None and fetching:
        return f"no worker that is alive has the model {name} yet: {', '.join(fetching)} will fetch it"
    places = [
        f"{worker.machine} has it, where the worker {worker.name} {'drains' if worker.is_alive else 'is not alive'}"
        for worker in workers
        if model in worker.models
    ]
    if not places and is_here(model):
        places = ["this machine has it: leap jobs worker starts a worker here"]
    return f"no worker that is alive has the model {name}; {'; '.join(places) or 'the job waits for one'}"
