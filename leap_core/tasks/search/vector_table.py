"""All vectors of an index in one file that is mapped into memory, and the search for the nearest.

The file is made of the index and can be made again: a line of JSON, the vectors (float16), the ids (int64), the signs
of the numbers after their mean is taken off (bits), and the mean (float32). Small tables are searched exactly; large
ones by the signs first, and the best of those exactly.
"""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...system.dataclass import dataclass
from ...system.files import replacing
from ...system.locks import locked
from .index_file import IndexFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 2
HEAD_BYTES = 256
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
    """The index's vectors, made anew where the index has changed; None when it has none. Where the file cannot be
    written they are held in memory."""
    import numpy as np

    path = table_path(index.path)
    table = _mapped(path, index)
    if table is None:
        try:
            _write(path, index)
            table = _mapped(path, index)
        except OSError:
            table = None
        if table is None:
            stream = io.BytesIO()
            _fill(stream, index)
            table = _read(np.frombuffer(stream.getbuffer(), np.uint8), index)
    return table if table is not None and len(table.ids) else None


def _mapped(path: Path, index: IndexFile) -> VectorTable | None:
    import numpy as np

    try:
        return _read(np.memmap(path, np.uint8, "r"), index)
    except (OSError, ValueError):
        return None


def _read(data: NDArray[np.uint8], index: IndexFile) -> VectorTable | None:
    """The arrays, None where they are not of the index as it is now."""
    import numpy as np

    try:
        head = json.loads(data[:HEAD_BYTES].tobytes())
        if (head["format"], head["change"], head["model"]) != (FORMAT, index.change, index.fingerprint):
            return None
        count, width = head["count"], head["dimensions"]
        sizes = [HEAD_BYTES, _padded(count * width * 2), count * 8, count * _sign_bytes(width), width * 4]
        if len(data) != sum(sizes):
            return None
        _, vectors, ids, signs, mean = np.split(data, np.cumsum(sizes)[:-1])
        return VectorTable(
            ids=ids.view(np.int64),
            vectors=vectors[: count * width * 2].view(np.float16).reshape(count, width),
            signs=signs.reshape(count, -1) if count else signs.reshape(0, 8),
            mean=mean.view(np.float32),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _sign_bytes(width: int) -> int:
    return _padded(-(-width // 8))


def _padded(size: int) -> int:
    """Arrays begin at multiples of eight bytes."""
    return -(-size // 8) * 8


def _write(path: Path, index: IndexFile) -> None:
    fresh = path.with_name(f"{path.name}.new")
    with locked(fresh):
        if _mapped(path, index) is not None:
            return  # another process has made it meanwhile
        with replacing(path, unfinished=fresh, durable=False) as file:
            _fill(file, index)


def _fill(file: IO[bytes], index: IndexFile) -> None:
    """Write the table a block at a time: vectors, ids, then the signs, for which the mean must be known."""
    import numpy as np

    change, model = index.change, index.fingerprint
    file.write(bytes(HEAD_BYTES))
    ids: list[int] = []
    width, mean = 0, np.zeros(0, np.float64)
    rows = index.vectors()
    while block := list(itertools.islice(rows, BLOCK)):
        data = b"".join(blob for _, blob in block)
        width = len(data) // 2 // len(block)
        vectors = np.frombuffer(data, np.float16).reshape(len(block), width)
        mean = (mean if len(mean) else np.zeros(width)) + vectors.astype(np.float32).sum(axis=0)
        ids += [id for id, _ in block]
        file.write(data)
    size = len(ids) * width * 2
    file.write(bytes(_padded(size) - size))
    file.write(np.array(ids, np.int64).tobytes())
    mean = (mean / max(1, len(ids))).astype(np.float32)
    place = file.tell()
    for start in range(0, len(ids), BLOCK):
        file.seek(HEAD_BYTES + start * width * 2)
        vectors = np.frombuffer(file.read(min(BLOCK, len(ids) - start) * width * 2), np.float16).reshape(-1, width)
        signs = np.packbits(vectors > mean, axis=1)
        file.seek(place)
        file.write(np.pad(signs, ((0, 0), (0, _sign_bytes(width) - signs.shape[1]))).tobytes())
        place = file.tell()
    file.seek(place)
    file.write(mean.tobytes())
    head = {"format": FORMAT, "change": change, "model": model, "count": len(ids), "dimensions": width}
    file.seek(0)
    file.write(json.dumps(head).encode().ljust(HEAD_BYTES - 1) + b"\n")
