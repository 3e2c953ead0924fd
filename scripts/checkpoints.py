"""Write checkpoints with random weights as training leaves them, one of each family that leap converts, with the
tokenizer of a real model: for tests, and to hold leap's conversion against llama.cpp's.

    python scripts/checkpoints.py DIRECTORY [FAMILY...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WIDTH, INNER, HEADS, GROUPS, BLOCKS, CACHE = 64, 128, 4, 2, 4, 3
KINDS = ["conv", "conv", "full_attention", "conv"]
EXPERTS, INNER_EXPERTS, DENSE = 4, 64, 1
VISION, VISION_INNER, VISION_BLOCKS, POSITIONS = 48, 96, 3, 16
FAMILIES = ("lfm2", "moe", "vl", "embedding", "colbert", "llama")
CONTROL, NORMAL = 3, 1


def write_tokenizer(directory: Path, source: Path) -> int:
    """tokenizer.json and its settings out of a GGUF's vocabulary; how many tokens."""
    from gguf import GGUFReader

    fields = GGUFReader(source).fields
    value = {name: fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges", "pre")}
    tokens, types = value["tokens"], value["token_type"]
    split = {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}
    digits = {"type": "Digits", "individual_digits": True}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    cut = [split, bytes_] if value["pre"] == "lfm2" else [digits, bytes_ | {"use_regex": True}]
    special = [n for n, kind in enumerate(types) if kind == CONTROL]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": n, "content": tokens[n], **flags} for n in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cut},
        "decoder": bytes_ | {"use_regex": True},
        "model": {
            "type": "BPE",
            "ignore_merges": value["pre"] == "lfm2",
            "vocab": {text: n for n, text in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in value["merges"]],
        },
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")
    names = {kind: fields.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("bos", "eos")}
    settings: dict[str, Any] = {f"{kind}_token": tokens[int(each.contents())] for kind, each in names.items() if each}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    if "tokenizer.chat_template" in fields:
        (directory / "chat_template.jinja").write_text(fields["tokenizer.chat_template"].contents(), "utf-8")
    return len(tokens)


def shapes_of(family: str, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """The shapes of ``tensors_of``, without the memory of its values."""
    empty = tensors_of(family, vocabulary, 0, lambda *shape: np.broadcast_to(np.float32(0), shape))
    return {name: values.shape for name, values in empty.items()}


def tensors_of(family: str, vocabulary: int, seed: int, weights: Any = None) -> dict[str, np.ndarray]:
    """Random weights under the names that transformers gives them; ``weights`` makes the values of a shape."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.05).astype(np.float32)

    weights = weights or normal
    made = {"model.embed_tokens.weight": weights(vocabulary, WIDTH)}
    if family == "llama":
        made["model.norm.weight"] = 1 + weights(WIDTH)
    else:
        made["model.embedding_norm.weight"] = 1 + weights(WIDTH)
    for block in range(BLOCKS):
        made |= {f"model.layers.{block}.{name}": each for name, each in _block(family, block, weights).items()}
    if family in ("embedding", "colbert"):
        made = {name.removeprefix("model."): each for name, each in made.items()}
    if family == "vl":
        made = {name.replace("model.", "model.language_model.", 1): each for name, each in made.items()}
        made |= _vision(weights)
    return made


def _block(family: str, block: int, weights: Any) -> dict[str, np.ndarray]:
    narrow = WIDTH // HEADS * GROUPS
    made = {
        f"self_attn.{name}_proj.weight": weights(rows, WIDTH)
        for name, rows in (("q", WIDTH), ("k", narrow), ("v", narrow))
    }
    if family == "llama":
        made |= {"self_attn.o_proj.weight": weights(WIDTH, WIDTH)}
        made |= {f"mlp.{name}_proj.weight": weights(INNER, WIDTH) for name in ("gate", "up")}
        made |= {"mlp.down_proj.weight": weights(WIDTH, INNER)}
        return made | {f"{name}_layernorm.weight": 1 + weights(WIDTH) for name in ("input", "post_attention")}
    if KINDS[block] == "conv":
        made = {"conv.conv.weight": weights(WIDTH, 1, CACHE), "conv.in_proj.weight": weights(3 * WIDTH, WIDTH)}
        made |= {"conv.out_proj.weight": weights(WIDTH, WIDTH)}
    else:
        made |= {"self_attn.out_proj.weight": weights(WIDTH, WIDTH)}
        made |= {f"self_attn.{name}_layernorm.weight": 1 + weights(WIDTH // HEADS) for name in ("q", "k")}
    made |= {f"{name}_norm.weight": 1 + weights(WIDTH) for name in ("operator", "ffn")}
    if family == "moe" and block >= DENSE:
        made |= {"feed_forward.gate.weight": weights(EXPERTS, WIDTH), "feed_forward.expert_bias": weights(EXPERTS)}
        for expert in range(EXPERTS):
            made |= _feed_forward(f"feed_forward.experts.{expert}", INNER_EXPERTS, weights)
        return made
    return made | _feed_forward("feed_forward", INNER, weights)


def _feed_forward(name: str, inner: int, weights: Any) -> dict[str, np.ndarray]:
    shapes = {"w1": (inner, WIDTH), "w2": (WIDTH, inner), "w3": (inner, WIDTH)}
    return {f"{name}.{part}.weight": weights(*shape) for part, shape in shapes.items()}


def _vision(weights: Any) -> dict[str, np.ndarray]:
    top = "model.vision_tower.vision_model"
    made = {
        f"{top}.embeddings.patch_embedding.weight": weights(VISION, 768),
        f"{top}.embeddings.patch_embedding.bias": weights(VISION),
        f"{top}.embeddings.position_embedding.weight": weights(POSITIONS, VISION),
        f"{top}.post_layernorm.weight": 1 + weights(VISION),
        f"{top}.post_layernorm.bias": weights(VISION),
    }
    for block in range(VISION_BLOCKS):
        shapes = {f"self_attn.{n}_proj": (VISION, VISION) for n in ("q", "k", "v", "out")}
        shapes |= {"mlp.fc1": (VISION_INNER, VISION), "mlp.fc2": (VISION, VISION_INNER)}
        for name, shape in shapes.items():
            made[f"{top}.encoder.layers.{block}.{name}.weight"] = weights(*shape)
            made[f"{top}.encoder.layers.{block}.{name}.bias"] = weights(shape[0])
        for name in ("layer_norm1", "layer_norm2"):
            made[f"{top}.encoder.layers.{block}.{name}.weight"] = 1 + weights(VISION)
            made[f"{top}.encoder.layers.{block}.{name}.bias"] = weights(VISION)
    joined = VISION * 4
    for name, shape in (("linear_1", (INNER, joined)), ("linear_2", (WIDTH, INNER))):
        made[f"model.multi_modal_projector.{name}.weight"] = weights(*shape)
        made[f"model.multi_modal_projector.{name}.bias"] = weights(shape[0])
    made["model.multi_modal_projector.layer_norm.weight"] = 1 + weights(joined)
    made["model.multi_modal_projector.layer_norm.bias"] = weights(joined)
    return made


def settings_of(family: str, vocabulary: int) -> dict[str, Any]:
    """config.json."""
    text: dict[str, Any] = {
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": BLOCKS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "max_position_embeddings": 2048,
        "vocab_size": vocabulary,
        "dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if family == "llama":
        return text | {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
        }
    text |= {"norm_eps": 1e-5, "conv_L_cache": CACHE, "layer_types": KINDS, "rope_theta": 1000000.0}
    if family == "moe":
        text |= {"num_experts": EXPERTS, "num_experts_per_tok": 2, "num_dense_layers": DENSE}
        text |= {"moe_intermediate_size": INNER_EXPERTS, "norm_topk_prob": True, "use_expert_bias": True}
        return text | {"architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe"}
    text |= {"block_auto_adjust_ff_dim": False, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256}
    text |= {"block_ff_dim": INNER, "model_type": "lfm2"}
    if family == "vl":
        vision = {
            "hidden_size": VISION,
            "intermediate_size": VISION_INNER,
            "num_hidden_layers": VISION_BLOCKS,
            "num_attention_heads": 4,
            "patch_size": 16,
            "num_channels": 3,
            "num_patches": POSITIONS,
            "layer_norm_eps": 1e-6,
            "model_type": "siglip2_vision_model",
        }
        inner = text | {"architectures": ["Lfm2ForCausalLM"]}
        whole = {"architectures": ["Lfm2VlForConditionalGeneration"], "model_type": "lfm2_vl", "downsample_factor": 2}
        return whole | {
            "text_config": inner,
            "vision_config": vision,
            "vision_feature_layer": -1,
            "projector_hidden_size": INNER,
        }
    name = {"embedding": "Lfm2BidirectionalModel", "colbert": "Lfm2Model"}.get(family, "Lfm2ForCausalLM")
    return text | {"architectures": [name]}


def write_checkpoint(directory: Path, family: str, tokenizer: Path, *, shards: int = 1, seed: int = 7) -> Path:
    """One checkpoint in bf16. ``tokenizer``: a GGUF whose vocabulary it has."""
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = write_tokenizer(directory, tokenizer)
    (directory / "config.json").write_text(json.dumps(settings_of(family, vocabulary), indent=2))
    generation = {"temperature": 0.3, "min_p": 0.15, "repetition_penalty": 1.05, "do_sample": True}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    write_shards(directory, tensors_of(family, vocabulary, seed), shards)
    if family == "vl":
        pictures = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
        (directory / "preprocessor_config.json").write_text(json.dumps(pictures))
    if family in ("embedding", "colbert"):
        kind = "cls" if family == "embedding" else "mean"
        (directory / "1_Pooling").mkdir(exist_ok=True)
        (directory / "1_Pooling" / "config.json").write_text(
            json.dumps({f"pooling_mode_{kind}_token{'s' * (kind == 'mean')}": True})
        )
        (directory / "modules.json").write_text(
            json.dumps([{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])
        )
    if family == "colbert":
        dense = np.random.default_rng(seed + 1).standard_normal((32, WIDTH)).astype(np.float32)
        (directory / "1_Dense").mkdir(exist_ok=True)
        write_safetensors(directory / "1_Dense" / "model.safetensors", {"linear.weight": dense}, "F32")
    return directory


def write_adapter(directory: Path, family: str, base: str, *, rank: int = 4, seed: int = 11) -> Path:
    """An adapter as PEFT saves one, over every matrix of the family's blocks."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    made = {}
    for name, values in tensors_of(family, 8, seed).items():
        if values.ndim == 2 and ".layers." in name and "gate.weight" not in name.replace("gate_proj", ""):
            module = f"base_model.model.{name.removesuffix('.weight')}"
            made[f"{module}.lora_A.weight"] = random.standard_normal((rank, values.shape[1])) * 0.1
            made[f"{module}.lora_B.weight"] = random.standard_normal((values.shape[0], rank)) * 0.1
    write_safetensors(directory / "adapter_model.safetensors", made, "F32")
    settings = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 8,
        "base_model_name_or_path": base,
        "task_type": "CAUSAL_LM",
    }
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    return directory


def write_shards(directory: Path, tensors: dict[str, np.ndarray], shards: int) -> None:
    names = list(tensors)
    if shards == 1:
        write_safetensors(directory / "model.safetensors", tensors, "BF16")
        return
    placed = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = names[number::shards]
        write_safetensors(directory / file, {name: tensors[name] for name in part}, "BF16")
        placed |= dict.fromkeys(part, file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], dtype: str) -> None:
    """The format is small enough to be written by hand, so that no other library is needed."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = []
    at = 0
    for name, values in tensors.items():
        content = _as_bf16(values) if dtype == "BF16" else values.astype("<f4" if dtype == "F32" else "<f2").tobytes()
        entries[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [at, at + len(content)]}
        data.append(content)
        at += len(content)
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"".join(data))


def _as_bf16(values: np.ndarray) -> bytes:
    bits = values.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


if __name__ == "__main__":
    from leap_core.models.builtin import model_path

    for each in sys.argv[2:] or FAMILIES:
        print(
            write_checkpoint(Path(sys.argv[1]) / each, each, model_path("builtin"), shards=2 if each == "lfm2" else 1)
        )
