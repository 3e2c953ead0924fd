"""What ``leap doctor`` looks at in a Ray cluster.

``python -m leap_cli.diagnosis.ray_cluster ADDRESS`` writes the nodes, or why there are none, as one JSON line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from leap_core.errors import LeapError

from ..framework.environment import Environment
from .checks import OK, PROBLEM, WARNING, Check

AUTO = "auto"
"""Ray's word for a cluster that runs on this machine; none is started for it."""


def cluster(env: Environment, on: str | None, patience: float) -> Iterator[Check]:
    """The cluster ``on`` (``ray``, ``ray://HOST:PORT``), or that of RAY_ADDRESS, if any."""
    from leap_core.batch.clusters.opening import ADDRESS_VARIABLE, RAY, address_of
    from leap_core.system.processes import child_environment

    if on is None and not env.variables.get(ADDRESS_VARIABLE):
        return
    address = address_of(on or RAY, env.variables) or AUTO
    variables = child_environment({**os.environ, **env.variables})
    command = [sys.executable, "-m", "leap_cli.diagnosis.ray_cluster", address]
    where = "this machine" if address == AUTO else address
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=patience, env=variables, check=False
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        found = {"error": f"{where} did not answer in {patience:g} s", "hint": None}
    except (OSError, ValueError, IndexError):
        found = {"error": f"the look at {where} ended without an answer", "hint": None}
    yield _check(found)


def _check(found: dict[str, Any]) -> Check:
    if "error" in found:
        return Check("Ray cluster", PROBLEM, found["error"], found["hint"] or "ray status says what Ray knows")
    nodes = found["nodes"]
    processors, gpus = (sum(node[name] for node in nodes) for name in ("processors", "gpus"))
    detail = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}, {processors:g} processors, {gpus:g} GPUs"
    wrong = [f"{node['host']}: {node['error']}" for node in nodes if node["error"]]
    advice = "install the same leap on every node" if wrong else None
    return Check("Ray cluster", WARNING if wrong else OK, "; ".join([detail, *wrong[:5]]), advice, found)


def _look(address: str) -> dict[str, Any]:
    from leap_core.batch.clusters.ray_workers import look_at

    try:
        return {"nodes": [asdict(node) for node in look_at(address)]}
    except LeapError as error:
        return {"error": error.message, "hint": error.hint}


if __name__ == "__main__":
    print(json.dumps(_look(sys.argv[1])), flush=True)
