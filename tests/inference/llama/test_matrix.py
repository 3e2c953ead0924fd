"""Products in a file's own types are those of the same values in float32, but for the rounding of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from leap_core.errors import LeapGenerationError
from leap_core.inference.llama.matrix import Matrix, UnavailableError

gguf = pytest.importorskip("gguf")
ROWS, COLUMNS, MOST = 40, 256, 4


@pytest.mark.parametrize(("kind", "rounding"), [("F32", 1e-6), ("F16", 1e-3), ("Q8_0", 0.01), ("Q4_0", 0.01)])
def test_the_product_equals_that_of_the_dequantized_values(kind: str, rounding: float) -> None:
    random = np.random.default_rng(1)
    type_ = gguf.GGMLQuantizationType[kind]
    quantized = gguf.quants.quantize(random.standard_normal((ROWS, COLUMNS), np.float32), type_)
    matrix = Matrix(int(type_), COLUMNS, quantized.view(np.uint8).reshape(ROWS, -1), MOST)
    values = gguf.quants.dequantize(quantized, type_)
    for count in range(1, MOST + 1):
        for threads in (1, 2):
            rows = random.standard_normal((count, COLUMNS), np.float32)
            exact = rows @ values.T
            assert np.abs(matrix.times(rows, threads) - exact).max() < rounding * np.abs(exact).max()
    matrix.close()
    with pytest.raises(LeapGenerationError, match="unloaded"):
        matrix.times(rows, 1)
    matrix.close()


def test_rows_of_a_wrong_length_are_not_passed_to_ggml() -> None:
    with pytest.raises(UnavailableError):
        Matrix(8, COLUMNS, np.zeros((ROWS, COLUMNS), np.uint8), MOST)
