"""The tensors of a checked GGUF file, mapped into memory and read one at a time."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import LeapModelLoadingError
from ..models.gguf.header import GGUFHeader, TensorInfo, read_gguf_header

if TYPE_CHECKING:
    from numpy import float32, uint8
    from numpy.typing import NDArray

    Values = NDArray[float32]

ELEMENT_TYPES = {"F32": "<f4", "F16": "<f2"}
"""ggml types whose bytes numpy reads as they are."""


SAMPLES, SAMPLE_BYTES = 32, 32 * 1024
"""A file's fingerprint is made of so many samples of this size."""


class TensorFile:
    """A GGUF file at ``path``. Shapes here are in numpy's order: (rows, columns).

    Raises LeapModelLoadingError when the file is missing, damaged or no GGUF.
    """

    def __init__(self, path: Path) -> None:
        import numpy as np

        self.path = path
        self.header: GGUFHeader = read_gguf_header(path)
        self._tensors: dict[str, TensorInfo] = {tensor.name: tensor for tensor in self.header.tensors}
        self._data: NDArray[uint8] = np.memmap(path, np.uint8, "r")

    @property
    def fingerprint(self) -> bytes:
        """Distinguishes files by content: size and samples spread over the file (16 bytes)."""
        digest = blake2b(str(len(self._data)).encode(), digest_size=16)
        for n in range(SAMPLES):
            start = max(0, len(self._data) - SAMPLE_BYTES) * n // (SAMPLES - 1)
            digest.update(self._data[start : start + SAMPLE_BYTES].data)
        return digest.digest()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def names(self) -> list[str]:
        """All names, in the file's order."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Rows first. A trailing dimension of 1 in the file is left out."""
        return _numpy_shape(self._tensor(name).shape)

    def type(self, name: str) -> str:
        """The ggml type, such as Q8_0."""
        return self._tensor(name).type

    def rows(self, name: str) -> NDArray[uint8]:
        """The tensor's bytes as they are, shape [rows, bytes of a row]; a view of the file."""
        tensor = self._tensor(name)
        count = tensor.elements // tensor.shape[0]
        data = self._data[tensor.offset : tensor.offset + tensor.size_bytes]
        return data.reshape(count, tensor.size_bytes // count)

    def float32(self, name: str) -> Values:
        """The whole tensor as float32, in ``shape(name)``."""
        return self._dequantized(name, self.rows(name)).reshape(self.shape(name))

    def float32_rows(self, name: str, rows: Any) -> Values:
        """The rows of the given numbers as float32, shape [len(rows), columns]."""
        return self._dequantized(name, self.rows(name)[rows])

    def _dequantized(self, name: str, rows: NDArray[uint8]) -> Values:
        import numpy as np

        kind = self.type(name)
        if kind in ELEMENT_TYPES:
            return np.ascontiguousarray(rows).view(ELEMENT_TYPES[kind]).astype(np.float32)
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        try:
            return np.asarray(dequantize(np.ascontiguousarray(rows), GGMLQuantizationType[kind]), np.float32)
        except (KeyError, NotImplementedError):
            raise LeapModelLoadingError(
                f"{self.path} holds {name!r} as {kind}, which cannot be read",
                hint="use the file in F16, Q8_0 or Q4_0",
            ) from None

    def _tensor(self, name: str) -> TensorInfo:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise LeapModelLoadingError(f"{self.path} lacks the tensor {name!r}")
        return tensor


def _numpy_shape(ggml_shape: tuple[int, ...]) -> tuple[int, ...]:
    shape = list(ggml_shape)
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return tuple(reversed(shape))
