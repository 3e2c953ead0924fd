"""Bodies of ``/v1/embeddings`` (OpenAI's) and ``/v1/rerank`` (Jina's and Cohere's, as llama-server has it)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ...conversation.embedding import EMBEDDING, EmbeddingOptions
from ...conversation.option_rows import OneOf, Whole
from ...errors import LeapSerializationError
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from .fields import NOTE, BodyFields, Unknown, read_keep_alive

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

EMBEDDINGS_URL = "/v1/embeddings"
MOST_TEXTS = 2048
OPTIONS = {name: row for row in EMBEDDING.values() for name in row.chat}
"""The fields of a request that are an option each."""
EMBEDDING_FIELDS = frozenset(("model", "input", "encoding_format", "truncate", "normalize", *OPTIONS))
ENCODING, FEWEST = OneOf(("float", "base64")), Whole(1)
DIGITS = 9
"""So many distinguish every float32 from its neighbours."""


@dataclass(frozen=True)
class EmbeddingBody:
    """``texts``: or token ids of them. ``notes``: what was ignored."""

    model: str | None
    texts: tuple[str | list[int], ...]
    options: EmbeddingOptions
    as_base64: bool = False
    keep_alive: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RerankRequest:
    """``most``: documents to return; None is all."""

    model: str
    query: str
    documents: tuple[str, ...]
    most: int | None = None
    with_documents: bool = False
    keep_alive: float | None = None
    notes: tuple[str, ...] = ()


def read_embedding_request(value: Any, unknown: Unknown = NOTE) -> EmbeddingBody:
    """Raises LeapSerializationError or LeapOptionsError naming the field."""
    body = BodyFields(value)
    model = body.text("model")
    if model == "":
        raise LeapSerializationError("expected a model's name", path="model")
    texts = body.take("input")
    one = isinstance(texts, str) or (isinstance(texts, list) and _are_tokens(texts))
    given = {name: value for name in OPTIONS if (value := body.take(name)) is not None}
    options = {OPTIONS[name].name: OPTIONS[name].read_json(name, value) for name, value in given.items()}
    if body.boolean("truncate", False):
        options.setdefault("too_long", "cut")
    encoding = body.take("encoding_format")
    notes = [] if body.boolean("normalize", True) else ["normalize: vectors always have unit length"]
    request = EmbeddingBody(
        model,
        _texts([texts] if one else texts, "input", tokens=True),
        EmbeddingOptions(**options),
        encoding is not None and ENCODING.read("encoding_format", encoding) == "base64",
        read_keep_alive(body.take("keep_alive")),
    )
    return replace(request, notes=(*notes, *body.finish(unknown)))


def read_rerank_request(value: Any) -> RerankRequest:
    """Raises LeapSerializationError naming the field."""
    body = BodyFields(value)
    model, query = body.take("model"), body.take("query")
    if not isinstance(model, str) or not model:
        raise LeapSerializationError("expected a model's name", path="model")
    if not isinstance(query, str):
        raise LeapSerializationError("expected a text", path="query")
    documents = body.take("documents")
    if isinstance(documents, list):
        documents = [each.get("text") if isinstance(each, dict) else each for each in documents]
    texts = cast("tuple[str, ...]", _texts(documents, "documents"))
    with_documents = body.boolean("return_documents", False)
    given = {name: body.take(name) for name in ("top_n", "top_k")}  # vLLM, and others, call it top_k
    fewest = [FEWEST.read(name, FEWEST.from_json(name, each)) for name, each in given.items() if each is not None]
    most = fewest[0] if fewest else None
    keep_alive = read_keep_alive(body.take("keep_alive"))
    return RerankRequest(model, query, texts, most, with_documents, keep_alive, body.finish(NOTE))


def embedding_reply(
    vectors: Iterable[NDArray[float32]], as_base64: bool, model: str, tokens: int, notes: Sequence[str] = ()
) -> JsonObject:
    """OpenAI's list of embeddings; ``notes`` are warnings about the request."""
    data = [
        {"object": "embedding", "index": number, "embedding": encoded(row) if as_base64 else numbers_of(row)}
        for number, row in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage, **_warnings(notes)}


def _warnings(notes: Sequence[str]) -> JsonObject:
    return {"leap": {"warnings": list(notes)}} if notes else {}


def rerank_reply(request: RerankRequest, model: str, ranked: Sequence[tuple[int, float]], tokens: int) -> JsonObject:
    """The documents' numbers with their scores, best first."""
    results: list[JsonObject] = [{"index": number, "relevance_score": score} for number, score in ranked]
    results = results[: request.most]
    if request.with_documents:
        for result in results:
            result["document"] = {"text": request.documents[result["index"]]}
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"model": model, "results": results, "usage": usage, **_warnings(request.notes)}


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


def _are_tokens(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(each, int) and not isinstance(each, bool) for each in value)


def _texts(value: Any, path: str, *, tokens: bool = False) -> tuple[str | list[int], ...]:
    """Texts, or where ``tokens`` may be given, token ids of them."""
    if not isinstance(value, list) or not value:
        raise LeapSerializationError("expected a text or a list of texts", path=path)
    for each in value:
        if not isinstance(each, str) and not (tokens and isinstance(each, list) and _are_tokens(each)):
            raise LeapSerializationError("expected a text or a list of texts", path=path)
    if len(value) > MOST_TEXTS:
        raise LeapSerializationError(f"{len(value)} texts are more than {MOST_TEXTS}", path=path)
    return tuple(value)
