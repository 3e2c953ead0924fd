"""Answers a batch on a Ray cluster of several nodes while nodes, actors and the driver are killed, and compares.

    python scripts/torture_ray.py                            # 2,000 lines, three nodes, ten rounds
    python scripts/torture_ray.py --lines 60 --rounds 2

Says what it saw as one JSON document. Fails unless the output is byte for byte that of one machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

KINDS = ("node", "actor", "driver")
LONGEST_SECONDS = 1200.0


def free_port() -> int:
    """A port of this machine that nobody listens at. Linux gives none of this range to connections that ask for any,
    and Ray none to its own processes, so it stays free until the cluster takes it."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(24_100, 32_000))) as free:
            return int(free.getsockname()[1])


class Nodes:
    """A Ray cluster on this machine: a head without processors, and nodes that are added and killed. ``client_port``:
    where it also takes clients (ray://)."""

    def __init__(self, count: int, client_port: int | None = None) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ["RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S"] = "300"  # a client's server on a busy machine
        from ray.cluster_utils import Cluster

        head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False}
        if client_port is not None:
            # The server of clients asks the head's agent, which Ray 2.60 looks for at port 0 where none is named.
            head |= {"ray_client_server_port": client_port, "runtime_env_agent_port": free_port()}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self._nodes = [self._cluster.add_node(num_cpus=1, wait=False) for _ in range(count)]
        self._cluster.wait_for_nodes()
        self.address = str(self._cluster.address)

    def kill_one(self, chance: random.Random) -> None:
        """Kill a node with all that runs on it; another one comes in its place."""
        node = self._nodes.pop(chance.randrange(len(self._nodes)))
        self._cluster.remove_node(node, allow_graceful=False)
        self._nodes.append(self._cluster.add_node(num_cpus=1, wait=False))

    def actors(self) -> list[int]:
        """The processes that have a model."""
        raylets = {str(node.all_processes["raylet"][0].process.pid) for node in self._nodes}
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                command = (directory / "cmdline").read_bytes()
                if fields[1] in raylets and command.startswith(b"ray::LineAnswerer"):
                    found.append(int(directory.name))
        return found

    def close(self) -> None:
        self._cluster.shutdown()


def run_batch(nodes: Nodes, place: Path, lines: int, rounds: int, seed: int = 1, kinds: tuple[str, ...] = KINDS) -> Any:
    """Answer so many lines in ``place`` on these nodes with so many accidents, and compare with one machine."""
    chance = random.Random(seed)
    rows = ({"id": f"id-{n}", "prompt": f"Count from {n}.", "max_tokens": 12} for n in range(lines))
    (place / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    leap = [sys.executable, "-m", "leap_cli", "batch", "in.jsonl", "-m", "builtin", "-q"]
    leap += ["--format", "plain", "--temperature", "0", "--concurrency", "4"]
    environment = {**os.environ, "RAY_ADDRESS": nodes.address}
    journal = place / "out.jsonl.journal"
    happened = dict.fromkeys(kinds, 0)
    told = b""
    started = time.monotonic()
    driver = _driver(leap, place, environment)
    while True:
        done = journal.read_bytes().count(b"\n") - 1 if journal.exists() else 0
        due = sum(happened.values())
        if due < rounds and done > lines * due / rounds and done < lines:
            kind = kinds[due % len(kinds)] if rounds < 2 * len(kinds) else chance.choice(kinds)
            if kind == "node":
                nodes.kill_one(chance)
            elif kind == "driver":
                driver.kill()
            elif actors := nodes.actors():
                os.kill(chance.choice(actors), signal.SIGKILL)
            else:
                continue
            happened[kind] += 1
        with suppress(subprocess.TimeoutExpired):
            told += b"".join(driver.communicate(timeout=0.02))
            if driver.returncode == -signal.SIGKILL:
                driver = _driver(leap, place, environment)
                continue
            break
        if time.monotonic() - started > LONGEST_SECONDS:
            driver.kill()
    seconds = time.monotonic() - started
    subprocess.run([*leap, "-o", "one.jsonl"], cwd=place, check=True)
    equal = (place / "out.jsonl").read_bytes() == (place / "one.jsonl").read_bytes()
    seen = {"lines": lines, **happened, "seconds": round(seconds, 1), "exit_code": driver.returncode, "equal": equal}
    return {**seen, "told": told.decode()}


def _driver(leap: list[str], place: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [*leap, "-o", "out.jsonl", "--on", "ray"]
    return subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def main() -> None:
    """Run it as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    nodes = Nodes(given.nodes)
    try:
        with tempfile.TemporaryDirectory() as place:
            seen = run_batch(nodes, Path(place), given.lines, given.rounds, given.seed)
    finally:
        nodes.close()
    print(json.dumps(seen, indent=2))
    sys.exit(0 if seen["equal"] and seen["exit_code"] == 0 else 1)


if __name__ == "__main__":
    main()
