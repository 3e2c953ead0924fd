"""How likely the tokens of an answer were: natural logarithms of probabilities, at temperature 1, before any penalty.

``logprob`` is the model's own, before a constraint's mask; ``allowed_logprob`` among the tokens that the mask left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

FIRST_DISTANCE = 4.0
"""How far below the best logit the search for the likeliest tokens begins; it then adapts to the model."""
LEAST = -9999.0
"""Stands for a token that the mask forbids, as in OpenAI's replies."""


@dataclass(frozen=True)
class TokenScore:
    """One token. ``top``: the likeliest tokens at its place and their logarithms, likeliest first; or those that were
    named beforehand, in their order."""

    token: int
    logprob: float
    allowed_logprob: float | None
    top: tuple[tuple[int, float], ...]


class ScoreRecorder:
    """Notes the score of each token that is sampled. ``top``: how many of the likeliest are noted beside it, or
    ``named``: which ones. ``of_forced``: tokens that a constraint forces are sampled for that, too."""

    def __init__(self, top: int, *, named: Sequence[int] = (), of_forced: bool = True) -> None:
        self.of_forced = of_forced
        self.scores: list[TokenScore] = []
        self._top = top
        self._named = named
        self._distance = FIRST_DISTANCE
        self._logits: NDArray[float32] | None = None
        self._total = 0.0
        self._best: tuple[tuple[int, float], ...] = ()

    def before_mask(self, logits: NDArray[float32]) -> None:
        """The model's own logits."""
        import numpy as np

        best = float(logits.max())
        self._total = best + math.log(float(np.exp(logits - np.float32(best)).sum(dtype=np.float64)))
        self._logits = logits.copy()
        self._best = ()
        if self._named:
            self._best = tuple((token, float(logits[token]) - self._total) for token in self._named)
        elif self._top:
            near = self._near(logits, best)
            order = near[np.argsort(-logits[near], kind="stable")][: self._top]
            self._best = tuple((int(token), float(logits[token]) - self._total) for token in order)

    def _near(self, logits: NDArray[float32], best: float) -> NDArray[int64]:
        """At least as many tokens as are wanted, and not many more: sorting all would cost more than sampling."""
        import numpy as np

        while True:
            near = np.flatnonzero(logits >= best - self._distance)
            if len(near) >= min(self._top, len(logits)):
                return near
            self._distance *= 2

    def forced(self, token: int) -> None:
        """A token that a constraint left no choice about, and that was not computed by itself."""
        self.scores.append(TokenScore(token, 0.0, 0.0, ()))

    def chosen(self, token: int, masked: NDArray[float32] | None) -> None:
        """The token that was sampled; ``masked``: the logits that a constraint left."""
        import numpy as np

        assert self._logits is not None
        allowed = None
        if masked is not None:
            best = float(masked.max())
            total = best + math.log(float(np.exp(masked - np.float32(best)).sum(dtype=np.float64)))
            allowed = max(float(masked[token]) - total, LEAST)
        logprob = max(float(self._logits[token]) - self._total, LEAST)
        self.scores.append(TokenScore(token, logprob, allowed, self._best))
        self._logits = None
