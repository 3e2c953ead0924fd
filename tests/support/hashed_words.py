"""An EmbeddingRunner without a model: texts that share words get vectors that are near."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from leap_core.conversation.embedding import EmbeddingKind, EmbeddingRequest, EmbeddingRunner, TooLong
from leap_core.errors import LeapGenerationError, LeapOptionsError

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

WORD = re.compile(r"\w+")


class HashedWordsRunner(EmbeddingRunner):
    """A vector counts words by their hash; a token is a word. ``calls``: the texts of every call, in order."""

    def __init__(self, dimensions: int = 64, *, most_tokens: int = 512, name: str = "hashed-words") -> None:
        self._dimensions, self._most_tokens, self._name = dimensions, most_tokens, name
        self.calls: list[list[str]] = []

    @property
    def model_id(self) -> str:
        return self._name

    @property
    def fingerprint(self) -> bytes:
        return f"{self._name} {self._dimensions}".encode()[:16].ljust(16, b".")

    @property
    def dimensions(self) -> int:
        return self._dimensions

    @property
    def most_tokens(self) -> int:
        return self._most_tokens

    def count_tokens(self, texts: Sequence[str], kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT) -> list[int]:
        return [2 + len(WORD.findall(text)) for text in texts]

    def _embed(self, request: EmbeddingRequest) -> NDArray[float32]:
        import numpy as np

        tokens, texts = self._embed_tokens(request), request.texts
        rows = np.array([each.sum(axis=0) for each in tokens], np.float32).reshape(len(texts), self._dimensions)
        rows = rows[:, : request.options.dimensions]
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def _embed_tokens(self, request: EmbeddingRequest) -> list[NDArray[float32]]:
        import numpy as np

        texts = request.texts
        if request.cancelled is not None and request.cancelled.is_set():
            raise LeapGenerationError("the call was cancelled")
        self.calls.append(list(texts))
        vectors = []
        for number, text in enumerate(texts):
            words = WORD.findall(text.lower())
            if len(words) + 2 > self._most_tokens:
                if request.options.too_long == TooLong.REFUSE:
                    raise LeapOptionsError(f"texts[{number}]", f"{len(words) + 2} tokens are too many")
                words = words[: self._most_tokens - 2]
            rows = np.zeros((len(words), self._dimensions), np.float32)
            rows[np.arange(len(words)), [crc32(word.encode()) % self._dimensions for word in words]] = 1
            vectors.append(rows)
        if request.on_progress is not None:
            request.on_progress(len(texts))
        return vectors

    def unload(self) -> None:
        return None
