"""The likeliest tokens of a position, picked where the logits are: a row of few numbers comes from the device instead
of one of the whole vocabulary.

llama.cpp runs a chain of samplers of a sequence within its graph. Here the chain is ``top_k`` alone, so that what is
drawn of the candidates, and with which seed, stays leap's. Of candidates with exactly equal logits at the last place
llama.cpp may keep others than the first ones.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ...errors import LeapGenerationError
from .bindings import ChainParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy import float32, int32
    from numpy.typing import NDArray

    from .bindings import Bindings
    from .model import LlamaModel

MOST_CANDIDATES = 64
"""Candidates of a position. One number for all: llama.cpp plans its memory anew whenever a chain changes."""
FUNCTIONS = (
    *("llama_set_sampler", "llama_sampler_chain_init", "llama_sampler_chain_add", "llama_sampler_init_top_k"),
    *(f"llama_get_sampled_{what}_ith" for what in ("candidates", "candidates_count", "logits", "logits_count")),
)


def picks_on_device(model: LlamaModel) -> bool:
    """Whether it pays to pick candidates in the graph: a processor's own pass over the logits is as fast."""
    return model.on_gpu


class DeviceCandidates:
    """Candidates of the sequences of one context of ``model``, which ``pointer`` is."""

    def __init__(self, lib: Bindings, pointer: Any, model: LlamaModel) -> None:
        self._lib, self._pointer = lib, pointer
        self._n_tokens = model.n_tokens
        self.most = min(MOST_CANDIDATES, model.n_tokens)
        self._is_possible = picks_on_device(model) and all(map(lib.has, FUNCTIONS))
        self._chains: dict[int, Any] = {}
        """By sequence. llama.cpp takes a chain once."""

    def pick(self, sequence: int, wanted: bool) -> None:
        """Have candidates picked of the next outputs of a sequence, where that is possible, or not any more."""
        if wanted is (sequence in self._chains) or (wanted and not self._is_possible):
            return
        if not wanted:
            self._lib.llama_set_sampler(self._pointer, sequence, None)
            self._lib.llama_sampler_free(self._chains.pop(sequence))
            return
        chain = self._lib.llama_sampler_chain_init(ChainParams(no_perf=True))
        self._lib.llama_sampler_chain_add(chain, self._lib.llama_sampler_init_top_k(self.most))
        self._is_possible = bool(self._lib.llama_set_sampler(self._pointer, sequence, chain))
        if self._is_possible:
            self._chains[sequence] = chain
        else:
            self._lib.llama_sampler_free(chain)

    def __bool__(self) -> bool:
        return bool(self._chains)

    def __contains__(self, sequence: int) -> bool:
        """Whether candidates are all there is of the outputs of a sequence."""
        return sequence in self._chains

    def read(self, indices: Sequence[int]) -> tuple[NDArray[int32], NDArray[float32]]:
        """The candidates after these batch positions, which rise, and their logits: shape [positions, candidates], in
        no order; valid until the next decode. Raises LeapGenerationError."""
        return self._rows(indices, "candidates", ctypes.c_int32), self._rows(indices, "logits", ctypes.c_float)

    def _rows(self, indices: Sequence[int], what: str, kind: Any) -> NDArray[Any]:
        import numpy as np

        get = getattr(self._lib, f"llama_get_sampled_{what}_ith")
        first, last = get(self._pointer, indices[0]), get(self._pointer, indices[-1])
        count = getattr(self._lib, f"llama_get_sampled_{what}_count_ith")(self._pointer, indices[0])
        if not first or not last or count != self.most:
            raise LeapGenerationError("llama.cpp picked no candidates")
        size = self._n_tokens * ctypes.sizeof(kind)  # each row has room for all tokens
        if last != first + (len(indices) - 1) * size:  # others lie between
            return np.concatenate([self._rows([index], what, kind) for index in indices])
        flat = np.ctypeslib.as_array(
            ctypes.cast(first, ctypes.POINTER(kind)), ((len(indices) - 1) * self._n_tokens + count,)
        )
        return np.lib.stride_tricks.as_strided(flat, (len(indices), count), (size, flat.itemsize), writeable=False)

    def close(self) -> None:
        """Free the chains, after the context."""
        for chain in self._chains.values():
            self._lib.llama_sampler_free(chain)
        self._chains = {}
