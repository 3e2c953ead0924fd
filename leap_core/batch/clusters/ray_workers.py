"""A batch on Ray: nodes that are joined and asked, actors that answer lines, and those of a dead one handed out again.

Ray places the actors and starts them again on other nodes. Which lines an actor has is known here alone: those of an
actor that dies are handed out again, and an answer that comes for a line that it no longer has is dropped. So Ray tries
no task again.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import Any, TypeAlias, TypeVar

from ...errors import LeapError, LeapGenerationError, LeapModelNotFoundError, LeapUnavailableError
from ...system import __version__
from ...system.dataclass import dataclass
from ..answering import Answer, LineWorkers
from ..input.line_index import LineIndex, read_again
from ..input.lines import RequestReader
from .line_answerer import GivenLine, Lack, LineAnswerer, ModelOfCluster

NodeAnswer = TypeVar("NodeAnswer")
NODE_SECONDS = 20.0
"""The longest look at a cluster that nobody is about to use."""
CLIENT_TRIES = 3
"""How often a client asks for its server process, which a busy head may not start in Ray's 30 s."""


@dataclass(frozen=True)
class NodeFacts:
    """``error``: why the node cannot take part."""

    host: str
    processors: float
    gpus: float
    leap: str | None = None
    error: str | None = None


def ray_module() -> Any:
    """Ray, which sends no usage statistics. Raises LeapUnavailableError where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise LeapUnavailableError("Ray is not installed", hint="pip install 'leap-edge[ray]'") from None
    return ray


def connect(ray: Any, address: str | None) -> None:
    """Join the cluster; Ray writes nothing to the terminal then. Raises LeapUnavailableError."""
    with suppress(AttributeError):  # no setting keeps what it says about dead nodes from standard output
        ray._private.worker.print_to_stdstream = lambda *_args, **_given: None
    options: dict[str, Any] = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    for tries_left in reversed(range(CLIENT_TRIES)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what they say comes with the error too
                ray.init(address=address, include_dashboard=None if address else False, **options)
            return
        except (ConnectionError, ValueError, RuntimeError, OSError, ImportError) as error:
            if tries_left and isinstance(error, ConnectionAbortedError):
                continue
            where = address or os.environ.get("RAY_ADDRESS") or "this machine"
            raise LeapUnavailableError(f"no Ray cluster at {where}: {ray_reason(error)}") from None


def living_nodes(ray: Any) -> list[Any]:
    """Those with a processor. Raises LeapUnavailableError where there are none."""
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    if not nodes:
        raise LeapUnavailableError("the Ray cluster has no node with a processor")
    return nodes


def on_each(
    ray: Any, nodes: list[Any], ask: Callable[..., NodeAnswer], *arguments: object, seconds: float | None = None
) -> Iterator[tuple[Any, NodeAnswer | str]]:
    """What ``ask`` gives on each node that lives to answer; a text where it cannot run there."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=2)(ask)
    calls = []
    for node in nodes:
        here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        calls.append((node, task.options(scheduling_strategy=here).remote(*arguments)))
    for node, call in calls:
        try:
            yield node, ray.get(call, timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            yield node, f"no answer in {seconds:g} s"
        except ray.exceptions.RayTaskError as error:
            yield node, first_line(error.cause or error)
        except ray.exceptions.RayError:  # a node that has died, and is still listed
            continue


def look_at(address: str | None) -> list[NodeFacts]:
    """The nodes of a cluster. Raises LeapUnavailableError where there is none, or no Ray."""
    ray = ray_module()
    with _joined(ray, address):
        facts = []
        for node, found in on_each(ray, living_nodes(ray), _versions, seconds=NODE_SECONDS):
            given = node["Resources"]
            host, leap, error = (node["NodeManagerHostname"], None, found) if isinstance(found, str) else (*found, None)
            if error is None and leap != __version__:
                error = f"leap {leap}, and this is {__version__}"
            facts.append(NodeFacts(host, given.get("CPU", 0.0), given.get("GPU", 0.0), leap, error))
        return facts


@contextmanager
def _joined(ray: Any, address: str | None) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    connect(ray, address)
    try:
        yield
    finally:
        ray.shutdown()


def _versions() -> tuple[str, str]:
    """This node, and its leap."""
    return socket.gethostname(), __version__


def ray_reason(error: BaseException) -> str:
    """Why Ray did not connect: the first line, and the last line of a traceback that the head of the cluster sent."""
    first = first_line(error)
    last = str(error).strip().splitlines()[-1:]
    return first if last in ([], [first]) or not first.endswith(":") else f"{first} {last[0].strip()}"


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


Line: TypeAlias = "tuple[int, LineIndex]"
"""A line's place in the batch, and the lines that it is of."""
MOST_TOGETHER = 2
"""A line that was lost so often, with others, is handed out alone from then on."""
MOST_LOSSES = 5
"""A line that was lost so often, the last times alone, is given up."""


class Hand(dict[int, Line]):
    """What one process has, by place. ``is_alone``: one line that others are kept away from."""

    is_alone = False


class HandingOut:
    """Gives out each line of ``work`` until it is answered. ``size``: lines that a process has at once."""

    def __init__(self, work: Iterator[Line], size: int) -> None:
        self._work, self._size = work, size
        self._again: deque[Line] = deque()
        self._alone: deque[Line] = deque()
        self._losses: Counter[int] = Counter()

    def fill(self, hand: Hand) -> list[Line]:
        """More lines for a process that has these; they are in its hand then. Those that are to be alone come when
        there are no others."""
        fresh: list[Line] = []
        while len(hand) < self._size and not hand.is_alone:
            line = self._again.popleft() if self._again else next(self._work, None)
            if line is None:
                break
            fresh.append(line)
            hand[line[0]] = line
        if not hand and self._alone:
            line = self._alone.popleft()
            hand[line[0]], hand.is_alone = line, True
            fresh.append(line)
        return fresh

    def answered(self, hand: Hand, place: int) -> bool:
        """Whether the process still has this line; it has it no longer."""
        if hand.pop(place, None) is None:
            return False
        hand.is_alone = False
        self._losses.pop(place, None)
        return True

    def lost(self, hand: Hand) -> list[Line]:
        """A process is lost, its lines come again; those alone that are given up."""
        given_up = []
        for place, line in hand.items():
            self._losses[place] += 1
            if hand.is_alone and self._losses[place] >= MOST_LOSSES:
                given_up.append(line)
            else:
                (self._alone if self._losses[place] >= MOST_TOGETHER else self._again).append(line)
        hand.clear()
        hand.is_alone = False
        return given_up


EXCHANGE_SECONDS = 1.0
"""How long an actor waits for the first outcome before it answers that there is none."""
LOOK_SECONDS = 0.1
"""Between two looks whether the batch is to stop."""
MOST_DEATHS = 10
"""Actors that die one after the other without an answer between, before the batch gives up."""


@dataclass
class _Worker:
    """An actor; ``call`` is what it was asked last."""

    actor: Any
    call: Any
    is_loaded: bool = False
    node: str = ""
    lines: Hand = field(default_factory=Hand)


class RayWorkers(LineWorkers):
    """A context manager: entering it starts or joins the cluster, and returns once ``least`` models are loaded.

    ``address``: as ``ray.init`` takes it; None is RAY_ADDRESS, a cluster of this machine, or a new one. ``most``:
    actors, None is as many as there is space for; there are no more than so many ``lines`` keep busy. Nodes that lack
    the model and may fetch it do so first, and ``on_note`` is called with that. Entering raises
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
        on_note: Callable[[str], object] = lambda _text: None,
    ) -> None:
        self._model, self._reader, self._concurrency = model, reader, concurrency
        self._wanted = max(1, -(-lines // concurrency))
        self._address, self._least, self._most = address, least, most
        self._on_note = on_note
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

    def __enter__(self) -> RayWorkers:
        ray = ray_module()
        if not ray.is_initialized():
            connect(ray, self._address)
            self._is_ours = True
        try:
            self._check_nodes(ray)
            self._start_actors(ray)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        ray = ray_module()
        for worker in self._workers:
            with suppress(Exception):
                ray.kill(worker.actor)
        if self._is_ours:
            ray.shutdown()

    def _check_nodes(self, ray: Any) -> None:
        """Have the model on all nodes. Raises LeapModelNotFoundError that names those without it, before anything
        starts."""
        looks = self._looks(ray, living_nodes(ray), ModelOfCluster.look)
        nodes = [node for node, _ in looks]
        _refuse([lack for _, lack in looks if lack is not None and not lack.may_be_fetched])
        lacking = [node for node, lack in looks if lack is not None]
        if lacking:
            several = len(lacking) > 1
            self._on_note(f"{len(lacking)} node{'s fetch' if several else ' fetches'} {self._model.reference}")
            fetched = self._looks(ray, lacking, ModelOfCluster.fetch)
            _refuse([lack for _, lack in fetched if lack is not None])
        threads = self._model.loading.cpu_threads
        self._processors = float(threads or min(node["Resources"]["CPU"] for node in nodes))
        room = sum(int(node["Resources"]["CPU"] // self._processors) for node in nodes)
        self._most = min(self._wanted, max(1, room if self._most is None else self._most))

    def _looks(
        self, ray: Any, nodes: list[Any], look: Callable[[ModelOfCluster], Lack | None]
    ) -> list[tuple[Any, Lack | None]]:
        """What the nodes lack. Raises LeapUnavailableError where none answers."""
        found: list[tuple[Any, Lack | None]] = []
        for node, lack in on_each(ray, nodes, look, self._model):
            if isinstance(lack, str):
                lack = Lack(LeapUnavailableError(f"{node['NodeManagerHostname']}: {lack}"), False)
            found.append((node, lack))
        if not found:
            raise LeapUnavailableError("no node of the Ray cluster answers")
        return found

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
                raise cause if isinstance(cause, LeapError) else LeapUnavailableError(first_line(error)) from None
            except ray.exceptions.RayError as error:
                self._replace(ray, worker, first_line(error))
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
        ray = ray_module()
        lines = HandingOut(work, 2 * self._concurrency)
        while count and not stop.is_set():
            for worker in self._workers:
                if not worker.is_loaded and worker.lines:  # it was lost
                    for place, of in lines.lost(worker.lines):
                        count -= 1
                        self._deaths = 0
                        yield place, *self._killer(place, of)
                if worker.is_loaded and worker.call is None:
                    self._hand_out(worker, lines.fill(worker.lines))
            for worker, outcomes in self.finished_calls(ray, self._workers):
                worker.call = None
                for place, custom_id, answer in outcomes:
                    if place is None:
                        self._replace(ray, worker, str(answer))
                        break
                    if lines.answered(worker.lines, place):
                        count -= 1
                        self._deaths = 0
                        yield place, custom_id, answer

    def _hand_out(self, worker: _Worker, lines: list[Line]) -> None:
        """Give the actor these lines, and ask what came of all that it has."""
        block = []
        for place, of in lines:
            raw = self._reader.for_another_machine(of.raw(place))
            block.append(GivenLine(place, of.number(place), raw, of.digest(place)))
        if worker.lines:
            worker.call = worker.actor.exchange.remote(block, EXCHANGE_SECONDS)

    def _killer(self, place: int, lines: LineIndex) -> tuple[str, LeapError]:
        """The name and the outcome of a line that is given up."""
        custom_id, _ = read_again(self._reader, lines, place)
        told = f"{MOST_LOSSES} processes died while they had this line, the last ones while they had no other"
        return custom_id, LeapGenerationError(told)


class _Answers:
    """The answers of a runner until ``stop`` is set. A context manager."""

    def __init__(self, runner: RayWorkers, stop: threading.Event) -> None:
        self._runner, self._stop = runner, stop

    def answers(
        self, work: Iterator[tuple[int, LineIndex]], count: int, /
    ) -> Iterator[tuple[int, str, Answer | LeapError]]:
        return self._runner.answers(work, count, self._stop)

    def __enter__(self) -> _Answers:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _refuse(lacks: list[Lack]) -> None:
    """Raises LeapModelNotFoundError that names the nodes, if there are any."""
    if lacks:
        told = "; ".join(sorted({lack.error.message for lack in lacks}))
        raise LeapModelNotFoundError(told, hint=next((lack.error.hint for lack in lacks if lack.error.hint), None))
