"""Answers that do not end by themselves, or not early: ``ignore_eos`` and ``min_tokens``."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from .token_constraints import GrammarConstraint, TokenConstraint


class DelayedEnd:
    """Holds for an answer that does not end by itself: ``end_tokens`` never come, and ``stop_tokens`` not among the
    first ``least`` tokens; ``endless``: if not, ``end_tokens`` come after these, too. ``inner``: what else holds. Where
    it permits nothing but an end token, that comes."""

    def __init__(
        self,
        inner: TokenConstraint | None,
        end_tokens: Collection[int],
        stop_tokens: Collection[int],
        *,
        least: int,
        endless: bool,
    ) -> None:
        self.inner = inner
        self._ends = list(end_tokens)
        self._first = [*end_tokens, *stop_tokens]
        self._later = [token for token in end_tokens if endless and token not in stop_tokens]
        self._left = least

    def apply(self, logits: NDArray[float32]) -> None:
        held = self._first if self._left > 0 else self._later
        if self.inner is None:
            logits[held] = float("-inf")
            return
        ends = logits[self._ends]
        logits[held] = float("-inf")
        self.inner.apply(logits)
        if logits.max() == float("-inf"):
            logits[self._ends] = ends

    @property
    def next_grammar(self) -> GrammarConstraint | None:
        return None if self.inner is None else self.inner.next_grammar

    def forced_tokens(self) -> list[int]:
        return [] if self.inner is None else self.inner.forced_tokens()

    def accept(self, token: int) -> None:
        self._left -= 1
        if self.inner is not None:
            self.inner.accept(token)

    @property
    def finished(self) -> bool:
        return self.inner is not None and self.inner.finished
