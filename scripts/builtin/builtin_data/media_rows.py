"""Turns about a picture or a clip to tensors: text as token ids, and places that a tower's tokens fill."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from builtin_data.dialogue import SCHEMA_INSTRUCTION
from tokenizers import Tokenizer
from torch import Tensor

SPECIAL_TOKEN = re.compile(r"<\|\w+\|>")
MEDIUM = "\ufdd0"
"""Stands in a text for the picture or clip."""
ASSISTANT = (
    "You are a helpful assistant.",
    "You are a helpful multimodal assistant by Liquid AI.",
    "Answer briefly.",
)
"""System prompts that change nothing."""
Pieces = list[tuple[str, bool]]
"""Texts, and of each whether it is to be learned."""


class Turn(NamedTuple):
    """A question, empty where the medium alone is sent, and its answer; with a schema JSON that keeps to it.

    The system prompt of a conversation is that of its first turn.
    """

    question: str
    answer: str
    schema: str | None = None
    system: str = ""


class Rows(NamedTuple):
    """Inputs `ids` [rows, length + 1], those of a medium being -1, the mask of targets `learned` [rows, length], and
    for each row the index of its medium in the batch."""

    ids: Tensor
    learned: Tensor
    media: Tensor


class Line(NamedTuple):
    """One row: token ids, which of them are learned, and the index of its medium."""

    ids: list[int]
    learned: list[bool]
    medium: int


def render(turns: list[Turn], medium: str, rng: random.Random) -> Pieces:
    """A conversation as the chat template writes it. `medium` is how the medium is spelled, empty for none."""
    system, schema = turns[0].system or (rng.choice(ASSISTANT) if rng.random() < 0.08 else ""), turns[0].schema
    if schema:
        system += ("\n" if system else "") + SCHEMA_INSTRUCTION + schema
    block = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    pieces: Pieces = [("<|startoftext|>" + block, False)]
    for index, turn in enumerate(turns):
        content = turn.question
        if index == 0 and medium:
            line = "" if not content else rng.choice(["", "", "", "\n"])
            content = medium + line + content if rng.random() < 0.8 else content + line + medium
        pieces.append((f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n", False))
        pieces += [(turn.answer + "<|im_end|>", True), ("\n", False)]
    return pieces


def learned_texts(talks: list[list[Turn]], rng: random.Random) -> Iterator[str]:
    """What is written in conversations between special tokens, for learning a vocabulary."""
    for turns in talks:
        for text, _ in render(turns, "", rng):
            yield from SPECIAL_TOKEN.split(text)


def encode(encoder: Tokenizer, rows: list[tuple[Pieces, int, int]]) -> list[Rows]:
    """Rows of (pieces, index of the medium, its number of tokens) to two padded batches: short rows, long rows."""
    texts = [part for pieces, _, _ in rows for text, _ in pieces for part in text.split(MEDIUM)]
    encoded = iter(encoder.encode_batch(texts))
    lines: list[Line] = []
    for pieces, medium, count in rows:
        ids: list[int] = []
        learned: list[bool] = []
        for text, learn in pieces:
            for number, _ in enumerate(text.split(MEDIUM)):
                ids += ([-1] * count if number else []) + next(encoded).ids
            learned += [learn] * (len(ids) - len(learned))
        lines.append(Line(ids, learned, medium))
    lines.sort(key=lambda line: len(line.ids))
    half = 3 * len(lines) // 4
    return [_padded(part) for part in (lines[:half], lines[half:]) if part]


def _padded(lines: list[Line]) -> Rows:
    length = max(len(line.ids) for line in lines)
    table = np.zeros((len(lines), length), dtype=np.int64)
    mask = np.zeros((len(lines), length), dtype=bool)
    for row, line in enumerate(lines):
        table[row, : len(line.ids)], mask[row, : len(line.ids)] = line.ids, line.learned
    return Rows(torch.from_numpy(table), torch.from_numpy(mask[:, 1:]), torch.tensor([line.medium for line in lines]))
