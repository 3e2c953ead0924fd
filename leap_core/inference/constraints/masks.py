"""Masks of tokens that grammars allow, one bit a token: applied to logits, and filled side by side."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher
    from numpy import float32, int32, int64
    from numpy.typing import NDArray


class Masked(Protocol):
    """A grammar."""

    @property
    def matcher(self) -> LLMatcher | None:
        """What fills a mask; None where that would fail."""
        ...

    def take_mask(self, bits: NDArray[int32]) -> None:
        """The next mask, filled already."""
        ...


@cache
def most_by_mask() -> NDArray[float32]:
    """By byte of a mask, the most that the logits of its eight tokens may be: infinity, or minus infinity where a bit
    is not set. Indexing with a mask of single tokens takes up to six times as long."""
    import numpy as np

    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.where(bits == 1, np.inf, -np.inf).astype(np.float32)


def allowed_of(bits: NDArray[int32], tokens: NDArray[int64]) -> NDArray[int64]:
    """The places in ``tokens`` of those that a mask allows."""
    import numpy as np

    places: NDArray[int64] = np.flatnonzero(bits[tokens >> 5] >> (tokens & 31).astype(np.int32) & 1)
    return places


class MaskFiller:
    """Fills the masks of grammars of one vocabulary, of ``n_tokens``, side by side with so many ``threads``."""

    def __init__(self, threads: int, n_tokens: int) -> None:
        self._threads = threads
        self._words = (n_tokens + 31) // 32

    @cached_property
    def _executor(self) -> LLExecutor:
        from llguidance import LLExecutor

        return LLExecutor(num_threads=self._threads)

    def fill(self, grammars: Iterable[Masked | None]) -> None:
        """Fill the next masks of grammars, where there are several."""
        import numpy as np

        given = ((each, each.matcher) for each in grammars if each is not None)
        sound = [(each, matcher) for each, matcher in given if matcher is not None]
        if len(sound) < 2:
            return
        bits = np.zeros((len(sound), self._words), dtype=np.int32)
        matchers = [(matcher, row) for row, (_, matcher) in enumerate(sound)]
        try:
            self._executor.unsafe_compute_mask_ptr(matchers, bits.ctypes.data, bits.strides[0], len(bits))
        except Exception:  # each then fills its own, and finds out whose it is
            return
        for (each, _), row in zip(sound, bits, strict=True):
            each.take_mask(row)
