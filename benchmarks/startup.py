"""What ``leap --help`` costs beside ``python -c 'import click'``, measured in turns on the same machine.

    python benchmarks/startup.py [--rounds 20]

Prints both medians in milliseconds and their ratio. The target is 2.5 at most.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

TARGET = 2.5


def seconds(command: list[str]) -> float:
    """Wall time of one run."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    base = [sys.executable, "-c", "import click"]
    ours = [sys.executable, "-m", "leap_cli", "--help"]
    for command in (base, ours):  # once each, so that byte code is compiled and files are cached
        seconds(command)
    pairs = [(seconds(base), seconds(ours)) for _ in range(arguments.rounds)]
    base_time = statistics.median(pair[0] for pair in pairs)
    our_time = statistics.median(pair[1] for pair in pairs)
    ratio = statistics.median(ours / base for base, ours in pairs)
    print(f"python -c 'import click'  {base_time * 1000:7.1f} ms")
    print(f"leap --help               {our_time * 1000:7.1f} ms")
    print(f"ratio (median of {arguments.rounds} pairs)  {ratio:.2f}   target <= {TARGET}")
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
