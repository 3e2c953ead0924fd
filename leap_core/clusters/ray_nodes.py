"""A Ray cluster and its nodes: joining it quietly, and asking each node something."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from .. import __version__
from ..errors import LeapUnavailableError

NodeAnswer = TypeVar("NodeAnswer")
LOOK_SECONDS = 20.0
"""The longest look at a cluster that nobody is about to use."""


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
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say comes with the error too
            ray.init(address=address, include_dashboard=None if address else False, **options)
    except (ConnectionError, ValueError, RuntimeError, OSError, ImportError) as error:
        where = address or os.environ.get("RAY_ADDRESS") or "this machine"
        raise LeapUnavailableError(f"no Ray cluster at {where}: {first_line(error)}") from None


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
        for node, found in on_each(ray, living_nodes(ray), _versions, seconds=LOOK_SECONDS):
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


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
