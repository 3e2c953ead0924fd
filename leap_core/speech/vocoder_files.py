"""The tensors of LFM2.5-Audio's vocoder by their names, in both layouts it is published in.

Merged: one file holds depthformer and detokenizer. Split: the detokenizer's layers are in a file of llama.cpp's lfm2
architecture beside it, and only its table of codes and its window are in the vocoder. Names are those of Liquid's
``liquid-audio``, but for "bounded_attention", which is longer than GGUF allows and therefore "attention".
"""

from __future__ import annotations

from pathlib import Path

from .tensor_file import TensorFile

MERGED_NAMES = {
    "attn_norm": "operator_norm",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "feed_forward.w1",
    "ffn_down": "feed_forward.w2",
    "ffn_up": "feed_forward.w3",
    "shortconv.conv": "conv.conv",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.out_proj": "conv.out_proj",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
}
"""llama.cpp's names (split layout) -> liquid-audio's (merged layout), of the detokenizer's layers."""
MERGED_OUTPUT_NAMES = {
    "token_embd_norm.weight": "lfm.embedding_norm.weight",
    "dense_2.weight": "lin.weight",
    "dense_2.bias": "lin.bias",
}


class VocoderFiles:
    """An opened vocoder and the file with the detokenizer's layers: the same one in the merged layout."""

    def __init__(self, path: Path, detokenizer_path: Path | None = None) -> None:
        self.file = TensorFile(path)
        self.is_merged = is_merged(self.file)
        self.layers_file = self.file if self.is_merged or detokenizer_path is None else TensorFile(detokenizer_path)

    def depthformer_name(self, layer: int, part: str) -> str:
        """A tensor of the depthformer's layer."""
        return f"depthformer.layers.{layer}.{part}.weight"

    def detokenizer_name(self, layer: int, part: str) -> str:
        """A tensor of the detokenizer's layer, by llama.cpp's name of ``part``."""
        if self.is_merged:
            return f"lfm.layers.{layer}.{MERGED_NAMES[part]}.weight"
        return f"blk.{layer}.{part}.weight"

    def output_name(self, part: str) -> str:
        """A tensor after the detokenizer's last layer, by llama.cpp's name."""
        return MERGED_OUTPUT_NAMES[part] if self.is_merged else part


def is_merged(file: TensorFile) -> bool:
    """Whether a vocoder holds the detokenizer's layers too."""
    return f"lfm.layers.0.{MERGED_NAMES['attn_norm']}.weight" in file
