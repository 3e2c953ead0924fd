"""Samples the next tokens of many sequences at once: the same tokens as ``Sampler.sample`` draws one by one.

One pass over the matrix of logits finds the largest value of each small block of the vocabulary, and from these those
of large blocks. The large blocks with the ``top_k`` largest maxima hold the ``top_k`` likeliest tokens, so all further
work is on a few hundred numbers a row. The tokens of a block are far apart, and each that is looked at again comes back
from main memory: that is why small blocks are looked for in the large ones first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import bool_, float32, float64, int32, int64
    from numpy.typing import NDArray

    from .sampler import Sampler

FEWEST_ROWS = 4
"""Rows below which it is as fast to sample one by one."""
LARGEST_TOP_K = 128
"""Beyond, the candidates of a row are no longer few."""
BLOCK_SIZES = ((8, 8), (8, 7), (8, 6), (8, 5), (8, 4), (8, 3), (8, 2), (10, 1), (12, 1), (8, 1))
"""Tokens of a small block, and small blocks of a large one, the fastest first; the vocabulary must be a multiple of one
pair."""
BLOCKS_PER_CANDIDATE = 4
"""The vocabulary must have so many blocks for each candidate."""


class BatchSampler:
    """Samples rows of logits of one vocabulary, whose size is ``n_tokens``."""

    def __init__(self, n_tokens: int) -> None:
        self._token_bits = n_tokens.bit_length()
        self._token_mask = (1 << self._token_bits) - 1
        counts = {pair: n_tokens // math.prod(pair) for pair in BLOCK_SIZES if n_tokens % math.prod(pair) == 0}
        enough = (pair for pair, count in counts.items() if count >= LARGEST_TOP_K * BLOCKS_PER_CANDIDATE)
        self._blocks = next(enough, max(counts, key=counts.__getitem__, default=(1, 1)))
        self._largest_top_k = min(LARGEST_TOP_K, counts.get(self._blocks, 0) // BLOCKS_PER_CANDIDATE)
        self._samplers: list[Sampler] = []
        """Those of the last step: the next one usually has the same."""

    def accepts(self, sampler: Sampler) -> bool:
        """Whether its rows can be sampled together with others."""
        is_few = sampler.is_greedy or (0 < sampler.top_k <= self._largest_top_k and not sampler.draws_alone)
        return sampler.recorder is None and is_few

    def sample(self, logits: NDArray[float32], samplers: Sequence[Sampler]) -> list[int | None]:
        """A token for each row of ``logits``, shape [rows, vocabulary], after bias, penalties and masks. None for a row
        that has to be sampled alone: fewer candidates than ``top_k``, or values that are not finite."""
        import numpy as np

        self._follow(samplers)
        every = np.arange(len(samplers))
        if self._top_k.max() == 1:
            chosen = logits.argmax(axis=1)
            sound = np.isfinite(logits[every, chosen])
        else:
            found, values, sound = self._likeliest(logits, int(self._top_k.max()))
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                chosen = found[every, self._draw(values.astype(np.float64), sound)]
        return [token if is_sound else None for token, is_sound in zip(chosen.tolist(), sound.tolist(), strict=True)]

    def sample_candidates(
        self, tokens: NDArray[int32], logits: NDArray[float32], samplers: Sequence[Sampler]
    ) -> list[int | None]:
        """A token for each row of ``tokens`` and their ``logits``, shape [rows, candidates], in any order: the same as
        ``sample`` draws, where the candidates are the likeliest of all tokens. None for a row with NaN."""
        import numpy as np

        self._follow(samplers)
        keys = self._keys(np.int64(0), tokens, logits)
        keys.sort(axis=1)
        keys = keys[:, : int(self._top_k.max())]
        values = self._values(keys)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            place = self._draw(values.astype(np.float64), np.isfinite(values[:, 0]))
        chosen: list[int | None] = (keys[np.arange(len(keys)), place] & self._token_mask).tolist()
        for row in np.flatnonzero(np.isnan(logits).any(axis=1)).tolist():
            chosen[row] = None
        return chosen

    def _follow(self, samplers: Sequence[Sampler]) -> None:
        import numpy as np

        if self._samplers != samplers:
            self._samplers = list(samplers)
            self._temperature = np.array([[1.0 if each.is_greedy else each.temperature] for each in samplers])
            self._top_k = np.array([1 if each.is_greedy else each.top_k for each in samplers])
            self._top_p = np.array([1.0 if each.is_greedy else each.top_p for each in samplers])
            self._most_below = np.array(
                [[-math.log(each.min_p) if each.min_p > 0.0 else math.inf] for each in samplers]
            )

    def _likeliest(
        self, logits: NDArray[float32], count: int
    ) -> tuple[NDArray[int64], NDArray[float32], NDArray[bool_]]:
        """The ``count`` likeliest tokens of each row, likeliest first, the first ones of equal ones; their logits; and
        which rows have so many."""
        import numpy as np

        blocks = logits.reshape(len(logits), self._blocks[0], -1)
        maxima = blocks.max(axis=1)
        groups = maxima.reshape(len(logits), self._blocks[1], -1)
        tops = groups.max(axis=1)
        width = tops.shape[1]
        least = np.partition(tops, width - count, axis=1)[:, width - count]
        sound = np.isfinite(least) & np.isfinite(tops.max(axis=1))
        least[~sound] = np.nan  # nothing is as large
        row, column = np.divmod(np.flatnonzero(tops >= least[:, None]), width)  # ten times as fast as ``nonzero``
        row, column, _ = _inside(groups, row, column, least)
        row, token, value = _inside(blocks, row, column, least)
        keys = self._keys(row, token, value)
        keys.sort()
        starts = np.searchsorted(row, np.arange(len(logits)))  # rows rise, as they were found in order
        places = np.minimum(starts[:, None] + np.arange(count), max(0, len(keys) - 1))
        found = keys[places] if len(keys) else np.zeros_like(places)
        return found & self._token_mask, self._values(found), sound

    def _keys(
        self, row: NDArray[int64] | int64, token: NDArray[int64] | NDArray[int32], value: NDArray[float32]
    ) -> NDArray[int64]:
        """Numbers in the order of rows, then of falling values, then of tokens."""
        import numpy as np

        bits = (value + np.float32(0.0)).view(np.int32).astype(np.int64)  # the sum makes -0.0 the same as 0.0
        rising = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # as integers in the order of the numbers
        keys: NDArray[int64] = (row << (32 + self._token_bits)) + ((0x7FFFFFFF - rising) << self._token_bits) + token
        return keys

    def _values(self, keys: NDArray[int64]) -> NDArray[float32]:
        """The values in ``_keys``: to read them from the logits again would take longer."""
        import numpy as np

        rising = (0x7FFFFFFF - ((keys >> self._token_bits) & 0xFFFFFFFF)).astype(np.int32)
        return np.where(rising < 0, rising ^ 0x7FFFFFFF, rising).view(np.float32)

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


def _inside(
    blocks: NDArray[float32], row: NDArray[int64], column: NDArray[int64], least: NDArray[float32]
) -> tuple[NDArray[int64], NDArray[int64], NDArray[float32]]:
    """Of some blocks, shape [rows, size, columns], by row and column: the rows, places and values of what is at least
    as large as the ``least`` of its row."""
    import numpy as np

    _, size, columns = blocks.shape
    firsts = row * (size * columns) + column
    values = blocks.reshape(-1).take(firsts[:, None] + np.arange(size) * columns)
    found = np.flatnonzero(values >= least[row][:, None])
    hit, offset = np.divmod(found, size)
    return row[hit], offset * columns + column[hit], values.reshape(-1)[found]
