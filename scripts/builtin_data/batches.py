"""Conversations to batches: tokens, what is to be learned of them, and rows of about the same length together."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from tokenizers import Tokenizer

from builtin_data.dialogue import render
from builtin_data.skills import conversation
from builtin_data.values import Values

LENGTHS = (64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 2048)
POOL = 6144
Rows = list[tuple[list[int], list[bool]]]
Batch = tuple[np.ndarray, np.ndarray]


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


def pool(encoder: Tokenizer, seed: int, index: int, tokens: int) -> list[Batch]:
    """The batches of one pool of fresh conversations, in random order; each holds about `tokens` tokens."""
    rng = random.Random(f"{seed}/{index}")
    values = Values(rng, "train", pieces(encoder))
    rendered = [render(conversation(values), rng.random() < 0.5) for _ in range(POOL)]
    by_length: dict[int, Rows] = defaultdict(list)
    for ids, learned in encode(encoder, rendered):
        if len(ids) > LENGTHS[-2] and len(ids) < 1500:
            continue
        length = next((size for size in LENGTHS if len(ids) <= size + 1), LENGTHS[-1])
        by_length[length].append((ids[: length + 1], learned[: length + 1]))
    batches = []
    for length, rows in by_length.items():
        rng.shuffle(rows)
        size = tokens // length
        whole = len(rows) - len(rows) % size if len(rows) > size and length < LENGTHS[-1] else len(rows)
        batches += [_padded(rows[start : start + size], size, length) for start in range(0, whole, size)]
    rng.shuffle(batches)
    return batches


def _padded(rows: Rows, size: int, length: int) -> Batch:
    """Inputs [size, length + 1] and the mask of targets [size, length]."""
    ids = np.zeros((size, length + 1), dtype=np.int64)
    learned = np.zeros((size, length + 1), dtype=bool)
    for row, (tokens, mask) in enumerate(rows):
        ids[row, : len(tokens)] = tokens
        learned[row, : len(mask)] = mask
    return ids, learned[:, 1:]


def stream(encoder: Tokenizer, seed: int, tokens: int, skip: int = 0) -> Iterator[Batch]:
    """Endless batches; `skip` leaves out as many as an earlier run has used."""
    index = 0
    while True:
        for batch in pool(encoder, seed, index, tokens):
            if skip > 0:
                skip -= 1
                continue
            yield batch
        index += 1
