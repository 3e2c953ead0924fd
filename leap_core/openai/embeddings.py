"""Bodies of ``/v1/embeddings`` (OpenAI's) and ``/v1/rerank`` (Jina's and Cohere's, as llama-server has it)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import LeapSerializationError

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

MOST_TEXTS = 2048
KINDS = ("query", "document")

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class EmbeddingRequest:
    """``kind``: query or document (``input_type`` in the body)."""

    model: str
    texts: tuple[str, ...]
    as_base64: bool = False
    dimensions: int | None = None
    kind: str = "document"


@dataclass(frozen=True)
class RerankRequest:
    """``most``: documents to return; None is all."""

    model: str
    query: str
    documents: tuple[str, ...]
    most: int | None = None
    with_documents: bool = False


def read_embedding_request(value: Any) -> EmbeddingRequest:
    """Raises LeapSerializationError naming the field."""
    body = _object(value)
    texts = body.get("input")
    texts = [texts] if isinstance(texts, str) else texts
    encoding = body.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise LeapSerializationError(f"{encoding!r} is neither float nor base64", path="encoding_format")
    kind = body.get("input_type", "document")
    if kind not in KINDS:
        raise LeapSerializationError(f"{kind!r} is none of {', '.join(KINDS)}", path="input_type")
    dimensions = _count(body, "dimensions")
    return EmbeddingRequest(_model(body), _texts(texts, "input"), encoding == "base64", dimensions, kind)


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
    return RerankRequest(_model(body), query, _texts(documents, "documents"), _count(body, "top_n"), wishes)


def embedding_reply(request: EmbeddingRequest, model: str, rows: NDArray[float32], tokens: int) -> JsonObject:
    """OpenAI's list of embeddings."""
    data = [
        {"object": "embedding", "index": number, "embedding": _encoded(row) if request.as_base64 else row.tolist()}
        for number, row in enumerate(rows)
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


def _encoded(row: NDArray[float32]) -> str:
    """Little-endian float32, as OpenAI's client reads it."""
    return base64.b64encode(row.astype("<f4").tobytes()).decode("ascii")


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


def _count(body: JsonObject, key: str) -> int | None:
    value = body.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise LeapSerializationError("expected a whole number of 1 or more", path=key)
    return value
