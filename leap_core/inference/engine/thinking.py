"""How long a model may reason before its answer begins.

A thinking model writes its reasoning between two tokens. Once the reasoning has its budget of tokens, the next token is
not the sampled one but what ends it: a sentence, where one is wanted, and the closing token. What follows is the
answer, under its schema or tools as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


class ThinkingLimit:
    """Follows one answer. ``starts`` and ``ends`` are the tokens around reasoning, ``closing`` those that end it.
    ``budget``: most tokens of reasoning, None for any number. ``inside``: the prompt has opened it. ``tokens`` counts
    those of reasoning."""

    def __init__(
        self,
        budget: int | None,
        starts: Collection[int],
        ends: Collection[int],
        closing: Sequence[int],
        *,
        inside: bool = False,
    ) -> None:
        self._budget, self._starts, self._ends, self._closing = budget, starts, ends, closing
        self._inside = inside
        self.tokens = 0

    def instead_of(self, token: int) -> Sequence[int] | None:
        """What is taken in the place of a sampled token; None for that itself."""
        is_spent = self._inside and self._budget is not None and self.tokens >= self._budget
        return self._closing if is_spent and token not in self._ends else None

    def note(self, token: int) -> None:
        """A token was taken."""
        if token in self._ends:
            self._inside = False
        elif token in self._starts:
            self._inside = True
        elif self._inside:
            self.tokens += 1
