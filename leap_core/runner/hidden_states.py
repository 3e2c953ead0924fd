"""What a model thinks of a text, before words are made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """The output of a model's last layer for each token of a text, normalised as the model does before its vocabulary.

    ``data``: float32, shape [token_count, embedding_dim]; neither pooled nor of unit length.
    """

    data: NDArray[float32]

    @property
    def token_count(self) -> int:
        """Tokens of the text, the opening one included."""
        return int(self.data.shape[0])

    @property
    def embedding_dim(self) -> int:
        """The width of the model."""
        return int(self.data.shape[1])
