"""How likely the tokens of an answer were: natural logarithms of probabilities, at temperature 1, before any penalty.

``logprob`` is the model's own, before a constraint's mask; ``allowed_logprob`` among the tokens that the mask left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .likeliest import LikeliestSearch

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

LEAST = -9999.0
"""The logprob of a token that the mask forbids, as in OpenAI's replies."""


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
        self._search = LikeliestSearch()
        self._below: NDArray[float32] | None = None
        """The model's own logits, less the best of them; memory that is used again for each token."""
        self._weights: NDArray[float32] | None = None
        self._total = 0.0
        self._best: tuple[tuple[int, float], ...] = ()

    def before_mask(self, logits: NDArray[float32]) -> None:
        """The model's own logits."""
        import numpy as np

        if self._below is None or self._weights is None:
            self._below, self._weights = np.empty_like(logits), np.empty_like(logits)
        below = np.subtract(logits, logits.max(), out=self._below)
        self._total = total = self._logarithm_of_weights(below)
        self._best = ()
        if self._named:
            self._best = tuple((token, float(below[token]) - total) for token in self._named)
        elif self._top:
            tokens, distances = self._search.likeliest(below, 0.0, self._top)
            self._best = tuple((n, -d - total) for n, d in zip(tokens.tolist(), distances.tolist(), strict=True))

    def _logarithm_of_weights(self, below: NDArray[float32]) -> float:
        import numpy as np

        return math.log(float(np.exp(below, out=self._weights).sum()))

    def forced(self, token: int) -> None:
        """A token that a constraint left no choice about, and that was not computed by itself."""
        self.scores.append(TokenScore(token, 0.0, 0.0, ()))

    def chosen(self, token: int, masked: NDArray[float32] | None) -> None:
        """The token that was sampled; ``masked``: the logits that a constraint left."""
        import numpy as np

        assert self._below is not None
        allowed = None
        if masked is not None:
            best = masked.max()
            total = float(best) + self._logarithm_of_weights(np.subtract(masked, best, out=self._weights))
            allowed = max(float(masked[token]) - total, LEAST)
        logprob = max(float(self._below[token]) - self._total, LEAST)
        self.scores.append(TokenScore(token, logprob, allowed, self._best))
