"""What counts of passed cases allow one to say: intervals, and whether two columns differ. Plain arithmetic.

Wilson's interval: E. B. Wilson, 1927. McNemar's exact test: the binomial test of the cases in which two columns differ.
The bootstrap draws whole cases, so that repeats of one case do not count as new ones. Holm's correction: S. Holm, 1979.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

Z_95 = 1.959963984540054
"""The normal distribution's quantile of a two-sided interval of 95 %."""
RESAMPLES = 10_000
SEED = 20260701


def wilson(passed: int, total: int, z: float = Z_95) -> tuple[float, float]:
    """The interval of a share, both ends in 0..1; (0, 1) of nothing."""
    if total == 0:
        return 0.0, 1.0
    share = passed / total
    width = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / width
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / width
    low = 0.0 if passed == 0 else max(0.0, centre - half)
    high = 1.0 if passed == total else min(1.0, centre + half)
    return low, high


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided exact p of two columns over the same cases: how many only the first passed, and only the second."""
    differing, fewer = only_first + only_second, min(only_first, only_second)
    if differing == 0:
        return 1.0
    tail = sum(math.comb(differing, n) for n in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << differing))


def holm(values: Sequence[float]) -> list[float]:
    """The p values of several tests made at once, corrected, in their order."""
    corrected = [0.0] * len(values)
    greatest = 0.0
    for rank, n in enumerate(sorted(range(len(values)), key=lambda each: values[each])):
        greatest = max(greatest, min(1.0, values[n] * (len(values) - rank)))
        corrected[n] = greatest
    return corrected


def bootstrap_mean(
    values: Sequence[float], weights: Sequence[float] | None = None, *, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float]:
    """The 95 % percentile interval of a weighted mean; one value a case. The same seed gives the same interval."""
    means = _resampled_means(values, weights, resamples, seed)
    return _quantile(means, 0.025), _quantile(means, 0.975)


def bootstrap_difference(
    differences: Sequence[float],
    weights: Sequence[float] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> float:
    """The two-sided p of a mean difference of no size: twice the share of resampled means on the far side of zero. It
    is never below 2 / resamples. ``differences``: one a case, the first column's score without the second's."""
    if not any(differences):
        return 1.0
    means = _resampled_means(differences, weights, resamples, seed)
    below = sum(mean <= 0 for mean in means)
    above = sum(mean >= 0 for mean in means)
    return min(1.0, 2 * max(1, min(below, above)) / resamples)


def _resampled_means(
    values: Sequence[float], weights: Sequence[float] | None, resamples: int, seed: int
) -> list[float]:
    import numpy

    if not values:
        return [0.0]
    generator = numpy.random.Generator(numpy.random.PCG64(random.Random(seed).getrandbits(64)))
    numbers = numpy.asarray(values, dtype=float)
    shares = numpy.ones(len(values)) if weights is None else numpy.asarray(weights, dtype=float)
    means: list[float] = []
    while len(means) < resamples:  # in pieces, so that a million draws are not held at once
        rows = min(resamples - len(means), max(1, 1_000_000 // len(values)))
        drawn = generator.integers(0, len(values), size=(rows, len(values)))
        means += ((numbers * shares)[drawn].sum(axis=1) / shares[drawn].sum(axis=1)).tolist()
    return sorted(means)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
