"""An EmbeddingRunner without a model: texts that share words get vectors that are near."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from ..errors import LeapGenerationError, LeapOptionsError
from ..runner.embedding import EmbeddingKind, EmbeddingRunner, Pooling, TooLong

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

    @property
    def pools(self) -> bool:
        return True

    @property
    def is_late(self) -> bool:
        return False

    def count_tokens(self, texts: Sequence[str], kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT) -> list[int]:
        return [2 + len(WORD.findall(text)) for text in texts]

    def embed(
        self,
        texts: Sequence[str],
        kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT,
        *,
        pooling: Pooling | str | None = None,
        dimensions: int | None = None,
        prefix: str | None = None,
        too_long: TooLong | str = TooLong.REFUSE,
        on_progress: Callable[[int], object] | None = None,
        cancelled: threading.Event | None = None,
    ) -> NDArray[float32]:
        import numpy as np

        tokens = self.embed_tokens(texts, kind, too_long=too_long, on_progress=on_progress, cancelled=cancelled)
        rows = np.array([each.sum(axis=0) for each in tokens], np.float32).reshape(len(texts), self._dimensions)
        rows = rows[:, :dimensions]
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def embed_tokens(
        self,
        texts: Sequence[str],
        kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT,
        *,
        prefix: str | None = None,
        too_long: TooLong | str = TooLong.REFUSE,
        on_progress: Callable[[int], object] | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[NDArray[float32]]:
        import numpy as np

        if cancelled is not None and cancelled.is_set():
            raise LeapGenerationError("the call was cancelled")
        self.calls.append(list(texts))
        vectors = []
        for number, text in enumerate(texts):
            words = WORD.findall(text.lower())
            if len(words) + 2 > self._most_tokens:
                if TooLong(too_long) is TooLong.REFUSE:
                    raise LeapOptionsError(f"texts[{number}]", f"{len(words) + 2} tokens are too many")
                words = words[: self._most_tokens - 2]
            rows = np.zeros((len(words), self._dimensions), np.float32)
            rows[np.arange(len(words)), [crc32(word.encode()) % self._dimensions for word in words]] = 1
            vectors.append(rows)
        if on_progress is not None:
            on_progress(len(texts))
        return vectors

    def unload(self) -> None:
        return None
