"""A matrix of a GGUF file that ggml multiplies in the type it is held in: a graph of one node for each number of rows.

Eight bits a weight are a quarter of float32's bytes, and reading them is what a product takes its time for.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

from ...errors import LeapGenerationError
from .bindings import Bindings, InitParams
from .library import library

if TYPE_CHECKING:
    from numpy import float32, uint8
    from numpy.typing import NDArray

NODES = 8
"""Space in a graph; it has one node."""
ALIGNMENT = 64
"""Bytes that an object in ggml's memory may lose to its place."""

NOT_EVERYWHERE = (
    "ggml_init",
    "ggml_get_data",
    "ggml_mul_mat",
    "ggml_backend_cpu_init",
    "ggml_backend_cpu_set_n_threads",
)
"""Of ggml's functions those that not every build has where they can be called."""


class UnavailableError(Exception):
    """This build of llama.cpp does not offer ggml's own functions, or ggml reads the rows otherwise."""


class Matrix:
    """``kind``: ggml's number of the type; ``rows``: their bytes, shape [rows, bytes of a row], which are copied;
    ``most``: rows in one product. Not for several threads at once but for ``close``. Raises UnavailableError."""

    def __init__(self, kind: int, columns: int, rows: NDArray[uint8], most: int) -> None:
        self._guard = threading.Lock()
        self._ggml = ggml = _ggml()
        if ggml.ggml_row_size(kind, columns) != rows.shape[1]:
            raise UnavailableError
        tensor = ggml.ggml_tensor_overhead() + ALIGNMENT
        graph = ggml.ggml_graph_overhead_custom(NODES, False) + ALIGNMENT
        values = sum(4 * count * (columns + len(rows)) for count in range(1, most + 1))
        size = rows.nbytes + values + tensor + most * (2 * tensor + graph)
        self._context = ggml.ggml_init(InitParams(size, None, False))
        self._backend = ggml.ggml_backend_cpu_init()
        if not self._context or not self._backend:
            self.close()
            raise UnavailableError
        self._threads = 0
        weights = ggml.ggml_new_tensor_2d(self._context, kind, columns, len(rows))
        self._values(weights, rows.shape, ctypes.c_uint8)[:] = rows
        self._products: list[tuple[NDArray[float32], NDArray[float32], Any]] = [
            self._product(weights, columns, len(rows), count) for count in range(1, most + 1)
        ]

    def times(self, rows: NDArray[float32], threads: int) -> NDArray[float32]:
        """``rows @ M.T``: a view, valid until the next product of as many rows. Raises LeapGenerationError, also after
        ``close``."""
        inputs, outputs, graph = self._products[len(rows) - 1]
        with self._guard:
            if not self._context:
                raise LeapGenerationError("the model is unloaded")
            if threads != self._threads:
                self._threads = threads
                self._ggml.ggml_backend_cpu_set_n_threads(self._backend, threads)
            inputs[:] = rows
            code = self._ggml.ggml_backend_graph_compute(self._backend, graph)
        if code != 0:
            raise LeapGenerationError(f"llama.cpp failed to multiply (code {code})")
        return outputs

    def close(self) -> None:
        """Free the memory."""
        with self._guard:
            context, self._context = self._context, None
            backend, self._backend = self._backend, None
            if context:
                self._ggml.ggml_free(context)
            if backend:
                self._ggml.ggml_backend_free(backend)

    def _product(self, weights: Any, columns: int, rows: int, count: int) -> tuple[Any, Any, Any]:
        ggml, context = self._ggml, self._context
        inputs = ggml.ggml_new_tensor_2d(context, 0, columns, count)
        outputs = ggml.ggml_mul_mat(context, weights, inputs)
        graph = ggml.ggml_new_graph_custom(context, NODES, False)
        ggml.ggml_build_forward_expand(graph, outputs)
        return (
            self._values(inputs, (count, columns), ctypes.c_float),
            self._values(outputs, (count, rows), ctypes.c_float),
            graph,
        )

    def _values(self, tensor: Any, shape: tuple[int, ...], kind: Any) -> Any:
        import numpy as np

        pointer = ctypes.cast(self._ggml.ggml_get_data(tensor), ctypes.POINTER(kind))
        return np.ctypeslib.as_array(pointer, shape)


def _ggml() -> Bindings:
    """llama.cpp, where it offers all of ggml's functions. Raises UnavailableError."""
    llama: Bindings = library()
    if not all(map(llama.has, NOT_EVERYWHERE)):
        raise UnavailableError
    return llama
