"""What of a model goes to GPUs, and what stays in memory, from its header: nothing is loaded.

The rules are llama.cpp's: the output counts as a layer, so that N layers are the output and the last
N - 1; the table of embeddings stays on the processor, and is copied where it is the output too. Several GPUs share the
layers in order, by ``tensor_split`` or by their free memory, and the last of them has the output.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from ...conversation.options import ModelLoadingOptions
from ...system.dataclass import dataclass
from .header import GGUFHeader, TensorInfo
from .memory import CELLS_PER_SLOT, VALUE_BYTES, Memory, memory_of, shape_of, states_kept

AUTO, ALL = "auto", -1
BLOCK = re.compile(r"blk\.(\d+)\.")
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""The tensors of experts, as llama.cpp's own options match them."""
LARGEST_DEFAULT_CONTEXT = 8192
BATCH_COMPUTED = 512
"""Positions that are computed at once, and whose intermediate values and logits take memory beside."""
MOST_EMBEDDED = 2048
"""Positions that a model for embeddings computes at once."""
LEAST_RESERVE, MOST_RESERVE = 512 * 1024**2, 1024**3
RESERVE = 0.1
"""Part of a GPU's free memory that stays free for other programs, and its bounds."""
PROJECTOR_COMPUTING = 256 * 1024**2
"""What a projector needs beside its weights to encode a picture."""


@dataclass(frozen=True)
class Offload:
    """What is on GPUs. ``layers``: as llama.cpp counts them, -1 for all. ``total`` in bytes, and its parts. ``shares``:
    how much of the layers each GPU gets, in proportion."""

    layers: int = 0
    weights: int = 0
    context: int = 0
    computing: int = 0
    by_gpu: Sequence[int] = ()
    shares: Sequence[float] = ()

    @property
    def total(self) -> int:
        return self.weights + self.context + self.computing


def reserve_of(free: int) -> int:
    """How much of so many free bytes of a GPU is left to other programs."""
    return int(min(max(LEAST_RESERVE, free * RESERVE), MOST_RESERVE))


def offload_that_fits(header: GGUFHeader, options: ModelLoadingOptions, free: Sequence[int]) -> Offload:
    """As many layers as fit into so many free bytes of each GPU."""
    sizes, rooms = _layer_sizes(header, options), [each - reserve_of(each) for each in free]
    for layers in range(len(sizes), 0, -1):
        found = _offload(header, options, sizes[-layers:], free, is_all=layers == len(sizes))
        if found.total and all(need <= room for need, room in zip(found.by_gpu, rooms, strict=True)):
            return found
    return Offload()


def offload_of(header: GGUFHeader, options: ModelLoadingOptions, layers: int, free: Sequence[int]) -> Offload:
    """What so many layers take on GPUs with so many free bytes each."""
    sizes = _layer_sizes(header, options)
    is_all = layers == ALL or layers >= len(sizes)
    return _offload(header, options, sizes if is_all else sizes[len(sizes) - layers :], free, is_all=is_all)


def _offload(
    header: GGUFHeader,
    options: ModelLoadingOptions,
    moved: Sequence[tuple[int, int]],
    free: Sequence[int],
    *,
    is_all: bool,
) -> Offload:
    """``moved``: weights and context of the layers that go to GPUs."""
    if not moved or not free or not shape_of(header).kept:
        return Offload()
    computing, beside = _computing(header, options), _beside(options)
    shares = _shares(options.tensor_split, [each - reserve_of(each) - computing for each in free])
    by_gpu, ends = [0] * len(free), list(accumulate(shares))
    for number, sizes in enumerate(moved):
        by_gpu[min(bisect_right(ends, number / len(moved) * ends[-1]), len(free) - 1)] += sum(sizes)
    used = sum(bytes_ > 0 for bytes_ in by_gpu)
    by_gpu = [bytes_ + computing if bytes_ else 0 for bytes_ in by_gpu]
    by_gpu[0] += beside
    weights, context = (sum(part) for part in zip(*moved, strict=True))
    return Offload(ALL if is_all else len(moved), weights + beside, context, computing * used, by_gpu, shares)


def _shares(split: Sequence[float], rooms: Sequence[int]) -> list[float]:
    """As was asked for, else as much as each GPU has room."""
    shares = [float(each) for each in [*split, *[0.0] * len(rooms)][: len(rooms)]]
    return shares if any(shares) else [float(max(1, each)) for each in rooms]


def memory_beside(header: GGUFHeader, options: ModelLoadingOptions, offload: Offload) -> Memory:
    """What a model takes of the processor's memory where so much of it is on GPUs."""
    size, types = _context_size(header, options), options.kv_types(offload.layers)
    memory = memory_of(header, context_size=size, slots=options.slots, kv_types=types)
    if not offload.layers:
        return memory
    layers = len(shape_of(header).kept) + 1
    first = 0 if offload.layers == ALL else layers - offload.layers
    staying = sum(each.size_bytes for each in header.tensors if not _moves(each, first, options.cpu_moe))
    # llama.cpp lays nothing out anew beside a GPU
    return replace(memory, weights=staying, repacked=0, context=max(0, memory.context - offload.context))


def split_about(memory: Memory, free: Sequence[int]) -> tuple[Memory, Offload]:
    """About the same for a model that is not here: what of its memory stays, and what is on GPUs. Where that is a part,
    only its header says how many layers it is, and ``layers`` is 0."""
    room = sum(max(0, each - reserve_of(each) - memory.computing) for each in free)
    whole = memory.weights + memory.context
    share = max(0.0, min(1.0, room / whole)) if free and whole else 0.0
    if not share:
        return memory, Offload()
    weights, context = int(memory.weights * share), int(memory.context * share)
    rest = replace(memory, weights=memory.weights - weights, repacked=0, context=memory.context - context)
    return rest, Offload(ALL if share == 1 else 0, weights, context, memory.computing * len(free))


def _moves(tensor: TensorInfo, first: int, cpu_moe: int) -> bool:
    """Whether a tensor goes to a GPU with the layers from ``first`` on."""
    block = BLOCK.match(tensor.name)
    if block is None:
        return tensor.name != "token_embd.weight"
    number = int(block[1])
    is_kept_expert = re.search(EXPERTS, tensor.name) and not 0 <= cpu_moe <= number
    return number >= first and not is_kept_expert


def _layer_sizes(header: GGUFHeader, options: ModelLoadingOptions) -> list[tuple[int, int]]:
    """Bytes of weights and of context that go to a GPU with each layer, and last with the output."""
    shape = shape_of(header)
    names = {tensor.name for tensor in header.tensors}
    weights = [0] * (len(shape.kept) + 1)
    for tensor in header.tensors:
        block = BLOCK.match(tensor.name)
        number = len(shape.kept) if block is None else int(block[1])
        is_output = tensor.name == "token_embd.weight" and "output.weight" not in names
        if number < len(weights) and (is_output or _moves(tensor, 0, options.cpu_moe)):
            weights[number] += tensor.size_bytes
    return [*zip(weights, _contexts(header, options), strict=True)]


def _contexts(header: GGUFHeader, options: ModelLoadingOptions) -> list[int]:
    """Bytes of keys and values, or of states, of each layer, and none for the output."""
    shape, size = shape_of(header), _context_size(header, options)
    cells = max(size, options.slots * min(CELLS_PER_SLOT, size))
    keys, values = (VALUE_BYTES[name] for name in options.kv_types(gpu_layers=ALL))
    attending, recurrent = sum(shape.kept) or 1, sum(not each for each in shape.kept) or 1
    sequences = options.slots * 8 if options.prompt_lookup else options.slots + states_kept(shape, options.slots)
    states = sequences * 4 * shape.states / recurrent
    of_layers = [
        cells * (keys * shape.keys + values * shape.values) * kept / attending if kept else states
        for kept in shape.kept
    ]
    return [*map(int, of_layers), 0]


def _computing(header: GGUFHeader, options: ModelLoadingOptions) -> int:
    """Bytes of a batch's intermediate values on each GPU."""
    shape, size = shape_of(header), _context_size(header, options)
    positions = BATCH_COMPUTED if header.pooling is None else options.context_size or MOST_EMBEDDED
    attention = 0 if options.flash_attention else positions * size * 4 * shape.heads
    return positions * 4 * (shape.widest + 4 * shape.width + shape.vocabulary) + positions * size * 6 + attention


def _beside(options: ModelLoadingOptions) -> int:
    """Bytes of a projector and adapters, which the first GPU has."""
    projector = options.mm_proj_path
    computing = 0 if projector is None else PROJECTOR_COMPUTING
    return computing + sum(_size(path) for path in (projector, *(each.path for each in options.adapters)) if path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _context_size(header: GGUFHeader, options: ModelLoadingOptions) -> int:
    return options.context_size or min(header.context_length or LARGEST_DEFAULT_CONTEXT, LARGEST_DEFAULT_CONTEXT)
