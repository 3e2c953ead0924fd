"""A batch on Ray: actors that each have the model answer its lines. Knows nothing of journals and outputs.

Ray places the actors and starts them again elsewhere. Which lines an actor has is known here alone: those of an actor
that dies are handed out again, and an answer that comes for a line that it no longer has is dropped. So Ray tries no
task again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..batch.answering import Answer, RemoteRunner
from ..batch.input.line_index import LineIndex
from ..batch.input.lines import RequestReader
from ..errors import LeapError, LeapModelNotFoundError, LeapUnavailableError
from .line_answerer import GivenLine, LineAnswerer, ModelOfCluster

EXCHANGE_SECONDS = 1.0
"""How long an actor waits for the first outcome before it answers that there is none."""
LOOK_SECONDS = 0.1
"""Between two looks whether the batch is to stop."""
CHECK_SECONDS = 300.0
"""The longest look for the model on all nodes: a large one may have to be hashed."""
MOST_DEATHS = 10
"""Actors that die one after the other without an answer between, before the batch gives up."""


@dataclass
class _Worker:
    """An actor; ``call`` is what it was asked last. ``lines``: what it has, by place."""

    actor: Any
    call: Any
    is_loaded: bool = False
    node: str = ""
    lines: dict[int, tuple[int, LineIndex]] = field(default_factory=dict)


class RayRunner(RemoteRunner):
    """A context manager: entering it starts or joins the cluster, and returns once ``least`` models are loaded.

    ``address``: as ``ray.init`` takes it; None is RAY_ADDRESS, a cluster of this machine, or a new one. ``most``:
    actors, None is as many as there is room for; there are no more than so many ``lines`` keep busy. Entering raises
    LeapUnavailableError where there is no cluster, and LeapModelNotFoundError where a node lacks the model.
    """

    def __init__(
        self,
        model: ModelOfCluster,
        reader: RequestReader,
        concurrency: int,
        *,
        address: str | None = None,
        least: int = 1,
        most: int | None = None,
        lines: int,
    ) -> None:
        self._model, self._reader, self._concurrency = model, reader, concurrency
        self._wanted = max(1, -(-lines // concurrency))
        self._address, self._least, self._most = address, least, most
        self._workers: list[_Worker] = []
        self._deaths = 0
        self._is_ours = False
        self._processors = 1.0
        self.model_id, self.speaks = "", False

    def nodes(self) -> int:
        """On how many nodes a model is loaded."""
        return len({worker.node for worker in self._workers if worker.is_loaded})

    def answering(self, stop: threading.Event) -> _Answers:
        return _Answers(self, stop)

    def __enter__(self) -> RayRunner:
        ray = _quiet_ray()
        if not ray.is_initialized():
            _connect(ray, self._address)
            self._is_ours = True
        try:
            self._check_nodes(ray)
            self._start_actors(ray)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        ray = _quiet_ray()
        for worker in self._workers:
            with suppress(Exception):
                ray.kill(worker.actor)
        if self._is_ours:
            ray.shutdown()

    def _check_nodes(self, ray: Any) -> None:
        """Raises LeapModelNotFoundError that names the nodes without the model, before anything starts."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        if not nodes:
            raise LeapUnavailableError("the Ray cluster has no node with a processor")
        look = ray.remote(num_cpus=0, max_retries=2)(_lack)
        lacking = {}
        for node in nodes:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            lacking[look.options(scheduling_strategy=here).remote(self._model)] = node
        wrong, lost = [], []
        for reference, node in lacking.items():
            try:
                error = ray.get(reference, timeout=CHECK_SECONDS)
            except ray.exceptions.RayError as gone:  # a node that has died, and is still listed
                lost.append(f"{node['NodeManagerHostname']}: {_first_line(gone)}")
                nodes.remove(node)
            else:
                wrong += [] if error is None else [error]
        if wrong:
            told = "; ".join(sorted({error.message for error in wrong}))
            raise LeapModelNotFoundError(told, hint=next((error.hint for error in wrong if error.hint), None))
        if not nodes:
            raise LeapUnavailableError(f"no node of the Ray cluster answers: {lost[0]}")
        threads = self._model.loading.cpu_threads
        self._processors = float(threads or min(node["Resources"]["CPU"] for node in nodes))
        room = sum(int(node["Resources"]["CPU"] // self._processors) for node in nodes)
        self._most = min(self._wanted, max(1, room if self._most is None else self._most))

    def _start_actors(self, ray: Any) -> None:
        assert self._most is not None
        while len(self._workers) < self._most:
            self._workers.append(self._started(ray))
        while sum(worker.is_loaded for worker in self._workers) < min(self._least, self._most):
            for worker, _ in self.finished_calls(ray, self._workers):
                worker.call = None

    def _started(self, ray: Any) -> _Worker:
        gpus = 1 if self._model.loading.n_gpu_layers and ray.cluster_resources().get("GPU") else 0
        actor_class = ray.remote(num_cpus=self._processors, num_gpus=gpus, max_restarts=0, max_task_retries=0)(
            LineAnswerer
        )
        actor = actor_class.remote(self._model, self._reader, self._concurrency)
        return _Worker(actor, actor.load.remote(int(self._processors)))

    def finished_calls(self, ray: Any, workers: list[_Worker]) -> Iterator[tuple[_Worker, list[Any]]]:
        """The actors that have answered, and with what; those that died are replaced. Raises LeapError for a model that
        cannot be loaded, and LeapUnavailableError where actor after actor dies."""
        calls = {worker.call: worker for worker in workers if worker.call is not None}
        if not calls:
            time.sleep(LOOK_SECONDS)
            return
        ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
        if not ready:
            ready, _ = ray.wait(list(calls), num_returns=1, timeout=LOOK_SECONDS)
        for call in ready:
            worker = calls[call]
            try:
                value = ray.get(call)
            except ray.exceptions.RayTaskError as error:
                cause = error.cause
                raise cause if isinstance(cause, LeapError) else LeapUnavailableError(_first_line(error)) from None
            except ray.exceptions.RayError as error:
                self._replace(ray, worker, _first_line(error))
                continue
            if not worker.is_loaded:
                worker.is_loaded = True
                self.model_id, self.speaks, worker.node = value
                yield worker, []
            else:
                yield worker, value

    def _replace(self, ray: Any, worker: _Worker, reason: str) -> None:
        """Another actor in place of one that is lost; its lines stay with it until they are taken."""
        self._deaths += 1
        if self._deaths > MOST_DEATHS:
            raise LeapUnavailableError(f"{self._deaths} actors died without an answer between: {reason}")
        with suppress(Exception):
            ray.kill(worker.actor)
        fresh = self._started(ray)
        worker.actor, worker.call, worker.is_loaded = fresh.actor, fresh.call, False

    def answers(
        self, work: Iterator[tuple[int, LineIndex]], count: int, stop: threading.Event
    ) -> Iterator[tuple[int, str, Answer | LeapError]]:
        """See LineAnswers."""
        ray = _quiet_ray()
        again: deque[tuple[int, LineIndex]] = deque()
        while count and not stop.is_set():
            for worker in self._workers:
                if not worker.is_loaded and worker.lines:  # it was lost
                    again.extend(worker.lines.values())
                    worker.lines = {}
                if worker.is_loaded and worker.call is None:
                    self._hand_out(worker, again, work)
            for worker, outcomes in self.finished_calls(ray, self._workers):
                worker.call = None
                for place, custom_id, answer in outcomes:
                    if place is None:
                        self._replace(ray, worker, str(answer))
                        break
                    if worker.lines.pop(place, None) is not None:
                        count -= 1
                        self._deaths = 0
                        yield place, custom_id, answer

    def _hand_out(
        self, worker: _Worker, again: deque[tuple[int, LineIndex]], work: Iterator[tuple[int, LineIndex]]
    ) -> None:
        """Fill the actor's slots, and as many places before them, and ask what came of its lines."""
        block = []
        while len(worker.lines) < 2 * self._concurrency:
            line = again.popleft() if again else next(work, None)
            if line is None:
                break
            place, lines = line
            raw = self._reader.for_another_machine(lines.raw(place))
            block.append(GivenLine(place, lines.number(place), raw, lines.digest(place)))
            worker.lines[place] = line
        if worker.lines:
            worker.call = worker.actor.exchange.remote(block, EXCHANGE_SECONDS)


class _Answers:
    """The answers of a runner until ``stop`` is set. A context manager."""

    def __init__(self, runner: RayRunner, stop: threading.Event) -> None:
        self._runner, self._stop = runner, stop

    def answers(
        self, work: Iterator[tuple[int, LineIndex]], count: int, /
    ) -> Iterator[tuple[int, str, Answer | LeapError]]:
        return self._runner.answers(work, count, self._stop)

    def __enter__(self) -> _Answers:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _lack(model: ModelOfCluster) -> LeapError | None:
    """Why this node cannot answer with the model."""
    try:
        model.reference_here()
    except LeapError as error:
        return error
    return None


def _quiet_ray() -> Any:
    """Ray, which sends no usage statistics and writes nothing to the terminal."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise LeapUnavailableError("Ray is not installed", hint="pip install 'leap-edge[ray]'") from None
    return ray


def _connect(ray: Any, address: str | None) -> None:
    options: dict[str, Callable[..., Any] | Any] = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    with suppress(AttributeError):  # no setting keeps what it says about dead nodes from standard output
        ray._private.worker.print_to_stdstream = lambda *_args, **_given: None
    try:
        ray.init(address=address, include_dashboard=None if address else False, **options)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        where = address or os.environ.get("RAY_ADDRESS") or "this machine"
        raise LeapUnavailableError(f"no Ray cluster at {where}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
