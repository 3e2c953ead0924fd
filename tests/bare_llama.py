"""A model computed with nothing but llama.cpp's C calls: what the engine's answers and numbers are held against."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from leap_core.conversation.options import ModelLoadingOptions
from leap_core.inference.llama.context import GGML_TYPES
from tests.support.whole_llama import whole_library

THREADS = 1


class BareLlama:
    """One sequence over a context of its own, with the types of keys and values that leap takes by itself."""

    def __init__(self, path: str, context_size: int = 512) -> None:
        self.lib = lib = whole_library()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        context = lib.llama_context_default_params()
        context.n_ctx = context.n_batch = context.n_ubatch = context_size
        context.n_threads = context.n_threads_batch = THREADS
        types = ModelLoadingOptions().kv_types(gpu_layers=0)
        context.type_k, context.type_v = (GGML_TYPES[name] for name in types)
        context.flash_attn_type = 1
        self.context = lib.llama_init_from_model(self.model, context)
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.width = int(lib.llama_vocab_n_tokens(self.vocab))

    def tokens(self, text: str, *, special: bool) -> list[int]:
        data = text.encode()
        room = (ctypes.c_int32 * (len(data) + 8))()
        count = self.lib.llama_tokenize(self.vocab, data, len(data), room, len(room), False, special)
        return list(room[:count])

    def text(self, tokens: Sequence[int]) -> str:
        """Their text, without a character that is cut at its end."""
        room = ctypes.create_string_buffer(256)
        sizes = ((token, self.lib.llama_token_to_piece(self.vocab, token, room, 256, 0, False)) for token in tokens)
        return b"".join(room.raw[:size] for _, size in sizes).decode("utf-8", "ignore")

    def logprobs(self, prompt: Sequence[int], option: Sequence[int]) -> list[float]:
        """The logarithm of the probability of each token of the option, all computed anew."""
        rows = self._computed([*prompt, *option], 0, outputs=True)
        found = []
        for n, token in enumerate(option, len(prompt) - 1):
            row = rows[n].astype(np.float64)
            found.append(float(row[token] - row.max() - math.log(np.exp(row - row.max()).sum())))
        return found

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The likeliest tokens one after the other, up to ``count`` of them or the end of the answer."""
        found: list[int] = []
        fresh = list(prompt)
        position = 0
        while len(found) < count:
            row = self._computed(fresh, position, outputs=False)[-1]
            position += len(fresh)
            fresh = [int(row.argmax())]
            if self.lib.llama_vocab_is_eog(self.vocab, fresh[0]):
                break
            found += fresh
        return found

    def _computed(self, tokens: Sequence[int], position: int, *, outputs: bool) -> list[NDArray[np.float32]]:
        """The logits after each of the tokens, or after the last; at position 0 all is begun anew."""
        if position == 0:
            self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        batch = self.lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for n, token in enumerate(tokens):
            batch.token[n], batch.pos[n], batch.n_seq_id[n] = token, position + n, 1
            batch.logits[n] = outputs or n == len(tokens) - 1
            batch.seq_id[n][0] = 0
        assert self.lib.llama_decode(self.context, batch) == 0
        places = range(len(tokens)) if outputs else [-1]
        rows = [self.lib.llama_get_logits_ith(self.context, n) for n in places]
        self.lib.llama_batch_free(batch)
        return [np.ctypeslib.as_array(row, (self.width,)) for row in rows]

    def close(self) -> None:
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)


@contextmanager
def bare_llama(path: str, context_size: int = 512) -> Iterator[BareLlama]:
    """The model, and its memory freed at the end."""
    loaded = BareLlama(path, context_size)
    try:
        yield loaded
    finally:
        loaded.close()
