"""Importance matrices: how much each column of a matrix counts, as llama.cpp's ``llama-imatrix`` writes them, as GGUF
or in the format before it."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import LeapModelLoadingError
from ..models.gguf.header import read_gguf_header

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

SUMS, COUNTS = ".in_sum2", ".counts"
LONGEST_NAME = 4096


def read_importance(path: Path) -> dict[str, NDArray[float32]]:
    """The mean of squares by tensor, experts one after the other. Raises LeapModelLoadingError for what is none."""
    try:
        with path.open("rb") as file:
            found = _of_gguf(path) if file.read(4) == b"GGUF" else _of_legacy(path)
    except OSError as error:
        raise LeapModelLoadingError(f"cannot read {path}: {error.strerror}") from None
    except struct.error:
        raise LeapModelLoadingError(f"{path} is no importance matrix, or is cut off") from None
    if not found:
        raise LeapModelLoadingError(f"{path} is no importance matrix")
    return found


def _of_gguf(path: Path) -> dict[str, NDArray[float32]]:
    import numpy as np

    tensors = {tensor.name: tensor for tensor in read_gguf_header(path).tensors}
    found = {}
    for name, tensor in tensors.items():
        if not name.endswith(SUMS):
            continue
        counts = tensors.get(name[: -len(SUMS)] + COUNTS)
        if counts is None or tensor.type != "F32" or counts.type != "F32" or tensor.elements % max(counts.elements, 1):
            raise LeapModelLoadingError(f"{path} is damaged: {name} has no counts that go with it")
        sums = np.fromfile(path, np.float32, tensor.elements, offset=tensor.offset).reshape(counts.elements, -1)
        count = np.fromfile(path, np.float32, counts.elements, offset=counts.offset)[:, None]
        means = np.where(count > 0, sums / np.where(count > 0, count, 1), np.float32(1))
        found[name[: -len(SUMS)]] = np.ascontiguousarray(means.ravel(), np.float32)
    return found


def _of_legacy(path: Path) -> dict[str, NDArray[float32]]:
    import numpy as np

    data = path.read_bytes()
    (entries,) = struct.unpack_from("<i", data)
    if not 0 < entries <= len(data) // 16:
        raise LeapModelLoadingError(f"{path} is no importance matrix")
    at, found = 4, {}
    for _ in range(entries):
        (length,) = struct.unpack_from("<i", data, at)
        if not 0 < length <= LONGEST_NAME:
            raise LeapModelLoadingError(f"{path} is no importance matrix")
        name = data[at + 4 : at + 4 + length].decode("utf-8", "replace")
        calls, count = struct.unpack_from("<ii", data, at + 4 + length)
        at += 12 + length
        if count < 1 or at + 4 * count > len(data):
            raise LeapModelLoadingError(f"{path} is damaged: {name[:80]!r} claims {count} values")
        values = np.frombuffer(data, "<f4", count, at).astype(np.float32)
        found[name] = values / np.float32(calls) if calls > 0 else values
        at += 4 * count
    return found if all(math.isfinite(float(each.sum())) for each in found.values()) else {}
