"""Choosing one code of a codebook from its logits."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float32
    from numpy.random import Generator
    from numpy.typing import NDArray


class CodeSampler:
    """Draws the codes of one utterance. Equal settings, seed and logits give equal codes.

    ``temperature`` 0 or below, or ``top_k`` 1, takes the likeliest code; ``top_k`` 0 keeps all. Codes that tie with
    the ``top_k``-th likeliest are kept too.
    """

    def __init__(self, temperature: float = 0.0, top_k: int = 0, seed: int | None = None) -> None:
        self._temperature = temperature
        self._top_k = top_k
        self._seed = secrets.randbits(63) if seed is None else seed
        self._random: Generator | None = None

    def sample(self, logits: NDArray[float32]) -> int:
        """One code; ``logits`` has the shape [codes] and is not changed."""
        import numpy as np

        if self._temperature <= 0.0 or self._top_k == 1:
            return int(logits.argmax())
        scaled = logits.astype(np.float64) / self._temperature
        codes = np.arange(len(scaled))
        if 0 < self._top_k < len(scaled):
            codes = np.flatnonzero(scaled >= np.partition(scaled, -self._top_k)[-self._top_k])
        weights = np.exp(scaled[codes] - scaled[codes].max())
        cumulative = np.cumsum(weights)
        if self._random is None:
            self._random = np.random.Generator(np.random.PCG64(self._seed))
        index = int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))
        return int(codes[min(index, len(codes) - 1)])
