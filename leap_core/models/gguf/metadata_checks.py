"""What the metadata of a GGUF file must say before llama.cpp may see it, which may abort the process over it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

DEFAULT_ALIGNMENT = 32
MOST_BLOCKS = 512
"""llama.cpp's limit (LLAMA_MAX_LAYERS)."""
TOKENS = "tokenizer.ggml.tokens"
TOKENIZER_ARRAYS = {
    TOKENS: ("string",),
    "tokenizer.ggml.scores": ("float32", "int32"),
    "tokenizer.ggml.token_type": ("int32", "uint32"),
    "tokenizer.ggml.merges": ("string",),
}
MODEL = "tokenizer.ggml.model"
SENTENCEPIECE = "llama"
BYTES_OF_TEXT = (*range(0xC0), *range(0xC2, 0xF5))
"""UTF-8 uses no others."""
AS_LONG_AS_TOKENS = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
"""llama.cpp reads these arrays by token id without looking at their own lengths."""


class Damaged(Exception):
    """What is wrong with the file, as the end of a sentence."""


def check_metadata(metadata: dict[str, Any], array_types: dict[str, str], lacking: frozenset[int]) -> None:
    """Raises Damaged for values over which llama.cpp ends the process or reads beyond its arrays. ``lacking``: bytes
    that have no token."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise Damaged("it does not name its architecture (general.architecture)")
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise Damaged(f"its alignment (general.alignment) is {alignment!r} and must be a power of two")
    for key, types in TOKENIZER_ARRAYS.items():
        if key in metadata and array_types.get(key) not in types:
            raise Damaged(f"{key!r} must be an array of {' or '.join(types)}")
    blocks = metadata.get(f"{architecture}.block_count", 1)
    if not isinstance(blocks, int) or not 1 <= blocks <= MOST_BLOCKS:
        raise Damaged(f"it claims {blocks!r} layers ({architecture}.block_count)")
    for name in ("layer_norm_epsilon", "layer_norm_rms_epsilon"):
        epsilon = metadata.get(f"{architecture}.attention.{name}", 0.0)
        if not isinstance(epsilon, (int, float)) or not epsilon >= 0.0:  # nor not a number
            raise Damaged(f"{architecture}.attention.{name} is {epsilon!r}")
    if lacking and metadata.get(MODEL) == SENTENCEPIECE:
        raise Damaged(f"{MODEL} is {SENTENCEPIECE}, but {TOKENS} has no token for the byte <0x{min(lacking):02X}>")
    tokens = metadata.get(TOKENS)
    for key in AS_LONG_AS_TOKENS:
        value = metadata.get(key)
        if value is not None and (tokens is None or len(value) < len(tokens)):
            raise Damaged(f"{key!r} has {len(value)} elements for {0 if tokens is None else len(tokens)} tokens")


def check_tokens(tokens: Iterable[bytes]) -> frozenset[int]:
    """The bytes that no token of this vocabulary means: llama.cpp's SentencePiece tokenizer ends the process over
    a text in which it needs one of them. Raises Damaged when a token occurs twice, which ends the process at once;
    empty ones are given names."""
    seen: set[bytes] = set()
    for token in tokens:
        if token and token in seen:
            raise Damaged(f"the token {token!r} occurs twice in {TOKENS}")
        seen.add(token)
    return frozenset(byte for byte in BYTES_OF_TEXT if seen.isdisjoint((b"<0x%02X>" % byte, bytes([byte]))))
