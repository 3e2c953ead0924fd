"""All vectors of an index in one file that is mapped into memory, and the search for the nearest.

The file is made of the index and can be made again: a line of JSON, the ids (int64), the signs of the numbers after
their mean is taken off (bits), the mean (float32) and the vectors (float16). Small tables are searched exactly; large
ones by the signs first, and the best of those exactly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..storage.atomic_files import replacing
from .index_file import IndexFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 1
BLOCK = 16_384
EXACT_NUMBERS = 40_000_000
"""Up to so many numbers all are compared: about 40,000 vectors of 1,024."""
CANDIDATES = 4000
"""Vectors that the signs let through to the exact comparison."""


@dataclass(frozen=True)
class VectorTable:
    """``ids`` [n] by row; ``vectors`` [n, d] of unit length."""

    ids: NDArray[np.int64]
    vectors: NDArray[np.float16]
    signs: NDArray[np.uint8]
    mean: NDArray[np.float32]

    def nearest(
        self, query: NDArray[np.float32], most: int, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The ids nearest to a vector of unit length and their cosines, best first. ``among``: only these ids."""
        import numpy as np

        rows = None if among is None else np.flatnonzero(np.isin(self.ids, among))
        count = len(self.ids) if rows is None else len(rows)
        if count * self.vectors.shape[1] > EXACT_NUMBERS and hasattr(np, "bitwise_count"):
            rows = self._likely(query, rows)
        scores = self._scores(query, rows)
        best = _largest(scores, most)
        return self.ids[best if rows is None else rows[best]], scores[best]

    def _scores(self, query: NDArray[np.float32], rows: NDArray[np.int64] | None) -> NDArray[np.float32]:
        import numpy as np

        count = len(self.vectors) if rows is None else len(rows)
        scores = np.empty(count, np.float32)
        for start in range(0, count, BLOCK):
            part = slice(start, start + BLOCK)
            block = self.vectors[part] if rows is None else self.vectors[rows[part]]
            scores[part] = block.astype(np.float32) @ query
        return scores

    def _likely(self, query: NDArray[np.float32], rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """The rows whose signs agree most with the query's."""
        import numpy as np

        signs = np.packbits(query - self.mean > 0)
        padded = np.zeros(self.signs.shape[1], np.uint8)
        padded[: len(signs)] = signs
        own = padded.view(np.uint64)
        table = self.signs.view(np.uint64)
        count = len(table) if rows is None else len(rows)
        differing = np.empty(count, np.int32)
        for start in range(0, count, BLOCK):
            part = slice(start, start + BLOCK)
            block = table[part] if rows is None else table[rows[part]]
            differing[part] = np.bitwise_count(block ^ own).sum(axis=1, dtype=np.int32)
        best = _largest(-differing, CANDIDATES)
        return np.sort(best if rows is None else rows[best])


def _largest(scores: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Positions of the largest numbers, largest first; equal ones in their order."""
    import numpy as np

    if len(scores) > most:
        chosen = np.sort(np.argpartition(-scores, most - 1)[:most])
        return chosen[np.argsort(-scores[chosen], kind="stable")]
    return np.argsort(-scores, kind="stable")


def table_path(index: Path) -> Path:
    """Where the vectors of an index lie."""
    return index.with_suffix(".vectors")


def open_table(index: IndexFile) -> VectorTable | None:
    """The index's vectors, made anew where the index has changed; None when it has none."""
    path = table_path(index.path)
    table = _mapped(path, index)
    if table is None:
        _write(path, index)
        table = _mapped(path, index)
    return table if table is not None and len(table.ids) else None


def _mapped(path: Path, index: IndexFile) -> VectorTable | None:
    import numpy as np

    try:
        with path.open("rb") as file:
            line = file.readline(1000)
            start = file.tell()
        head = json.loads(line)
        if (head["format"], head["change"], head["model"]) != (FORMAT, index.change, index.fingerprint):
            return None
        count, width = head["count"], head["dimensions"]
        if count == 0:
            return VectorTable(*(np.zeros((0, 1), kind) for kind in ("i8", "f2", "u1", "f4")))
        data = np.memmap(path, np.uint8, "r", offset=start)
        sizes = [count * 8, count * _sign_bytes(width), width * 4, count * width * 2]
        if len(data) != sum(sizes):
            return None
        parts = np.split(data, np.cumsum(sizes)[:-1])
        return VectorTable(
            ids=parts[0].view(np.int64),
            vectors=parts[3].view(np.float16).reshape(count, width),
            signs=parts[1].reshape(count, -1),
            mean=parts[2].view(np.float32),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sign_bytes(width: int) -> int:
    return -(-width // 64) * 8


def _write(path: Path, index: IndexFile) -> None:
    import numpy as np

    change, model = index.change, index.fingerprint
    ids, blobs = [], []
    for id, blob in index.vectors():
        ids.append(id)
        blobs.append(blob)
    width = len(blobs[0]) // 2 if blobs else 0
    vectors = np.frombuffer(b"".join(blobs), np.float16).reshape(len(ids), width)
    mean = np.zeros(width, np.float32)
    for start in range(0, len(ids), BLOCK):
        mean += vectors[start : start + BLOCK].astype(np.float32).sum(axis=0)
    mean /= max(1, len(ids))
    head = {"format": FORMAT, "change": change, "model": model, "count": len(ids), "dimensions": width}
    text = json.dumps(head)
    text += " " * (-(len(text) + 1) % 64) + "\n"  # so that the arrays lie on even addresses
    with replacing(path, durable=False) as file:
        file.write(text.encode())
        file.write(np.array(ids, np.int64).tobytes())
        for start in range(0, len(ids), BLOCK):
            signs = np.packbits(vectors[start : start + BLOCK] > mean, axis=1)
            padding = _sign_bytes(width) - signs.shape[1]
            file.write(np.pad(signs, ((0, 0), (0, padding))).tobytes())
        file.write(mean.tobytes())
        file.write(vectors.tobytes())
