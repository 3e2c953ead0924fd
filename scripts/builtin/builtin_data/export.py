"""Weights and vocabulary to one GGUF file, matrices as Q8_0, and back."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from builtin_data.network import Network
from builtin_data.tokenizer import BOS, END, PAD, USER_DEFINED, Vocabulary
from gguf.quants import dequantize, quantize
from torch import Tensor

TEMPLATE = Path(__file__).with_name("template.jinja")
NAME = "leap built-in demo"
DESCRIPTION = "A tiny LFM2 trained on generated dialogues; the demonstration and test model of leap."


def _tensors(network: Network) -> dict[str, Tensor]:
    named = {"token_embd.weight": network.embedding.weight, "token_embd_norm.weight": network.norm.weight}
    for index, layer in enumerate(network.layers):
        mixer, prefix = layer.mixer, f"blk.{index}."
        parts = {
            "attn_norm": layer.mixer_norm,
            "ffn_norm": layer.feed_norm,
            "ffn_gate": layer.gate,
            "ffn_up": layer.up,
            "ffn_down": layer.down,
        }
        if index in network.shape.attention_layers:
            parts |= {
                "attn_q": mixer.q,
                "attn_k": mixer.k,
                "attn_v": mixer.v,
                "attn_output": mixer.out,
                "attn_q_norm": mixer.q_norm,
                "attn_k_norm": mixer.k_norm,
            }
        else:
            parts |= {"shortconv.in_proj": mixer.in_proj, "shortconv.out_proj": mixer.out_proj}
            named[prefix + "shortconv.conv.weight"] = mixer.kernel
        named |= {f"{prefix}{name}.weight": part.weight for name, part in parts.items()}
    return named


def _token_types(vocabulary: Vocabulary) -> list[int]:
    kinds = gguf.TokenType
    special = [kinds.USER_DEFINED if token in USER_DEFINED else kinds.CONTROL for token in vocabulary.special]
    return special + [kinds.NORMAL] * (len(vocabulary.tokens) - len(special))


def write_gguf(
    network: Network,
    vocabulary: Vocabulary,
    path: Path,
    name: str = NAME,
    description: str = DESCRIPTION,
    prefixes: tuple[str, str] = ("", ""),
) -> None:
    """Write the file under another name first, so that a reader never sees half of it.

    A network that is not causal is written as an encoder whose vector of a text is that of its first token; `prefixes`
    is what it reads before a query and before a document.
    """
    shape = network.shape
    draft = path.with_suffix(".part")
    writer = gguf.GGUFWriter(draft, "lfm2")
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_description(description)
    writer.add_license("apache-2.0")
    writer.add_size_label(f"{sum(p.numel() for p in network.parameters()) / 1e6:.1f}M")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv([shape.kv_heads if i in shape.attention_layers else 0 for i in range(shape.layers)])
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_freq_base(shape.theta)
    writer.add_shortconv_l_cache(shape.kernel)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("lfm2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(_token_types(vocabulary))
    writer.add_token_merges([" ".join(merge) for merge in vocabulary.merges])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(END)
    writer.add_eot_token_id(END)
    writer.add_pad_token_id(PAD)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    if shape.causal:
        writer.add_chat_template(TEMPLATE.read_text(encoding="utf-8").rstrip("\n"))
    else:
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType.CLS)
        for kind, prefix in zip(("query", "document"), prefixes, strict=True):
            writer.add_string(f"leap.embedding.{kind}_prefix", prefix)
    for tensor_name, tensor in _tensors(network).items():
        values = tensor.detach().float().numpy().astype(np.float32)
        if values.ndim == 2 and values.shape[1] % 32 == 0:
            packed = quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(tensor_name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(tensor_name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    draft.replace(path)


def read_gguf(network: Network, path: Path) -> Vocabulary:
    """Set the weights to those of a file that `write_gguf` wrote; returns its vocabulary.

    The file may have fewer layers, and be the same otherwise: what is missing passes on what it gets, until it learns.
    """
    reader = gguf.GGUFReader(path)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    with torch.no_grad():
        for index, layer in enumerate(network.layers):
            if f"blk.{index}.attn_norm.weight" not in stored:
                layer.be_nothing()
        for name, tensor in _tensors(network).items():
            if name not in stored:
                continue
            values = dequantize(stored[name].data, stored[name].tensor_type)
            tensor.copy_(torch.from_numpy(values.reshape(tensor.shape).copy()))
    words = {key: reader.fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges")}
    return Vocabulary(words["tokens"], [tuple(merge.split(" ")) for merge in words["merges"]])


def read_mean(network: Network, paths: list[Path]) -> Vocabulary:
    """Set the weights to the mean of those of these files; returns their vocabulary, ValueError where they differ."""
    vocabulary = read_gguf(network, paths[0])
    total = {name: weight.clone() for name, weight in network.state_dict().items()}
    for path in paths[1:]:
        if read_gguf(network, path) != vocabulary:
            raise ValueError(f"{path} has another vocabulary than {paths[0]}")
        for name, weight in network.state_dict().items():
            total[name] += weight
    network.load_state_dict({name: weight / len(paths) for name, weight in total.items()})
    return vocabulary
