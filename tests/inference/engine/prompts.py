"""Prompts made of bare token ids and rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from leap_core.inference.engine.request import Embeddings, GivenRows, PromptTokens, Tokens


def prompt_of(ids: Sequence[int], boundaries: Iterable[int] = ()) -> PromptTokens:
    """A prompt of text alone."""
    return PromptTokens((Tokens(tuple(ids)),), tuple(boundaries))


def embeddings_of(rows: Any, content_key: bytes) -> Embeddings:
    """Rows that are there, shape [positions, width of the model]."""
    return Embeddings(len(rows), content_key, GivenRows(rows))
