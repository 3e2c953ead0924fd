"""Throughput of ``leap download`` against curl, of the same file from the same server on loopback.

leap's time includes the start of Python, the SHA-256 of the file, fsync and the rename; curl's is the bare download.
Both sides' files lie on the same disk. With ``--per-connection`` the server limits each connection, and the table shows
what several connections bring.

    python -m benchmarks.download [--megabytes 300] [--rounds 5]
    python -m benchmarks.download --per-connection 8 --megabytes 100 --rounds 1
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for what benchmarks take from tests

from tests.support.hub import FakeHub

ROOT = Path(__file__).parent.parent
REPOSITORY, FILE = "LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_K_M.gguf"
TARGET = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300, help="size of the file, in 10^6 bytes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--per-connection", type=float, metavar="MB/S", help="limit of one connection")
    arguments = parser.parse_args()
    if shutil.which("curl") is None:
        sys.exit("curl is not installed")
    with tempfile.TemporaryDirectory(prefix="leap-benchmark-") as directory:
        compare(Path(directory), arguments.megabytes * 10**6, arguments.rounds, arguments.per_connection)


def compare(directory: Path, size: int, rounds: int, limit: float | None) -> None:
    served = directory / "served.gguf"
    with served.open("wb") as file:
        for start in range(0, size, 10**6):
            file.write(os.urandom(min(10**6, size - start)))
    sides = {"curl": curl, "leap, 1 connection": leap(1), "leap": leap(4)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    with FakeHub(bytes_per_second=limit * 1e6 if limit else None) as hub:
        hub.add_file(REPOSITORY, FILE, served)
        for _ in range(rounds):
            for name, side in sides.items():
                home = directory / "home"
                shutil.rmtree(home, ignore_errors=True)
                home.mkdir()
                os.sync()
                began = time.perf_counter()
                side(hub, home)
                seconds[name].append(time.perf_counter() - began)
    best = statistics.median(seconds["curl"])
    limited = f", {limit:g} MB/s a connection" if limit else ""
    print(f"{size / 1e6:.0f} MB from loopback{limited}; median of {rounds} rounds")
    print(f"{'':20} {'seconds':>8} {'MB/s':>8} {'of curl':>8}")
    for name, taken in seconds.items():
        middle = statistics.median(taken)
        print(f"{name:20} {middle:8.2f} {size / 1e6 / middle:8.0f} {best / middle:8.2f}")
    print(f"target: leap at least {TARGET} of curl")


def curl(hub: FakeHub, home: Path) -> None:
    url = f"{hub.url}/{REPOSITORY}/resolve/main/{FILE}"
    subprocess.run(["curl", "-sSfL", "-o", home / FILE, url], check=True)


def leap(connections: int) -> Callable[[FakeHub, Path], None]:
    def download(hub: FakeHub, home: Path) -> None:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "LEAP_HOME": str(home), **hub.environment}
        variables["HF_HOME"] = str(home / "no-cache")
        command = [sys.executable, "-m", "leap_cli", "download", "LFM2-350M", "--connections", str(connections)]
        subprocess.run(command, check=True, env=variables, stdout=subprocess.DEVNULL)

    return download


if __name__ == "__main__":
    main()
