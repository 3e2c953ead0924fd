"""Small transformers in llama.cpp that read embeddings and give embeddings: the depthformer and the detokenizer.

Threads that wait for each other at llama.cpp's barriers lose far more than they gain as soon as anything else wants a
core: whoever calls says how many there may be.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import LeapGenerationError, LeapModelLoadingError
from ..llama.context import GGML_TYPES
from ..llama.devices import Placement
from ..llama.library import forget_errors, last_errors, library
from .vocoder import ATTENTION_WINDOW, DepthformerShape

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

POSITIONS_A_STREAM = 131_072
"""Cells of a stream's context: they cost nothing, because only the window's are held."""
FORGET_AFTER = 48
"""Columns after which those outside the window are forgotten, so that a stream may last for ever."""
MOST_COLUMNS = 96
"""Columns in one decode of the detokenizer."""
MOST_SPEAKERS = 8
"""Sequences in one decode of the depthformer."""


class StackModel:
    """A repacked file in llama.cpp. Several contexts may share it."""

    def __init__(self, path: Path) -> None:
        self._lib = lib = library()
        params = lib.llama_model_default_params()
        kept = Placement().fill(params)
        forget_errors()
        self.pointer: Any = lib.llama_model_load_from_file(os.fsencode(path), params)
        del kept
        if not self.pointer:
            raise LeapModelLoadingError(f"llama.cpp cannot load {path}: {last_errors() or 'no reason given'}")
        self.width = int(lib.llama_model_n_embd(self.pointer))
        self.width_out = int(lib.llama_model_n_embd_out(self.pointer))
        self._guard = threading.Lock()

    def close(self) -> None:
        """Free the memory, after all contexts are closed."""
        with self._guard:
            pointer, self.pointer = self.pointer, None
            if pointer:
                self._lib.llama_model_free(pointer)


class _StackContext:
    """Rows in, rows out. All rows of a batch are outputs."""

    def __init__(self, model: StackModel, *, cells: int, rows: int, sequences: int, exact: bool) -> None:
        import numpy as np

        self._lib = lib = library()
        self._model = model
        params = lib.llama_context_default_params()
        params.n_ctx = cells
        params.n_batch = params.n_ubatch = rows
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = self._threads = 1
        params.embeddings = True
        params.pooling_type = lib.LLAMA_POOLING_TYPE_NONE  # otherwise one row a sequence
        params.flash_attn_type = int(not exact)
        params.swa_full = False
        params.type_k = params.type_v = GGML_TYPES["f32" if exact else "f16"]
        params.kv_unified = True
        params.offload_kqv = params.op_offload = False
        forget_errors()
        self.pointer: Any = lib.llama_init_from_model(model.pointer, params)
        if not self.pointer:
            raise LeapModelLoadingError(f"llama.cpp cannot make a context: {last_errors() or 'no reason given'}")
        self._memory = lib.llama_get_memory(self.pointer)
        self._most = rows
        self._guard = threading.Lock()
        self._batch = lib.llama_batch_init(rows, model.width, sequences)
        self._embeddings = np.ctypeslib.as_array(self._batch.embd, (rows * model.width,)).reshape(rows, model.width)
        self._positions = np.ctypeslib.as_array(self._batch.pos, (rows,))
        for row in range(rows):
            self._batch.n_seq_id[row] = 1
            self._batch.logits[row] = 1

    def run(self, rows: NDArray[float32], positions: Any, sequences: list[int], threads: int) -> NDArray[float32]:
        """Decode rows [n, width] at ``positions``; returns a copy of the output, shape [n, width_out]."""
        with self._guard:  # sound is still read while its model is unloaded
            if not self.pointer:
                raise LeapGenerationError("the model is unloaded")
            if threads != self._threads:
                self._threads = threads
                self._lib.llama_set_n_threads(self.pointer, threads, threads)
            return self._decode(rows, positions, sequences)

    def forget(self, sequence: int, before: int) -> None:
        """Forget the positions of a sequence before ``before``."""
        with self._guard:
            if self.pointer:
                self._lib.llama_memory_seq_rm(self._memory, sequence, 0, before)

    def clear(self) -> None:
        """Forget everything."""
        with self._guard:
            if self.pointer:
                self._lib.llama_memory_clear(self._memory, False)

    def _decode(self, rows: NDArray[float32], positions: Any, sequences: list[int]) -> NDArray[float32]:
        import numpy as np

        n = len(rows)
        self._embeddings[:n] = rows
        self._positions[:n] = positions
        for row, sequence in enumerate(sequences):
            self._batch.seq_id[row][0] = sequence
        self._batch.n_tokens = n
        forget_errors()
        code = int(self._lib.llama_decode(self.pointer, self._batch))
        if code != 0:
            reason = last_errors() or "no reason given"
            raise LeapGenerationError(f"llama.cpp failed to make sound (code {code}): {reason}")
        pointer = self._lib.llama_get_embeddings(self.pointer)
        if not pointer:
            raise LeapGenerationError("llama.cpp returned no embeddings")
        width = self._model.width_out
        return np.array(np.ctypeslib.as_array(pointer, (n * width,)).reshape(n, width))

    @property
    def most_rows(self) -> int:
        """Rows of one batch."""
        return self._most

    def close(self) -> None:
        """Free the memory."""
        with self._guard:
            pointer, self.pointer = self.pointer, None
            if pointer:
                self._lib.llama_batch_free(self._batch)
                self._lib.llama_free(pointer)


class LlamaDepthLayers:
    """The depthformer's layers in llama.cpp; see ``frames.DepthLayers``.

    ``exact``: compute attention in float32 too. Otherwise it is flash attention over half-precision keys, a third
    faster, which chooses another code in one of a hundred frames.
    """

    def __init__(self, model: StackModel, shape: DepthformerShape, *, exact: bool = False) -> None:
        self.most_sequences = MOST_SPEAKERS
        cells = MOST_SPEAKERS * (shape.codebooks + 1)
        self._context = _StackContext(model, cells=cells, rows=MOST_SPEAKERS, sequences=MOST_SPEAKERS, exact=exact)

    def begin(self) -> None:
        self._context.clear()

    def step(self, rows: NDArray[float32], position: int, threads: int = 1) -> NDArray[float32]:
        return self._context.run(rows, position, list(range(len(rows))), threads)

    def close(self) -> None:
        """Free the memory."""
        self._context.close()


class LlamaColumnLayers:
    """The detokenizer's layers in llama.cpp; see ``frames.ColumnLayers``. Its attention is in float32: over 30
    columns that costs nothing, and a stream then sounds the same however it is cut."""

    def __init__(self, model: StackModel) -> None:
        self._context = _StackContext(model, cells=POSITIONS_A_STREAM, rows=MOST_COLUMNS, sequences=1, exact=True)
        self._position = self._forgotten = 0

    def clear(self) -> None:
        self._context.clear()
        self._position = self._forgotten = 0

    def run(self, rows: NDArray[float32], threads: int = 1) -> NDArray[float32]:
        import numpy as np

        most = self._context.most_rows
        return np.concatenate([self._run(rows[start : start + most], threads) for start in range(0, len(rows), most)])

    def _run(self, rows: NDArray[float32], threads: int) -> NDArray[float32]:
        import numpy as np

        n = len(rows)
        columns = self._context.run(rows, np.arange(self._position, self._position + n), [0] * n, threads)
        self._position += n
        out_of_sight = self._position - ATTENTION_WINDOW
        if out_of_sight - self._forgotten >= FORGET_AFTER:
            self._context.forget(0, out_of_sight)
            self._forgotten = out_of_sight
        return columns

    def close(self) -> None:
        """Free the memory."""
        self._context.close()
