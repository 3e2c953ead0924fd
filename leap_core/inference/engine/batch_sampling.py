"""Samples the next tokens of many sequences at once: the same tokens as ``Sampler.sample`` draws one by one.

One pass over the matrix of logits finds the largest value of each block of the vocabulary. The blocks with the
``top_k`` largest maxima hold the ``top_k`` likeliest tokens, so all further work is on a few hundred numbers a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import bool_, float32, float64, int64
    from numpy.typing import NDArray

    from .sampler import Sampler

FEWEST_ROWS = 4
"""Rows below which it is as fast to sample one by one."""
LARGEST_TOP_K = 128
"""Beyond, the candidates of a row are no longer few."""
BLOCK_SIZES = (32, 24, 28, 16, 20, 12, 8)
"""Tokens of a block, the fastest first; the vocabulary must be a multiple of one."""
BLOCKS_PER_CANDIDATE = 4
"""The vocabulary must have so many blocks for each candidate."""


class BatchSampler:
    """Samples rows of logits of one vocabulary, whose size is ``n_tokens``."""

    def __init__(self, n_tokens: int) -> None:
        self._token_bits = n_tokens.bit_length()
        self._block = next((size for size in BLOCK_SIZES if n_tokens % size == 0), 0)
        blocks = n_tokens // self._block if self._block else 0
        self._largest_top_k = min(LARGEST_TOP_K, blocks // BLOCKS_PER_CANDIDATE)
        self._samplers: list[Sampler] = []
        """Those of the last step: the next one usually has the same."""

    def accepts(self, sampler: Sampler) -> bool:
        """Whether its rows can be sampled together with others."""
        return sampler.recorder is None and (sampler.is_greedy or 0 < sampler.top_k <= self._largest_top_k)

    def sample(self, logits: NDArray[float32], samplers: Sequence[Sampler]) -> list[int | None]:
        """A token for each row of ``logits``, shape [rows, vocabulary], after bias, penalties and masks. None for a row
        that has to be sampled alone: fewer candidates than ``top_k``, or values that are not finite."""
        import numpy as np

        if self._samplers != samplers:
            self._samplers = list(samplers)
            self._temperature = np.array([[1.0 if each.is_greedy else each.temperature] for each in samplers])
            self._top_k = np.array([1 if each.is_greedy else each.top_k for each in samplers])
            self._top_p = np.array([1.0 if each.is_greedy else each.top_p for each in samplers])
            self._most_below = np.array(
                [[-math.log(each.min_p) if each.min_p > 0.0 else math.inf] for each in samplers]
            )
        every = np.arange(len(samplers))
        if self._top_k.max() == 1:
            chosen = logits.argmax(axis=1)
            sound = np.isfinite(logits[every, chosen])
        else:
            found, sound = self._likeliest(logits, int(self._top_k.max()))
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                chosen = found[every, self._draw(logits[every[:, None], found].astype(np.float64), sound)]
        return [token if is_sound else None for token, is_sound in zip(chosen.tolist(), sound.tolist(), strict=True)]

    def _likeliest(self, logits: NDArray[float32], count: int) -> tuple[NDArray[int64], NDArray[bool_]]:
        """The ``count`` likeliest tokens of each row, likeliest first, the first ones of equal ones; and which rows
        have so many."""
        import numpy as np

        blocks = logits.reshape(len(logits), self._block, -1)
        maxima = blocks.max(axis=1)
        width = maxima.shape[1]
        least = np.partition(maxima, width - count, axis=1)[:, width - count]
        sound = np.isfinite(least) & np.isfinite(maxima.max(axis=1))
        least[~sound] = np.nan  # nothing is as large
        row, column = np.divmod(np.flatnonzero(maxima >= least[:, None]), width)  # ten times as fast as ``nonzero``
        values = blocks[row, :, column]
        hit, offset = np.divmod(np.flatnonzero(values >= least[row][:, None]), self._block)
        row, token, value = row[hit], offset * width + column[hit], values[hit, offset]
        bits = (value + np.float32(0.0)).view(np.int32).astype(np.int64)  # the sum makes -0.0 the same as 0.0
        rising = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # as integers in the order of the numbers
        keys = (row << (32 + self._token_bits)) + ((0x7FFFFFFF - rising) << self._token_bits) + token
        keys.sort()
        starts = np.searchsorted(row, np.arange(len(logits)))  # rows rise, as they were found in order
        places = np.minimum(starts[:, None] + np.arange(count), max(0, len(keys) - 1))
        found = keys[places] & ((1 << self._token_bits) - 1) if len(keys) else np.zeros_like(places)
        return found, sound

    def _draw(self, values: NDArray[float64], sound: NDArray[bool_]) -> NDArray[int64]:
        """The place of the drawn one among the candidates of each row, whose logits are ``values``. As ``Sampler``
        does it, row by row in the same arithmetic."""
        import numpy as np

        every = np.arange(len(values))
        below = values[:, :1] - values
        shares = np.exp(-below).cumsum(axis=1)
        wanted = self._top_p * shares[every, self._top_k - 1]
        by_share = (shares < wanted[:, None]).sum(axis=1) + 1
        keep = np.where(self._top_p < 1.0, np.minimum(self._top_k, by_share), self._top_k)
        keep = np.minimum(keep, np.maximum(1, (below <= self._most_below).sum(axis=1)))
        weights = np.exp(below / -self._temperature).cumsum(axis=1)
        draws = [
            each.random() if is_sound and not each.is_greedy else 0.0
            for each, is_sound in zip(self._samplers, sound.tolist(), strict=True)
        ]
        place = (weights <= (np.array(draws) * weights[every, keep - 1])[:, None]).sum(axis=1)
        drawn: NDArray[int64] = np.minimum(place, keep - 1)
        return drawn
