"""How much memory a model takes when it runs on a processor, from its header: nothing is loaded.

The sum is that of the resident pages of a process after a prompt that fills the context: the file as it is mapped, what
llama.cpp lays out anew, keys and values, states of convolutions, what computing a batch needs, and Python.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

from ...system.dataclass import dataclass
from .header import GGUFHeader

PROGRAM = 54_000_000
"""Python with numpy, llama.cpp's libraries and leap, without a model."""
CELLS_PER_SLOT = 2048
CELLS_PADDED_TO = 256
BATCH = 512
TOKEN_BYTES = 380
"""Of a vocabulary in memory: llama.cpp's tables of tokens and merges, and Python's."""
VALUE_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Of an element of the context, by its type in ggml."""
ON_X86 = frozenset({"Q4_0", "Q4_K", "Q2_K", "IQ4_NL"})
ON_ARM = frozenset({"Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL"})
"""Types of weights that llama.cpp lays out anew for the processor's wide products, beside the file."""
ROWS_AT_ONCE = 8
FEWEST_STATES_KEPT, MOST_STATE_BYTES_KEPT = 16, 64 * 1024**2
"""States of recurrent layers kept on a GPU for prompts that return to them: as many as there are slots, and at least so
many, within so many bytes."""
MOST_LAYERS = 1024
"""More than llama.cpp loads."""


@dataclass(frozen=True)
class Memory:
    """Bytes, by what takes them. ``repacked``: weights laid out anew; ``context``: keys, values and states of all
    slots; ``computing``: intermediate values of a batch."""

    weights: int
    repacked: int
    context: int
    computing: int
    program: int = PROGRAM

    @property
    def total(self) -> int:
        return sum(astuple(self))

    @property
    def needed(self) -> int:
        """The total without pages of the file that the system may drop, since what was laid out anew is not read."""
        return self.total - self.repacked


@dataclass(frozen=True)
class MemoryShape:
    """What of a model decides how much its context and computing take. ``keys``, ``values``: elements that all layers
    keep of one position; ``states``: of one sequence; ``widest``: the intermediate values of one position. ``kept``:
    heads of keys by layer, 0 for one that has states. ``heads``: of queries, in the layer that has most."""

    width: int
    keys: int
    values: int
    states: int
    widest: int
    vocabulary: int
    kept: tuple[int, ...] = ()
    heads: int = 1


_FAMILY = ((400, 6, 1024, 4608), (900, 6, 1536, 6912), (1600, 6, 2048, 8192), (4000, 8, 2048, 10_752))
_LARGEST = (10, 2048, 11_776)
"""Of LFM2 and LFM2.5: millions of parameters up to which there are so many layers of attention (each keeps eight heads
of 64 elements), width, and width between. Then that of larger ones."""
_HEADS_KEPT, _HEAD = 8, 64
_VOCABULARY, _CONVOLUTIONS = 65_536, 24


def memory_of(
    header: GGUFHeader, *, context_size: int, slots: int = 1, kv_types: tuple[str, str] = ("bf16", "f16")
) -> Memory:
    """What a model takes with a context of ``context_size`` tokens for each of ``slots`` sequences, which share their
    positions as ``ModelLoadingOptions`` says. A window that bounds what some layers see is not taken off."""
    weights = sum(tensor.size_bytes for tensor in header.tensors)
    return _memory(shape_of(header), (weights, _repacked(header)), context_size, slots, kv_types)


def memory_about(size: int, quantization: str, parameters: int, *, context_size: int, slots: int = 1) -> Memory:
    """About the same for a model of Liquid's that is not here: ``size`` of its file, ``parameters`` in millions."""
    found = next((rest for most, *rest in _FAMILY if parameters <= most), _LARGEST)
    layers, width, between = found
    kept = layers * _HEADS_KEPT * _HEAD
    shape = MemoryShape(width, kept, kept, 2 * width * _CONVOLUTIONS, 2 * between, _VOCABULARY)
    repacked = size if quantization.removesuffix("_M").removesuffix("_S") in _repacking() else 0
    return _memory(shape, (size, repacked), context_size, slots, ("bf16", "f16"))


def largest_context(fits: Callable[[int], bool], most: int) -> int | None:
    """The largest context up to ``most`` that ``fits``, in steps of 256; None where none of 256 does."""
    if fits(most):
        return most
    low, high = 0, -(-most // CELLS_PADDED_TO)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * CELLS_PADDED_TO) else (low, middle)
    return low * CELLS_PADDED_TO or None


def _memory(
    shape: MemoryShape, weights: tuple[int, int], context_size: int, slots: int, kv_types: tuple[str, str]
) -> Memory:
    cells = max(context_size, slots * min(CELLS_PER_SLOT, context_size))
    cells = -(-cells // CELLS_PADDED_TO) * CELLS_PADDED_TO
    kept = VALUE_BYTES[kv_types[0]] * shape.keys + VALUE_BYTES[kv_types[1]] * shape.values
    values = BATCH * (shape.widest + 4 * shape.width) * 4
    mask = BATCH * context_size * (4 + 2)  # as llama.cpp fills it, and as attention reads it
    return Memory(
        weights=weights[0],
        repacked=weights[1],
        context=int(cells * kept) + slots * shape.states * 4,
        computing=values + mask + shape.vocabulary * (4 * slots + TOKEN_BYTES),
    )


def states_kept(shape: MemoryShape, slots: int) -> int:
    """How many states a context on a GPU keeps there beside those of its slots; none where their size is unknown."""
    most = MOST_STATE_BYTES_KEPT // (shape.states * 4) if shape.states else 0
    return min(max(slots, FEWEST_STATES_KEPT), most)


def shape_of(header: GGUFHeader) -> MemoryShape:
    """The shape that a header describes; zero for what it does not say."""

    def number(key: str, otherwise: int = 0) -> int:
        return max(_numbers(header.metadata.get(f"{header.architecture}.{key}"), 1) or [otherwise])

    width, layers = number("embedding_length"), min(number("block_count"), MOST_LAYERS)
    heads = max(1, number("attention.head_count", 1))
    kept = _numbers(header.metadata.get(f"{header.architecture}.attention.head_count_kv"), layers) or [heads] * layers
    head = width // heads
    experts = number("expert_used_count") * number("expert_feed_forward_length")
    return MemoryShape(
        width=width,
        keys=sum(kept) * number("attention.key_length", head),
        values=sum(kept) * number("attention.value_length", head),
        states=sum(1 for each in kept if not each) * max(0, number("shortconv.l_cache") - 1) * width,
        widest=2 * max(number("feed_forward_length"), experts),
        vocabulary=header.vocabulary_size or 0,
        kept=tuple(kept),
        heads=heads,
    )


def _numbers(value: Any, count: int) -> list[int]:
    """A number for each layer, which a header has as a list or once for all; none where it has neither."""
    found = value if isinstance(value, list) else [value] * count
    return [each for each in found if isinstance(each, int) and not isinstance(each, bool)]


def _repacking() -> frozenset[str]:
    machine = platform.machine().lower()
    return ON_X86 if machine in ("x86_64", "amd64") else ON_ARM if machine in ("arm64", "aarch64") else frozenset()


def _repacked(header: GGUFHeader) -> int:
    kinds = _repacking()
    tied = all(tensor.name != "output.weight" for tensor in header.tensors)
    return sum(
        tensor.size_bytes
        for tensor in header.tensors
        if tensor.type in kinds
        and len(tensor.shape) > 1
        and tensor.shape[1] % ROWS_AT_ONCE == 0
        and (tied or tensor.name != "token_embd.weight")
    )
