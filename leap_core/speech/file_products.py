"""Products with the vocoder's larger matrices, in the types of the file: 134 MB of float32 need not be read for a
frame."""

from __future__ import annotations

from ..llama.matrix import Matrix, UnavailableError
from .frame_maker import Product, float32_product
from .repacking import MATRIX_TYPES
from .tensor_file import TensorFile


class FileProducts:
    """ggml's products, of ``most`` rows at most; numpy's in float32 for matrices of float32, and where ggml cannot be
    had."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._matrices: list[Matrix] = []

    def product(self, file: TensorFile, name: str) -> Product:
        """How rows are multiplied with a matrix of ``file``."""
        from gguf import GGMLQuantizationType

        kind = file.type(name)
        if kind == "F32" or kind not in MATRIX_TYPES:
            return float32_product(file, name)
        try:
            matrix = Matrix(GGMLQuantizationType[kind], file.shape(name)[1], file.rows(name), self._most)
        except UnavailableError:
            return float32_product(file, name)
        self._matrices.append(matrix)
        return matrix.times

    def close(self) -> None:
        """Free the memory."""
        for matrix in self._matrices:
            matrix.close()
