"""Bodies of ``/v1/embeddings`` (OpenAI's) and ``/v1/rerank`` (Jina's and Cohere's, as llama-server has it)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import LeapSerializationError
from ...schemas.json_values import JsonObject, whole_number
from ...system.dataclass import dataclass
from .fields import NOTE, BodyFields, Unknown, read_keep_alive

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

EMBEDDINGS_URL = "/v1/embeddings"
MOST_TEXTS = 2048
KINDS = ("query", "document")
POOLINGS = ("mean", "cls", "last")
TOO_LONG = ("refuse", "cut")
EMBEDDING_FIELDS = frozenset(
    ("model", "input", "encoding_format", "dimensions", "input_type", "pooling", "prefix", "too_long")
)
DIGITS = 9
"""So many distinguish every float32 from its neighbours."""


@dataclass(frozen=True)
class EmbeddingBody:
    """``kind``: query or document (``input_type`` in the body). ``pooling``, ``prefix`` and ``too_long`` are leap's own
    fields; see ``EmbeddingRunner.embed``."""

    model: str | None
    texts: tuple[str, ...]
    as_base64: bool = False
    dimensions: int | None = None
    kind: str = "document"
    pooling: str | None = None
    prefix: str | None = None
    too_long: str = "refuse"
    keep_alive: float | None = None

    @property
    def options(self) -> JsonObject:
        """What ``EmbeddingRunner.embed`` takes beside the texts."""
        names = ("kind", "dimensions", "pooling", "prefix", "too_long")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class RerankRequest:
    """``most``: documents to return; None is all."""

    model: str
    query: str
    documents: tuple[str, ...]
    most: int | None = None
    with_documents: bool = False
    keep_alive: float | None = None


def read_embedding_request(value: Any, unknown: Unknown = NOTE) -> EmbeddingBody:
    """Raises LeapSerializationError naming the field."""
    body = BodyFields(value)
    model = body.text("model")
    if model == "":
        raise LeapSerializationError("expected a model's name", path="model")
    texts = body.take("input")
    request = EmbeddingBody(
        model,
        _texts([texts] if isinstance(texts, str) else texts, "input"),
        _one_of(body, "encoding_format", ("float", "base64")) == "base64",
        _whole("dimensions", body.take("dimensions")),
        _one_of(body, "input_type", KINDS) or "document",
        _one_of(body, "pooling", POOLINGS),
        body.text("prefix"),
        _one_of(body, "too_long", TOO_LONG) or "refuse",
        read_keep_alive(body.take("keep_alive")),
    )
    body.finish(unknown)
    return request


def read_rerank_request(value: Any) -> RerankRequest:
    """Raises LeapSerializationError naming the field."""
    body = _object(value)
    query = body.get("query")
    if not isinstance(query, str):
        raise LeapSerializationError("expected a text", path="query")
    documents = body.get("documents")
    if isinstance(documents, list):
        documents = [each.get("text") if isinstance(each, dict) else each for each in documents]
    wishes = body.get("return_documents", False)
    if not isinstance(wishes, bool):
        raise LeapSerializationError("expected true or false", path="return_documents")
    most = _whole("top_n", body.get("top_n"))
    keep_alive = read_keep_alive(body.get("keep_alive"))
    return RerankRequest(_model(body), query, _texts(documents, "documents"), most, wishes, keep_alive)


def embedding_reply(vectors: Iterable[NDArray[float32]], as_base64: bool, model: str, tokens: int) -> JsonObject:
    """OpenAI's list of embeddings."""
    data = [
        {"object": "embedding", "index": number, "embedding": encoded(row) if as_base64 else numbers_of(row)}
        for number, row in enumerate(vectors)
    ]
    return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def rerank_reply(request: RerankRequest, model: str, ranked: Sequence[tuple[int, float]], tokens: int) -> JsonObject:
    """The documents' numbers with their scores, best first."""
    results: list[JsonObject] = [{"index": number, "relevance_score": score} for number, score in ranked]
    results = results[: request.most]
    if request.with_documents:
        for result in results:
            result["document"] = {"text": request.documents[result["index"]]}
    return {"model": model, "results": results, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def encoded(row: NDArray[float32]) -> str:
    """Little-endian float32 in base64, as OpenAI's client reads it."""
    return base64.b64encode(row.astype("<f4").tobytes()).decode("ascii")


def decoded(text: str) -> NDArray[float32]:
    """The row that was ``encoded``. Raises ValueError for what is none."""
    import numpy as np

    return np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float32)


def numbers_of(row: NDArray[float32]) -> list[float]:
    """A vector as JSON has it, without digits that a float32 does not have."""
    return [float(f"{number:.{DIGITS}g}") for number in row.tolist()]


def _object(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise LeapSerializationError("expected an object", path="body")
    return value


def _model(body: JsonObject) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise LeapSerializationError("expected a model's name", path="model")
    return model


def _texts(value: Any, path: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise LeapSerializationError("expected a text or a list of texts (no token ids)", path=path)
    if len(value) > MOST_TEXTS:
        raise LeapSerializationError(f"{len(value)} texts are more than {MOST_TEXTS}", path=path)
    return tuple(value)


def _whole(path: str, value: Any) -> int | None:
    value = whole_number(value)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise LeapSerializationError("expected a whole number of 1 or more", path=path)
    return value


def _one_of(body: BodyFields, name: str, choices: Sequence[str]) -> str | None:
    value: str | None = body.take(name)
    if value is not None and value not in choices:
        raise LeapSerializationError(f"{value!r} is not one of {', '.join(choices)}", path=name)
    return value
