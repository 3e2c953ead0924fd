"""What the engine asks of a constraint, and what a constraint asks of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


class TokenConstraint(Protocol):
    """Decides which tokens may come next in one sequence. For each position: ``forced_tokens`` or ``apply``, then
    ``accept`` with what was chosen."""

    def apply(self, logits: NDArray[float32]) -> None:
        """Set the logits (shape [vocabulary]) of tokens that must not come next to minus infinity, in place."""
        ...

    def forced_tokens(self) -> list[int]:
        """Tokens that must come next, so that none of them needs sampling; usually none."""
        ...

    def accept(self, token: int) -> None:
        """Take note of the next token, forced ones too. Raises LeapGenerationError when it was not allowed."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing may follow but the end."""
        ...


def _nothing_wrong(_text: str) -> list[str]:
    return []


@dataclass(frozen=True)
class CompiledConstraint:
    """A constraint made ready for one reply.

    ``constraint``: None when nothing is to be enforced while generating. ``warnings``: what it cannot enforce.
    ``validate`` lists what is wrong with the finished text, "" positions first; empty when it is right.
    ``exact``: whether all that ``validate`` checks is also enforced, so that only a text cut short can be wrong.
    ``whole``: whether a text that was cut where it could have gone on is wrong, as half a number is.
    ``calls``: whether the reply has to call a function.
    """

    constraint: TokenConstraint | None
    warnings: tuple[str, ...] = ()
    validate: Callable[[str], list[str]] = _nothing_wrong
    exact: bool = True
    whole: bool = False
    calls: bool = False

    def problems_of_cut(self, text: str, called: bool) -> list[str]:
        """What is wrong with a reply that was cut."""
        if self.calls:
            return [] if called else ["no call is complete"]
        open_end = self.whole and self.constraint is not None and not self.constraint.finished
        return self.validate(text) or (["more could have followed"] if open_end else [])
