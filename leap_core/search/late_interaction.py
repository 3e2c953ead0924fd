"""MaxSim: how well a document answers a query, token by token (ColBERT)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import LeapOptionsError

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from ..runner.embedding import EmbeddingRunner


def max_sim(query: NDArray[float32], document: NDArray[float32]) -> float:
    """The sum over the query's tokens of the largest product with one of the document's; rows have unit length."""
    if not len(query) or not len(document):
        return 0.0
    return float((query @ document.T).max(axis=1).sum())


def rank(
    runner: EmbeddingRunner, query: str, documents: Sequence[str], *, cancelled: threading.Event | None = None
) -> list[tuple[int, float]]:
    """Numbers of the documents with their scores, best first: by MaxSim where the model gives a vector for each token,
    else by the cosine of the texts' vectors. Setting ``cancelled`` ends it with LeapGenerationError. Raises
    LeapOptionsError for a model that was not made for embeddings."""
    if not documents:
        return []
    if runner.pools:
        vector = runner.embed([query], "query", too_long="cut", cancelled=cancelled)[0]
        scores = (runner.embed(documents, "document", too_long="cut", cancelled=cancelled) @ vector).tolist()
    elif not runner.is_late:
        raise LeapOptionsError("model", f"{runner.model_id} was not made for embeddings, and orders nothing")
    else:
        (tokens,) = runner.embed_tokens([query], "query", too_long="cut", cancelled=cancelled)
        rows = runner.embed_tokens(documents, "document", too_long="cut", cancelled=cancelled)
        scores = [max_sim(tokens, each) for each in rows]
    return sorted(enumerate(scores), key=lambda pair: -pair[1])
