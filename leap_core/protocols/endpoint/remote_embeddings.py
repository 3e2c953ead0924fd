"""A remote embedding model (``/v1/embeddings``), as an EmbeddingRunner."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import TYPE_CHECKING

from ...conversation.embedding import (
    EmbeddingKind,
    EmbeddingOptions,
    EmbeddingRequest,
    EmbeddingRunner,
    TooLong,
    checked_texts,
    parts_of,
    unit_rows,
)
from ...conversation.responses import MessageResponse
from ...errors import LeapEndpointError, LeapGenerationError, LeapOptionsError
from ...models.aliases_and_endpoints import Endpoint, refuse_offline
from ...schemas.json_values import JsonObject
from ..openai.embeddings import decoded
from .connection import Connection
from .endpoint_runner import only_model
from .retries import Patience

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


TEXTS_AT_ONCE = 64
MOST_CHARACTERS = 100_000
"""The texts of one request have at most these characters together, but for a single longer one."""
MOST_TOKENS = 8192
"""Taken of every endpoint; one that takes fewer says so."""
BYTES_A_TOKEN = 3.5
LONGEST_CUT = int(MOST_TOKENS * BYTES_A_TOKEN)
"""Characters of a text whose end may be left out; the tokens are not known here."""
LOOK_SECONDS = 0.05


def open_endpoint_for_embedding(
    endpoint: Endpoint, variables: Mapping[str, str] | None = None
) -> EndpointEmbeddingRunner:
    """The runner. Nothing is sent yet. Raises what ``open_endpoint`` raises."""
    refuse_offline(variables)
    key = endpoint.read_key(os.environ if variables is None else variables)
    return EndpointEmbeddingRunner(endpoint, Connection(endpoint, key, Patience(), "vectors"))


class EndpointEmbeddingRunner(EmbeddingRunner):
    """Vectors as the endpoint makes them, brought to unit length. The protocol says nothing of a model's prefixes for
    questions and documents, so that only a ``prefix`` that is given is put before a text."""

    def __init__(self, endpoint: Endpoint, connection: Connection) -> None:
        self._endpoint, self._connection = endpoint, connection
        self._model = endpoint.model
        self._dimensions: int | None = None
        self._unloaded = threading.Event()

    @property
    def model_id(self) -> str:
        return self._model or self._endpoint.label

    @property
    def fingerprint(self) -> bytes:
        """Of address and name: nothing else is known of the model."""
        return hashlib.blake2b(f"{self._endpoint.url}#{self._name()}".encode(), digest_size=16).digest()

    @property
    def dimensions(self) -> int:
        if self._dimensions is None:
            self._rows(["a"], EmbeddingRequest(["a"]))
        assert self._dimensions is not None
        return self._dimensions

    @property
    def most_tokens(self) -> int:
        return MOST_TOKENS

    def count_tokens(self, texts: Sequence[str], kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT) -> list[int]:
        """Estimated: only the endpoint knows how its model counts."""
        EmbeddingOptions(kind)
        return [int(len(text.encode("utf-8")) / BYTES_A_TOKEN) + 1 for text in checked_texts(texts)]

    def _embed(self, request: EmbeddingRequest) -> NDArray[float32]:
        import numpy as np

        options = request.options
        if options.pooling is not None:
            raise LeapOptionsError("pooling", f"{self._endpoint.host} chooses it")
        texts = [f"{options.prefix or ''}{text}" for text in checked_texts(request.texts)]
        if options.too_long == TooLong.CUT:
            texts = [text[:LONGEST_CUT] for text in texts]
        rows: list[NDArray[float32]] = []
        for part in parts_of(texts, TEXTS_AT_ONCE, MOST_CHARACTERS):
            rows += self._rows(part, request)
            if request.on_progress is not None:
                request.on_progress(len(rows))
        if not rows:
            return np.zeros((0, options.dimensions or self.dimensions), np.float32)
        return unit_rows(np.stack(rows))

    def _embed_tokens(self, request: EmbeddingRequest) -> list[NDArray[float32]]:
        raise LeapOptionsError("tokens", f"{self._endpoint.host} gives one vector of a text, none for each token")

    def unload(self) -> None:
        self._unloaded.set()
        self._connection.close()

    def _name(self) -> str:
        if self._model is None:
            self._model = only_model(self._connection)
        return self._model

    def _rows(self, texts: list[str], request: EmbeddingRequest) -> list[NDArray[float32]]:
        if self._unloaded.is_set():
            raise _unloaded()
        body: JsonObject = {"model": self._name(), "input": texts}
        dimensions = request.options.dimensions
        if dimensions is not None:
            body["dimensions"] = dimensions
        reply = _Vectors()
        asked = self._connection.submit(
            self._connection.exchange("/embeddings", body, reply, lambda _: None, lambda _: None)
        )
        while not wait_for([asked], LOOK_SECONDS).done:
            if request.cancelled is not None and request.cancelled.is_set():
                asked.cancel()
                raise LeapGenerationError("the embedding was cancelled")
            if self._unloaded.is_set():
                asked.cancel()
        try:
            asked.result()
        except CancelledError:  # whoever unloads ends its requests
            raise _unloaded() from None
        rows = reply.rows(len(texts), self._endpoint.host)
        self._dimensions = self._dimensions or (None if dimensions else len(rows[0]))
        return rows


def _unloaded() -> LeapGenerationError:
    return LeapGenerationError("the model is unloaded", hint="load it again")


class _Vectors:
    """Reads one reply, which comes whole."""

    has_begun = False

    def __init__(self) -> None:
        self._value: object = None

    @property
    def has_ended(self) -> bool:
        return self._value is not None

    def feed(self, value: object) -> Iterator[MessageResponse]:
        self._value = value
        return iter(())

    def rows(self, count: int, host: str) -> list[NDArray[float32]]:
        """The vectors in the order of the texts. Raises LeapEndpointError for what are none."""
        import numpy as np

        listed = self._value.get("data") if isinstance(self._value, dict) else None
        found: dict[int, NDArray[float32]] = {}
        for n, each in enumerate(listed if isinstance(listed, list) else ()):
            vector = each.get("embedding") if isinstance(each, dict) else None
            with suppress(ValueError, TypeError):
                row = decoded(vector) if isinstance(vector, str) else np.asarray(vector, np.float32)
                if row.ndim == 1 and len(row) and np.isfinite(row).all():
                    found[int(each.get("index", n))] = row
        if sorted(found) != list(range(count)) or len({len(row) for row in found.values()}) != 1:
            raise LeapEndpointError(f"{host} gave no vector for each of {count} texts", of_request=True)
        return [found[n] for n in range(count)]
