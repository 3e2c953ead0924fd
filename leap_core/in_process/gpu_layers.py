"""How many layers of a model go to the GPU where the user leaves that to leap."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..options import ModelLoadingOptions

if TYPE_CHECKING:
    from ..models.gguf.header import GGUFHeader

AUTO, ALL = "auto", -1
BLOCK = re.compile(r"blk\.(\d+)\.")
BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""An element of the context takes these bytes, by its type in ggml."""
LEAST_RESERVE = 512 * 1024**2
RESERVE = 0.1
"""Part of the free memory that stays free, for what computing needs and for other programs."""
CELLS = 8192
"""A context whose size is left to the model is taken to have these."""


def gpu_layers_for(path: Path, options: ModelLoadingOptions) -> int:
    """The layers that llama.cpp is to offload, -1 for all. With ``auto`` as many as fit into the free memory of
    the GPUs, none where this build has no GPU."""
    if not isinstance(options.n_gpu_layers, str):
        return options.n_gpu_layers
    from ..llama.gpu import free_gpu_memory

    free = free_gpu_memory()
    if not free:
        return 0
    from ..models.gguf.header import read_gguf_header

    return layers_that_fit(read_gguf_header(path), sum(free), options)


def layers_that_fit(header: GGUFHeader, free: int, options: ModelLoadingOptions) -> int:
    """How many of the last layers fit into ``free`` bytes together with their part of the context; -1 for all and what
    follows the last."""
    room = free - max(LEAST_RESERVE, free * RESERVE)
    weights: dict[int, int] = {}
    rest: dict[str, int] = {}
    for tensor in header.tensors:
        block = BLOCK.match(tensor.name)
        if block is None:
            rest[tensor.name] = tensor.size_bytes
        else:
            weights[int(block[1])] = weights.get(int(block[1]), 0) + tensor.size_bytes
    if not weights:
        return 0
    context = _context_bytes(header, options)
    layers = 0
    for number in sorted(weights, reverse=True):
        room -= weights[number] + context
        if room < 0:
            return layers
        layers += 1
    embeddings = rest.pop("token_embd.weight", 0)  # they stay on the processor, unless they are the output too
    output = sum(rest.values()) + (0 if "output.weight" in rest else embeddings)
    return ALL if room >= output else layers


def _context_bytes(header: GGUFHeader, options: ModelLoadingOptions) -> float:
    """Bytes of keys and values of one layer; more than it takes where heads share them."""
    width = header.metadata.get(f"{header.architecture}.embedding_length")
    size = options.context_size or min(header.context_length or CELLS, CELLS)
    cells = max(size, options.slots * min(2048, size))
    elements = cells * (width if isinstance(width, int) else 8192)
    return elements * sum(BYTES[name] for name in options.kv_types(gpu_layers=ALL))
