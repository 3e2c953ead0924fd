"""The few likeliest of a vocabulary, likeliest first, without sorting it.

Between two tokens the weights of the whole model go through the processor's caches, so what costs is less the size of
the vocabulary than the number of different calls: each comes back from main memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from numpy import float32, float64, int64
    from numpy.typing import NDArray

    Candidates: TypeAlias = tuple[NDArray[int64], NDArray[float64]]
    """Tokens, likeliest first, and how far the logit of each is below the best."""

FIRST_DISTANCE = 4.0
"""How far below the best logit a search begins; it then adapts to the model."""
WIDENED = 3
"""How often a search is widened, by half, before it takes all tokens that a mask has left."""
MANY = 4
"""Times as many tokens as are wanted, from which on the next search begins nearer to the best."""


def within(logits: NDArray[float32], best: float, distance: float) -> Candidates:
    """All tokens no more than ``distance`` below the best; with infinity all that a mask has left."""
    return _in_order(_near(logits, best - distance), logits, best)


def _near(logits: NDArray[float32], least: float) -> NDArray[int64]:
    return (logits > least if least == -math.inf else logits >= least).nonzero()[0]


def _in_order(tokens: NDArray[int64], logits: NDArray[float32], best: float) -> Candidates:
    import numpy as np

    below = np.subtract(best, logits[tokens], dtype=np.float64)
    order = below.argsort(kind="stable")
    return tokens[order], below[order]


class LikeliestSearch:
    """Finds tokens of one sequence's logits, step after step."""

    def __init__(self) -> None:
        self._distance = FIRST_DISTANCE

    def likeliest(self, logits: NDArray[float32], best: float, count: int) -> Candidates:
        """The ``count`` likeliest, the first ones of equal ones; fewer where a mask has left fewer."""
        import numpy as np

        distance = self._distance
        tokens = _near(logits, best - distance)
        for _ in range(WIDENED):
            if len(tokens) >= count:
                break
            distance *= 1.5
            tokens = _near(logits, best - distance)
        if len(tokens) < count:
            tokens = _near(logits, -math.inf)
        if len(tokens) >= count:
            self._distance = distance
        if len(tokens) > MANY * count:
            self._distance = distance * 0.85
            values = logits[tokens]
            tokens = tokens[values >= np.partition(values, len(values) - count)[len(values) - count]]
        tokens, below = _in_order(tokens, logits, best)
        return tokens[:count], below[:count]

    def heaviest(self, logits: NDArray[float32], best: float, share: float) -> Candidates:
        """The fewest tokens that together have a ``share`` of the probability, likeliest first."""
        import numpy as np

        wanted = share * float(np.exp(logits - np.float32(best)).sum(dtype=np.float64))
        while True:
            tokens, below = within(logits, best, self._distance)
            cumulative = np.exp(-below).cumsum()
            if cumulative[-1] >= wanted or self._distance > 1000.0:
                break
            self._distance *= 1.5
        count = int(cumulative.searchsorted(wanted)) + 1
        if len(tokens) > MANY * count:
            self._distance *= 0.85
        return tokens[:count], below[:count]
