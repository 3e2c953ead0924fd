"""One llama.cpp context for embeddings: texts in, vectors out. Nothing is remembered between calls."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import LeapGenerationError, LeapModelLoadingError
from .context import ABORTED, ComputingContext
from .library import forget_errors, last_errors, library
from .model import LlamaModel

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

POOLINGS = {"none": 0, "mean": 1, "cls": 2, "last": 3}
"""llama.cpp's numbers. "none" gives a vector for each token, the others one for each text."""

CHUNK = 512
"""Tokens that are computed at once where a text may be read in pieces."""


class EmbeddingContext(ComputingContext):
    """Computes at most ``most_tokens`` tokens of at most ``most_texts`` texts in a call, pooled by ``pooling``.

    Not for use by several threads at once, except ``abort``. Raises LeapModelLoadingError.
    """

    def __init__(
        self, model: LlamaModel, *, pooling: str, most_tokens: int, most_texts: int, threads: int, flash: bool = True
    ) -> None:
        model.check_process()
        self._lib = lib = library()
        self._model = model
        self.pooling = pooling
        self.most_tokens, self.most_texts = most_tokens, most_texts
        self.width = model.output_width
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = most_tokens
        # Where every token sees the whole text, a smaller n_ubatch aborts the process.
        params.n_ubatch = min(most_tokens, CHUNK) if model.is_causal and pooling == "none" else most_tokens
        params.n_seq_max = most_texts
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = int(flash)
        params.embeddings = True
        params.pooling_type = POOLINGS[pooling]
        params.kv_unified = True
        self._take_abort_flag(params)
        forget_errors()
        self.pointer = lib.llama_init_from_model(model.pointer, params)
        if not self.pointer:
            raise LeapModelLoadingError(
                f"llama.cpp cannot make a context of {most_tokens} tokens for {model.path.name}: "
                f"{last_errors() or 'no reason given'}",
                hint="try a smaller context size",
            )
        self._memory = lib.llama_get_memory(self.pointer)
        self._batch = lib.llama_batch_init(most_tokens, 0, 1)

    def close(self) -> None:
        """Free the memory; the model stays."""
        pointer, self.pointer = self.pointer, None
        if pointer and not self._model.is_foreign:
            self._lib.llama_batch_free(self._batch)
            self._lib.llama_free(pointer)

    def set_threads(self, threads: int) -> None:
        """Threads of the next calls."""
        self._lib.llama_set_n_threads(self.pointer, threads, threads)

    def embed(self, texts: Sequence[Sequence[int]]) -> list[NDArray[float32]] | None:
        """Vectors of texts given as tokens: shape [width] for each, or [tokens, width] where nothing is pooled.

        Not of unit length. None when aborted. Raises LeapGenerationError.
        """
        import numpy as np

        lib, batch = self._lib, self._batch
        if self._memory:
            lib.llama_memory_clear(self._memory, False)
        index = 0
        for number, tokens in enumerate(texts):
            for position, token in enumerate(tokens):
                batch.token[index] = token
                batch.pos[index] = position
                batch.n_seq_id[index] = 1
                batch.seq_id[index][0] = number
                batch.logits[index] = 1  # pooling takes every token as an output
                index += 1
        batch.n_tokens = index
        forget_errors()
        code = int(lib.llama_decode(self.pointer, batch))
        if code == ABORTED:
            return None
        if code != 0:
            raise LeapGenerationError(f"llama.cpp failed to embed (code {code}): {last_errors() or 'no reason given'}")
        if self.pooling != "none":
            return [self._vector(lib.llama_get_embeddings_seq(self.pointer, n)) for n in range(len(texts))]
        rows = np.stack([self._vector(lib.llama_get_embeddings_ith(self.pointer, n)) for n in range(index)])
        ends = np.cumsum([len(tokens) for tokens in texts])
        return list(np.split(rows, ends[:-1]))

    def _vector(self, pointer: Any) -> NDArray[float32]:
        import numpy as np

        if not pointer:
            raise LeapGenerationError("llama.cpp returned no embedding")
        values = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
        return np.array(np.ctypeslib.as_array(values, (self.width,)))
