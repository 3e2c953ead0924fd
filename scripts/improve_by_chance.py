"""How often ``leap improve`` keeps something, with nine ways that are no better and with one that is.

The improver is the real one; a dice throw takes the place of the model. Cases differ in difficulty. Scores are yes or
no, graded, or yes or no with weights that differ a lot. Usage: ``python scripts/improve_by_chance.py [RUNS [GAIN
...]]``.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from leap_core.evaluation import results
from leap_core.evaluation.cases import Case, CaseFile
from leap_core.evaluation.expectations import KINDS, read_expectations
from leap_core.evaluation.improvement.improver import Improved, ImprovementSettings, Improver
from leap_core.evaluation.results import CaseResult, wilson
from leap_core.evaluation.running import Column

SCORES = ("yes or no", "graded", "weighted")
SIZES = (20, 50, 100, 300)
GAINS = (0.0, 0.15, 0.3)
"""What the one way adds to the chance to pass, or to the mean grade."""
WAYS = 9
NO_GOAL = 2.0
"""A rate that no way has: all are tried."""


def improve(scores: str, count: int, gain: float, seed: int) -> Improved:
    """Climb once. ``thinking`` is the way with the gain."""
    dice = random.Random(f"{scores} {count} {gain} {seed}")
    ease = {f"c{n}": dice.uniform(0.1, 0.9 - gain) for n in range(count)}
    cases = tuple(
        Case(
            name,
            {"prompt": f"question {name}", "schema": {}},
            read_expectations({"equals": f"answer {name}"}, "expect", KINDS),
            weight=dice.lognormvariate(0, 1.5) if scores == "weighted" else 1.0,
        )
        for name in ease
    )

    def ask(column: Column, asked: Sequence[Case], part: str) -> list[CaseResult]:
        added = gain if column.options.get("enable_thinking") else 0.0
        found = []
        for case in asked:
            right = ease[case.id] + added
            score = min(1.0, max(0.0, dice.gauss(right, 0.25))) if scores == "graded" else dice.random() < right
            found.append(CaseResult(case.id, column.name, weight=case.weight, passed=score > 0.5, score=float(score)))
        return found

    with tempfile.TemporaryDirectory() as directory:
        settings = ImprovementSettings(
            CaseFile(cases), Column("baseline", "m"), Path(directory), NO_GOAL, seed, escalate_to="big", thinks=True
        )
        return Improver(settings, ask, lambda _: None, threading.Event()).run()


def share_kept(scores: str, count: int, gain: float, runs: int) -> tuple[float, float, float]:
    """The share of runs in which something is kept, with its 95 % interval."""
    # intervals decide nothing, and take half of the time
    with patch.object(results, "bootstrap_mean", return_value=(0.0, 1.0)):
        runs_done = [improve(scores, count, gain, seed) for seed in range(runs)]
    assert all(len(each.trials) == WAYS + 1 for each in runs_done)
    kept = sum(each.is_better for each in runs_done)
    return kept / runs, *wilson(kept, runs)


def main(runs: int, gains: Sequence[float]) -> None:
    """Print a table."""
    print(f"{'scores':10} {'cases':>5} {'gain':>5} {'kept':>7}  95 % interval, of {runs} runs")
    for scores in SCORES:
        for gain in gains:
            for count in SIZES:
                share, low, high = share_kept(scores, count, gain, runs)
                print(f"{scores:10} {count:5} {gain:5.2f} {share:7.1%}  {low:.1%} to {high:.1%}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, [float(each) for each in sys.argv[2:]] or GAINS)
