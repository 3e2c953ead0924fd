"""Encoded pictures and sound, kept by content, so that the second question about a picture encodes nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

MOST_BYTES = 256 * 1024 * 1024
"""A picture of 256 tokens takes 1 MiB in a model of width 1,024, and 2 MiB in one of 2,048."""


class MediaCache:
    """Rows of embeddings by content key, least recently used first out beyond ``most_bytes``. Any thread may call."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._guard = threading.Lock()
        self._rows: OrderedDict[bytes, NDArray[float32]] = OrderedDict()
        self._bytes = 0
        self.encoded = 0
        """How many pictures or pieces of sound were encoded so far."""

    def find(self, key: bytes) -> NDArray[float32] | None:
        """The rows of a medium, or None."""
        with self._guard:
            rows = self._rows.get(key)
            if rows is not None:
                self._rows.move_to_end(key)
            return rows

    def keep(self, key: bytes, rows: NDArray[float32]) -> None:
        """Remember rows that were just encoded."""
        with self._guard:
            self.encoded += 1
            previous = self._rows.pop(key, None)
            self._bytes += rows.nbytes - (0 if previous is None else previous.nbytes)
            self._rows[key] = rows
            while self._bytes > self._most_bytes and self._rows:
                _, dropped = self._rows.popitem(last=False)
                self._bytes -= dropped.nbytes

    def __contains__(self, key: bytes) -> bool:
        with self._guard:
            return key in self._rows


class CachedRows:
    """The rows of one medium: from the cache, or by ``encode`` (which gets a number of threads). Once had, they stay
    as long as the prompt that needs them."""

    def __init__(self, cache: MediaCache, key: bytes, encode: Callable[[int], NDArray[float32]]) -> None:
        self._cache, self._key, self._encode = cache, key, encode
        self._rows: NDArray[float32] | None = None

    def find(self) -> NDArray[float32] | None:
        """The rows, unless they have to be encoded."""
        if self._rows is None:
            self._rows = self._cache.find(self._key)
        return self._rows

    def make(self, threads: int) -> NDArray[float32]:
        """Encode. In the compute thread."""
        rows = self.find()
        if rows is None:
            self._rows = rows = self._encode(threads)
            self._cache.keep(self._key, rows)
        return rows
