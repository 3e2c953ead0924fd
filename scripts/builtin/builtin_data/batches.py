"""Conversations to batches: tokens, what is to be learned of them, and rows of about the same length together."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import NamedTuple

import numpy as np
from builtin_data.dialogue import render
from builtin_data.skills import conversation
from builtin_data.values import Values
from tokenizers import Tokenizer

LENGTHS = (64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 2048)
POOL = 8192
Row = tuple[list[int], list[bool]]
Rows = list[Row]


class Batch(NamedTuple):
    """Inputs [size, length + 1], the mask of targets [size, length], and the rows they are made of."""

    ids: np.ndarray
    learned: np.ndarray
    rows: Rows


def encode(encoder: Tokenizer, pieces: list[list[tuple[str, bool]]]) -> Rows:
    """Token ids and, for each, whether it is to be learned."""
    flat = [text for conversation_pieces in pieces for text, _ in conversation_pieces]
    encoded = iter(encoder.encode_batch(flat))
    rows: Rows = []
    for conversation_pieces in pieces:
        ids: list[int] = []
        learned: list[bool] = []
        for _, learn in conversation_pieces:
            part = next(encoded).ids
            ids += part
            learned += [learn] * len(part)
        rows.append((ids, learned))
    return rows


def pieces(encoder: Tokenizer) -> list[str]:
    """The tokens that are letters, without the space before them."""
    texts = sorted({token.removeprefix("Ġ") for token in encoder.get_vocab()})
    return [text for text in texts if text.isascii() and text.isalpha()]


def pool(encoder: Tokenizer, seed: int, index: int) -> Rows:
    """Fresh conversations, the same for the same seed and index."""
    rng = random.Random(f"{seed}/{index}")
    values = Values(rng, "train", pieces(encoder))
    rows = encode(encoder, [render(conversation(values), rng.random() < 0.5) for _ in range(POOL)])
    return [(ids, learned) for ids, learned in rows if not LENGTHS[-2] < len(ids) < 1500]


def batches(rows: Rows, tokens: int) -> list[Batch]:
    """Rows of about the same length together, about `tokens` tokens in each batch; what is left over is let go."""
    by_length: dict[int, Rows] = defaultdict(list)
    for ids, learned in rows:
        length = next((size for size in LENGTHS if len(ids) <= size + 1), LENGTHS[-1])
        by_length[length].append((ids[: length + 1], learned[: length + 1]))
    made = []
    for length, alike in by_length.items():
        size = tokens // length
        whole = len(alike) - len(alike) % size if len(alike) > size and length < LENGTHS[-1] else len(alike)
        made += [_padded(alike[start : start + size], size, length) for start in range(0, whole, size)]
    return made


def _padded(rows: Rows, size: int, length: int) -> Batch:
    ids = np.zeros((size, length + 1), dtype=np.int64)
    learned = np.zeros((size, length + 1), dtype=bool)
    for row, (tokens, mask) in enumerate(rows):
        ids[row, : len(tokens)] = tokens
        learned[row, : len(mask)] = mask
    return Batch(ids, learned[:, 1:], rows)
