"""What one TAB costs beside ``python -c 'import click'``, measured in turns on the same machine.

    python benchmarks/completion.py [--rounds 20]

LEAP_HOME is not set, as for most people, so finding the directories is part of it; a home of its own holds 20 installed
models and 200 jobs. Prints medians in milliseconds and the median ratio of each line. The target is 2.5 at most.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from harness import SHORT

from jobs.table.database import SqliteDatabase
from leap_core.system.directories import Directories

ROOT = Path(__file__).parent.parent
TARGET = 2.5
LINES = (
    "leap ",
    "leap gen",
    "leap generate --",
    "leap generate --format ",
    "leap generate -m ",
    "leap generate -m LFM2.5-350M:",
    "leap generate --tool ",
    "leap download LFM2-350M --quant ",
    "leap models remove ",
    "leap jobs status ",
)


def seconds(command: list[str], variables: dict[str, str]) -> float:
    """Wall time of one run."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def furnish(home: Path) -> dict[str, str]:
    """Make a home with models and jobs; the variables of who lives there."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("LEAP_", "XDG_"))}
    variables |= {"HOME": str(home), "PYTHONPATH": str(ROOT)}
    os.environ["HOME"] = str(home)
    for name in [name for name in os.environ if name.startswith(("LEAP_", "XDG_"))]:
        del os.environ[name]
    directories = Directories.from_environment()
    for number in range(20):
        model = directories.models / f"Model-{number}-Q4_0"
        model.mkdir(parents=True)
        (model / f"{model.name}.gguf").write_bytes(b"")
    with closing(SqliteDatabase(directories.data / "jobs.db")) as database:
        rows = [(f"job{number:05d}", "batch", "queued", "{}", number) for number in range(200)]
        database.insert_rows("jobs", ("id", "kind", "state", "parameters", "created"), rows)
    return variables


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    base = [sys.executable, "-c", "import click"]
    ours = [sys.executable, "-m", "leap_cli"]
    worst = 0.0
    with tempfile.TemporaryDirectory() as directory:
        variables = furnish(Path(directory))
        print(f"{'line':36}{'import click':>14}{'TAB':>10}{'ratio':>8}")
        for line in LINES[:2] if SHORT else LINES:
            asked = variables | {"_LEAP_COMPLETE": "bash", "_LEAP_LINE": line}
            for command, with_variables in ((base, variables), (ours, asked)):  # byte code compiled, files cached
                seconds(command, with_variables)
            pairs = [(seconds(base, variables), seconds(ours, asked)) for _ in range(rounds)]
            ratio = statistics.median(tab / click for click, tab in pairs)
            worst = max(worst, ratio)
            click, tab = (statistics.median(pair[n] for pair in pairs) * 1000 for n in (0, 1))
            print(f"{line:36}{click:11.1f} ms{tab:7.1f} ms{ratio:8.2f}", flush=True)
    print(f"worst ratio (median of {rounds} pairs)  {worst:.2f}   target <= {TARGET}")
    return 0 if worst <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
