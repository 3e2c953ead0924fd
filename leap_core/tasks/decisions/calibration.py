"""Calibration: temperatures fitted to cases with known answers, so that probabilities are how often an answer is right.

There is one temperature for each kind of question and group of numbers of options, like those in llama.cpp's decision
models. They mean nothing for another model, or another way of asking.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...errors import LeapOptionsError
from ...system.dataclass import dataclass
from ...system.directories import Directories
from ...system.files import replace_text
from .answers import shares
from .wording import NAMES

BINS = 15
"""Cases are sorted into these many bins of equal width, by the probability of the likeliest option."""
LOWEST, HIGHEST = 0.02, 100.0
STEPS = 60
FEWEST_CASES = 10
"""A group of fewer cases takes the temperature of its kind."""


@dataclass(frozen=True)
class LabeledCase:
    """A question that was asked, and the number of the right option."""

    kind: str
    logprobs: tuple[float, ...]
    right: int


@dataclass(frozen=True)
class Quality:
    """How good the answers to cases are. ``ece``: the expected calibration error, 0 to 1."""

    cases: int
    accuracy: float
    log_loss: float
    ece: float


@dataclass(frozen=True)
class Fit:
    """Fitted temperatures, and the quality on cases held back with and without them."""

    temperatures: Mapping[str, float]
    fitted_cases: int
    before: Quality
    after: Quality


def temperature_names(kind: str, options: int) -> tuple[str, str]:
    """The names of a question's temperatures: of its group, and of its kind."""
    group = "2" if options <= 2 else "3_5" if options <= 5 else "6_10" if options <= 10 else "11"
    return f"{NAMES[kind]}.{group}", NAMES[kind]


def temperature_of(kind: str, options: int, temperatures: Mapping[str, float]) -> float | None:
    """The temperature for a question; None where there is none."""
    return next((temperatures[name] for name in temperature_names(kind, options) if name in temperatures), None)


def fit(cases: Sequence[LabeledCase]) -> Fit:
    """Temperatures from one half of the cases, drawn the same each time, judged on the other. Raises LeapOptionsError
    for too few."""
    if len(cases) < 2 * FEWEST_CASES:
        raise LeapOptionsError("fit", f"{len(cases)} cases are too few; give {2 * FEWEST_CASES} or more")
    drawn = random.Random(0).sample(cases, len(cases))  # files are often in an order that halves would share
    fitted, held_back = drawn[::2], drawn[1::2]
    groups: dict[str, list[LabeledCase]] = {}
    for case in fitted:
        for name in temperature_names(case.kind, len(case.logprobs)):
            groups.setdefault(name, []).append(case)
    temperatures = {name: _best(group) for name, group in sorted(groups.items()) if len(group) >= FEWEST_CASES}
    return Fit(temperatures, len(fitted), quality(held_back, {}), quality(held_back, temperatures))


def quality(cases: Sequence[LabeledCase], temperatures: Mapping[str, float]) -> Quality:
    """Accuracy, mean log loss and ECE."""
    judged = [(case, _shares(case, temperatures)) for case in cases]
    right = [each.index(max(each)) == case.right for case, each in judged]
    loss = -math.fsum(math.log(max(each[case.right], 1e-12)) for case, each in judged) / len(judged)
    return Quality(len(cases), sum(right) / len(right), loss, ece([max(each) for _, each in judged], right))


def ece(probabilities: Sequence[float], right: Sequence[bool]) -> float:
    """The mean distance between how sure the answers are and how often they are right, over bins of equal width."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, each in zip(probabilities, right, strict=True):
        bins.setdefault(min(BINS - 1, int(probability * BINS)), []).append((probability, each))
    distances = (abs(math.fsum(p for p, _ in group) - sum(each for _, each in group)) for group in bins.values())
    return math.fsum(distances) / len(right)


def kept_temperatures(fingerprint: str, way: str, directories: Directories | None = None) -> dict[str, float]:
    """What was fitted for these weights and this way of asking; empty for nothing. Raises LeapOptionsError for a file
    that is damaged."""
    if not fingerprint:
        return {}
    path = _path(fingerprint, directories)
    try:
        table = json.loads(path.read_text("utf-8"))
        return {str(name): _sound(value) for name, value in table.get(way, {}).get("temperatures", {}).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise LeapOptionsError("decisions", f"{path} has no temperatures: {error}; fit them again") from None


def keep(fit: Fit, model: str, fingerprint: str, way: str, directories: Directories | None = None) -> Path:
    """Write the temperatures where ``kept_temperatures`` reads them; those of other ways of asking stay."""
    path = _path(fingerprint, directories)
    table = {}
    if path.exists():
        try:
            table = dict(json.loads(path.read_text("utf-8")))
        except ValueError:
            table = {}
    table["model"] = model
    table[way] = {
        "temperatures": dict(fit.temperatures),
        "cases": fit.fitted_cases,
        "held_back": fit.after.cases,
        "ece_before": fit.before.ece,
        "ece_after": fit.after.ece,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(table, ensure_ascii=False, indent=2) + "\n")
    return path


def _path(fingerprint: str, directories: Directories | None) -> Path:
    return (directories or Directories.from_environment()).data / "decisions" / f"{fingerprint}.json"


def _sound(value: object) -> float:
    if not isinstance(value, (int, float)) or not LOWEST <= value <= HIGHEST:
        raise ValueError(f"{value!r} is no temperature")
    return float(value)


def _shares(case: LabeledCase, temperatures: Mapping[str, float]) -> list[float]:
    return shares(case.logprobs, temperature_of(case.kind, len(case.logprobs), temperatures) or 1.0)


def _best(cases: Sequence[LabeledCase]) -> float:
    """The temperature of the least log loss, by golden section over its logarithm: the loss has one valley."""

    def loss(logarithm: float) -> float:
        rows = (shares(case.logprobs, math.exp(logarithm))[case.right] for case in cases)
        return -math.fsum(math.log(max(share, 1e-12)) for share in rows)

    return math.exp(_lowest(loss, math.log(LOWEST), math.log(HIGHEST)))


def _lowest(of: Callable[[float], float], low: float, high: float) -> float:
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(STEPS):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if of(left) <= of(right):
            high = right
        else:
            low = left
    return (low + high) / 2
