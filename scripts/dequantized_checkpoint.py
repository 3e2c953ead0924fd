"""Write the checkpoint that a GGUF of LFM2's or the plain Llama shape may have come from, of its dequantized tensors.

python scripts/dequantized_checkpoint.py MODEL.gguf DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from checkpoints import write_safetensors, write_tokenizer
from gguf import GGUFReader
from gguf.quants import dequantize

from leap_core.inference.speech.vocoder import MERGED_NAMES

FEED_FORWARD = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
ATTENTION = {f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"}
LLAMA = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_output": "self_attn.o_proj",
    **ATTENTION,
    **FEED_FORWARD,
}
LFM2 = {"token_embd": "embed_tokens", "token_embd_norm": "embedding_norm", **MERGED_NAMES}
MOST_BLOCKS = 1024
SPECIAL = {"unk": "tokenizer.ggml.unknown_token_id", "pad": "tokenizer.ggml.padding_token_id"}


def values_of(source: Path, blocks: int = MOST_BLOCKS) -> dict[str, np.ndarray]:
    """The tensors of a GGUF in float32, under its own names; of the first ``blocks`` only."""
    made = {}
    for tensor in GGUFReader(source).tensors:
        if tensor.name.startswith("blk.") and int(tensor.name.split(".")[1]) >= blocks:
            continue
        shape = tuple(int(each) for each in reversed(tensor.shape))
        made[tensor.name] = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
    return made


def write_checkpoint_of(source: Path, directory: Path, blocks: int = MOST_BLOCKS) -> Path:
    """A checkpoint in float32, under the names and in the order of rows that transformers has; of the first ``blocks``
    only."""
    directory.mkdir(parents=True, exist_ok=True)
    fields = GGUFReader(source).fields
    kind = str(fields["general.architecture"].contents())
    names = LFM2 if kind == "lfm2" else LLAMA

    def value(name: str) -> Any:
        return fields[f"{kind}.{name}"].contents()

    heads, groups = value("attention.head_count"), value("attention.head_count_kv")
    tensors = {}
    for name, values in values_of(source, blocks).items():
        own = name.removesuffix(".weight").split(".", 2)
        if own[0] != "blk":
            tensors[f"model.{names['.'.join(own)]}.weight"] = values
            continue
        if own[2] == "shortconv.conv":
            values = values[:, None, :]
        elif own[2] in ("attn_q", "attn_k") and kind == "llama":  # llama.cpp has the halves of a head's rows in turn
            those = heads if own[2] == "attn_q" else groups
            rows = values.reshape(those, values.shape[0] // those // 2, 2, values.shape[1]).swapaxes(1, 2)
            values = rows.reshape(values.shape)
        tensors[f"model.layers.{own[1]}.{names[own[2]]}.weight"] = values
    write_safetensors(directory / "model.safetensors", tensors, "F32")
    settings = {
        "architectures": ["Lfm2ForCausalLM" if kind == "lfm2" else "LlamaForCausalLM"],
        "model_type": kind,
        "hidden_size": value("embedding_length"),
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": min(blocks, value("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": max(groups) if isinstance(groups, list) else groups,
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": round(value("attention.layer_norm_rms_epsilon"), 9),
        "rope_theta": value("rope.freq_base"),
        "vocab_size": write_tokenizer(directory, source),
        "tie_word_embeddings": "output.weight" not in tensors,
    }
    if kind == "lfm2":
        settings |= {
            "norm_eps": settings.pop("rms_norm_eps"),
            "conv_L_cache": value("shortconv.l_cache"),
            "layer_types": ["full_attention" if each else "conv" for each in groups],
            "block_auto_adjust_ff_dim": False,
        }
    (directory / "config.json").write_text(json.dumps(settings, indent=2))
    beside = directory / "tokenizer_config.json"
    tokens = fields["tokenizer.ggml.tokens"].contents()
    more = {f"{short}_token": tokens[int(fields[key].contents())] for short, key in SPECIAL.items() if key in fields}
    beside.write_text(json.dumps(json.loads(beside.read_text()) | more))
    return directory


if __name__ == "__main__":
    print(write_checkpoint_of(Path(sys.argv[1]), Path(sys.argv[2])))
