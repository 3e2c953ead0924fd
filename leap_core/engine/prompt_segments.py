"""A prompt as the scheduler sees it: positions with keys, made of token ids or of rows of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Tokens:
    """A run of token ids."""

    ids: tuple[int, ...]

    def position_keys(self) -> list[int]:
        """The ids themselves."""
        return list(self.ids)


class RowSource(Protocol):
    """Where rows of embeddings come from."""

    def find(self) -> NDArray[float32] | None:
        """The rows, where they need not be computed."""
        ...

    def make(self, threads: int) -> NDArray[float32]:
        """The rows, computed with so many threads. Called in the compute thread."""
        ...


@dataclass(frozen=True)
class GivenRows:
    """Rows that are there."""

    rows: NDArray[float32]

    def find(self) -> NDArray[float32]:
        return self.rows

    def make(self, threads: int) -> NDArray[float32]:
        return self.rows


@dataclass(frozen=True, eq=False)
class Embeddings:
    """``length`` rows of embeddings, float32 of the model's width. ``content_key`` names what they depict: equal keys
    promise equal rows. ``source`` has the rows or computes them, when the prompt gets there."""

    length: int
    content_key: bytes
    source: RowSource

    def position_keys(self) -> list[int]:
        """One negative number a row, so that it never equals a token id."""
        digests = (blake2b(self.content_key + n.to_bytes(4, "little"), digest_size=7) for n in range(self.length))
        return [-1 - int.from_bytes(digest.digest(), "little") for digest in digests]


Segment = Tokens | Embeddings


@dataclass(frozen=True)
class Prompt:
    """Segments in order, and ``boundaries``: positions that a later prompt is likely to share up to (the ends of its
    messages), in increasing order, each above 0 and below the length."""

    segments: tuple[Segment, ...]
    boundaries: tuple[int, ...] = ()

    @cached_property
    def keys(self) -> list[int]:
        """One number a position: the token id, or a negative number for a row of embeddings."""
        return [key for segment in self.segments for key in segment.position_keys()]

    @property
    def token_ids(self) -> list[int]:
        """The token ids alone, in order; rows of embeddings are left out."""
        return [id for segment in self.segments if isinstance(segment, Tokens) for id in segment.ids]

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def embedding_ranges(self) -> tuple[tuple[int, int, Embeddings], ...]:
        """(start, end, segment) of every run of embeddings."""
        ranges, at = [], 0
        for segment in self.segments:
            length = segment.length if isinstance(segment, Embeddings) else len(segment.ids)
            if isinstance(segment, Embeddings):
                ranges.append((at, at + length, segment))
            at += length
        return tuple(ranges)


def boundaries_of(ids: Sequence[int], eog_tokens: frozenset[int], control_tokens: frozenset[int]) -> list[int]:
    """Where messages end: before the first control token after each end-of-turn token.

    In ``…<|im_end|>\\n<|im_start|>…`` that is the position of ``<|im_start|>``. Works for every template that closes
    its turns with a token that ends a generation.
    """
    boundaries = []
    ended = False
    for position, token in enumerate(ids):
        if ended and token in control_tokens:
            boundaries.append(position)
            ended = False
        if token in eog_tokens:
            ended = True
    return boundaries


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many positions two lists of keys share from the start on."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    low, high = 0, limit  # left[:low] is shared, left[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
