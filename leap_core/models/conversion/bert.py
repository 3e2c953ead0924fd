"""What BERT-kind embedding models have of their own: settings, WordPiece vocabulary and tensors without a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import LeapModelLoadingError
from .checkpoint import Family, damaged, read_json

MEAN = 1
"""The pooling of a model that names none, as sentence-transformers has it."""
NOT_EMBEDDING = ("pooler.", "cls.")
"""Tensors for other work, which are not written."""
SPECIAL = {"bos": "[CLS]", "eos": "[SEP]", "sep": "[SEP]", "unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"}


def tensor_name(name: str) -> str | None:
    """A tensor's name in a plain model; None for one that an embedding does not need."""
    name = name.removeprefix("bert.")
    return None if name.startswith(NOT_EMBEDDING) or name.endswith("position_ids") else name


def check_settings(family: Family) -> None:
    """Raises LeapModelLoadingError for a kind that llama.cpp computes in another way."""
    expected = {"hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, value in expected.items():
        if family.settings.get(key, value) != value:
            raise family.refused(f"{family.directory} has {key} {str(family.settings[key])[:20]!r}, and not {value!r}")


def write_settings(writer: Any, family: Family) -> None:
    """The keys by which llama.cpp builds the network."""
    check_settings(family)
    writer.add_block_count(family.blocks)
    writer.add_context_length(family.number("max_position_embeddings"))
    writer.add_embedding_length(family.number("hidden_size"))
    writer.add_feed_forward_length(family.number("intermediate_size"))
    writer.add_head_count(family.number("num_attention_heads"))
    writer.add_layer_norm_eps(family.real("layer_norm_eps"))
    writer.add_causal_attention(False)


def write_vocabulary(writer: Any, family: Family, types: Mapping[str, int]) -> None:
    """The tokens as llama.cpp's WordPiece has them. ``types``: numbers of the kinds of tokens. Raises
    LeapModelLoadingError for a tokenizer of another kind."""
    path = family.directory / "tokenizer.json"
    value = read_json(path)
    model, normalizer = value.get("model"), value.get("normalizer")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict) or "[UNK]" not in vocabulary or "[SEP]" not in vocabulary:
        raise family.refused(f"{path} is no WordPiece tokenizer of BERT")
    if not isinstance(normalizer, dict) or normalizer.get("lowercase") is not True:
        raise family.refused(f"{path} is case-sensitive, and llama.cpp reads BERT without case")
    size = family.number("vocab_size", most=4_000_000)
    tokens, kinds = [f"[PAD{number}]" for number in range(size)], [types["unused"]] * size
    for token, number in vocabulary.items():
        if type(number) is not int or not 0 <= number < size:
            raise damaged(path, f"the token {token[:40]!r} has the number {str(number)[:40]}, of {size}")
        is_special = token in SPECIAL.values()
        tokens[number] = token if is_special else token[2:] if token.startswith("##") else f"\u2581{token}"
        kinds[number] = types["control" if is_special else "normal"]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(family.number("type_vocab_size"))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    for name, token in SPECIAL.items():
        if token in vocabulary:
            getattr(writer, f"add_{name}_token_id")(vocabulary[token])


def check_blocks(family: Family, planned: Mapping[str, Any]) -> None:
    """Raises LeapModelLoadingError where a layer lacks a norm."""
    for block in range(family.blocks):
        for name in (f"blk.{block}.attn_output_norm.weight", f"blk.{block}.layer_output_norm.weight"):
            if name not in planned or planned[name].shape != (family.number("hidden_size"),):
                raise LeapModelLoadingError(f"{family.directory} lacks layer {block}, or parts of it")
