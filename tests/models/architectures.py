"""Tiny models with random weights of many architectures, each with the tensors and keys that llama.cpp asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.random_models import TEMPLATE, _vocabulary

from .gguf_file import ARRAY, STRING, GGUFFile, Tensor, Value

LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 2, 4, 2, 600, 512
F32, U32, BOOL, I32 = 0, 4, 7, 5


@dataclass(frozen=True)
class Sizes:
    width: int = 64
    feed_forward: int = 128

    @property
    def head(self) -> int:
        return self.width // HEADS

    @property
    def kv(self) -> int:
        return KV_HEADS * self.head


Tensors = Iterator[tuple[str, tuple[int, ...]]]
"""Names and shapes, ggml's order: the row's length first."""


def _attention(s: Sizes, bias: tuple[str, ...] = ()) -> Tensors:
    for name, rows in (("q", s.width), ("k", s.kv), ("v", s.kv), ("output", s.width)):
        yield f"attn_{name}.weight", (s.width, rows)
        if name in bias:
            yield f"attn_{name}.bias", (rows,)


def _gated(s: Sizes) -> Tensors:
    yield "ffn_gate.weight", (s.width, s.feed_forward)
    yield "ffn_up.weight", (s.width, s.feed_forward)
    yield "ffn_down.weight", (s.feed_forward, s.width)


def _plain(s: Sizes, bias: bool) -> Tensors:
    yield "ffn_up.weight", (s.width, s.feed_forward)
    yield "ffn_down.weight", (s.feed_forward, s.width)
    if bias:
        yield "ffn_up.bias", (s.feed_forward,)
        yield "ffn_down.bias", (s.width,)


def _norms(s: Sizes, *names: str, bias: bool = False) -> Tensors:
    for name in names:
        yield f"{name}.weight", (s.width,)
        if bias:
            yield f"{name}.bias", (s.width,)


def _llama(s: Sizes) -> Tensors:
    yield from _norms(s, "attn_norm", "ffn_norm")
    yield from _attention(s)
    yield from _gated(s)


def _mixture(s: Sizes) -> Tensors:
    yield from _norms(s, "attn_norm", "ffn_norm")
    yield from _attention(s)
    yield "ffn_gate_inp.weight", (s.width, 4)
    yield "ffn_gate_exps.weight", (s.width, s.feed_forward, 4)
    yield "ffn_up_exps.weight", (s.width, s.feed_forward, 4)
    yield "ffn_down_exps.weight", (s.feed_forward, s.width, 4)


def _qwen2(s: Sizes) -> Tensors:
    yield from _norms(s, "attn_norm", "ffn_norm")
    yield from _attention(s, ("q", "k", "v"))
    yield from _gated(s)


def _with_head_norms(s: Sizes) -> Tensors:
    yield "attn_q_norm.weight", (s.head,)
    yield "attn_k_norm.weight", (s.head,)


def _qwen3(s: Sizes) -> Tensors:
    yield from _llama(s)
    yield from _with_head_norms(s)


def _gemma2(s: Sizes) -> Tensors:
    yield from _llama(s)
    yield from _norms(s, "post_attention_norm", "post_ffw_norm")


def _gemma3(s: Sizes) -> Tensors:
    yield from _gemma2(s)
    yield from _with_head_norms(s)


def _phi3(s: Sizes) -> Tensors:
    yield from _norms(s, "attn_norm", "ffn_norm")
    yield "attn_qkv.weight", (s.width, s.width + 2 * s.kv)
    yield "attn_output.weight", (s.width, s.width)
    yield "ffn_up.weight", (s.width, 2 * s.feed_forward)
    yield "ffn_down.weight", (s.feed_forward, s.width)


def _gpt2(s: Sizes) -> Tensors:
    yield from _norms(s, "attn_norm", "ffn_norm", bias=True)
    yield "attn_qkv.weight", (s.width, 3 * s.width)
    yield "attn_qkv.bias", (3 * s.width,)
    yield "attn_output.weight", (s.width, s.width)
    yield "attn_output.bias", (s.width,)
    yield from _plain(s, bias=True)


def _starcoder2(s: Sizes) -> Tensors:
    yield from _norms(s, "attn_norm", "ffn_norm", bias=True)
    yield from _attention(s, ("q", "k", "v", "output"))
    yield from _plain(s, bias=True)


def _falcon(s: Sizes) -> Tensors:
    yield from _norms(s, "attn_norm", bias=True)
    yield "attn_qkv.weight", (s.width, s.width + 2 * s.kv)
    yield "attn_output.weight", (s.width, s.width)
    yield from _plain(s, bias=False)


def _olmo2(s: Sizes) -> Tensors:
    yield from _attention(s)
    yield "attn_q_norm.weight", (s.width,)
    yield "attn_k_norm.weight", (s.kv,)
    yield from _norms(s, "post_attention_norm", "post_ffw_norm")
    yield from _gated(s)


def _stablelm(s: Sizes) -> Tensors:
    yield from _norms(s, "attn_norm", "ffn_norm", bias=True)
    yield from _attention(s)
    yield from _gated(s)


def _mamba(s: Sizes) -> Tensors:
    inner, state, rank = 2 * s.width, 16, 4
    yield from _norms(s, "attn_norm")
    yield "ssm_in.weight", (s.width, 2 * inner)
    yield "ssm_conv1d.weight", (4, inner)
    yield "ssm_conv1d.bias", (inner,)
    yield "ssm_x.weight", (inner, rank + 2 * state)
    yield "ssm_dt.weight", (rank, inner)
    yield "ssm_dt.bias", (inner,)
    yield "ssm_a", (state, inner)
    yield "ssm_d", (inner,)
    yield "ssm_out.weight", (inner, s.width)


def _bert(s: Sizes) -> Tensors:
    for name in ("q", "k", "v", "output"):
        yield f"attn_{name}.weight", (s.width, s.width)
        yield f"attn_{name}.bias", (s.width,)
    yield from _norms(s, "attn_output_norm", "layer_output_norm", bias=True)
    yield from _plain(s, bias=True)


@dataclass(frozen=True)
class Architecture:
    """``layer``: the tensors of a layer. ``bias``: of the last norm. ``keys``: beyond the usual ones."""

    layer: Callable[[Sizes], Tensors]
    bias: bool = False
    keys: tuple[tuple[str, object, int], ...] = ()
    heads_kv: int = KV_HEADS
    outer: Callable[[Sizes], Tensors] = lambda s: iter(())
    name: str | None = None


def _gpt2_outer(s: Sizes) -> Tensors:
    yield "position_embd.weight", (s.width, CONTEXT)


def _bert_outer(s: Sizes) -> Tensors:
    yield "position_embd.weight", (s.width, CONTEXT)
    yield "token_types.weight", (s.width, 2)
    yield from _norms(s, "token_embd_norm", bias=True)


SSM = tuple(
    (f".ssm.{name}", value, U32)
    for name, value in (("conv_kernel", 4), ("inner_size", 128), ("state_size", 16), ("time_step_rank", 4))
)
ARCHITECTURES = {
    "llama": Architecture(_llama),
    "llama-moe": Architecture(_mixture, keys=((".expert_count", 4, U32), (".expert_used_count", 2, U32)), name="llama"),
    "qwen2": Architecture(_qwen2),
    "qwen3": Architecture(_qwen3),
    "gemma": Architecture(_llama),
    "gemma2": Architecture(_gemma2, keys=((".attention.sliding_window", 64, U32),)),
    "gemma3": Architecture(_gemma3, keys=((".attention.sliding_window", 64, U32),)),
    "phi3": Architecture(_phi3, keys=((".attention.sliding_window", 64, U32),)),
    "gpt2": Architecture(_gpt2, bias=True, heads_kv=HEADS, outer=_gpt2_outer),
    "starcoder2": Architecture(_starcoder2, bias=True),
    "falcon": Architecture(_falcon, bias=True),
    "olmo2": Architecture(_olmo2),
    "stablelm": Architecture(_stablelm, bias=True),
    "mamba": Architecture(_mamba, keys=SSM, heads_kv=0),
    "bert": Architecture(
        _bert,
        heads_kv=HEADS,
        outer=_bert_outer,
        keys=(
            (".attention.causal", False, BOOL),
            (".pooling_type", 1, U32),
            ("tokenizer.ggml.token_type_count", 2, U32),
        ),
    ),
}


def write_architecture(path: Path, label: str, sizes: Sizes = Sizes(), kind: int = F32, seed: int = 3) -> Path:
    """Write a model of this architecture; ``kind``: the tensor type (0 or 1) of its matrices."""
    return architecture_file(label, sizes, kind, seed).write(path)


def architecture_file(label: str, sizes: Sizes = Sizes(), kind: int = F32, seed: int = 3) -> GGUFFile:
    """The same as parts."""
    architecture = ARCHITECTURES[label]
    file = GGUFFile()
    name = architecture.name or label
    file.set("general.architecture", name.encode(), STRING)
    file.set("general.name", f"random {label}".encode(), STRING)
    for key, value in (
        (".context_length", CONTEXT),
        (".embedding_length", sizes.width),
        (".block_count", LAYERS),
        (".feed_forward_length", 0 if label == "mamba" else sizes.feed_forward),
        (".attention.head_count", 0 if label == "mamba" else HEADS),
        (".attention.head_count_kv", architecture.heads_kv),
        (".rope.dimension_count", sizes.head),
        (".attention.key_length", sizes.head),
        (".attention.value_length", sizes.head),
        (".vocab_size", VOCABULARY),
    ):
        file.set(key, value)
    file.set(".attention.layer_norm_rms_epsilon", 1e-5, 6)
    file.set(".attention.layer_norm_epsilon", 1e-5, 6)
    file.set(".rope.freq_base", 10_000.0, 6)
    for key, number, type_number in architecture.keys:
        file.set(key, number, type_number)
    _add_tokenizer(file, label)
    chance = np.random.default_rng(seed)
    layers = [(f"blk.{n}.{name}", shape) for n in range(LAYERS) for name, shape in architecture.layer(sizes)]
    ends = [("token_embd.weight", (sizes.width, VOCABULARY)), *architecture.outer(sizes)]
    if label in ("olmo2", "stablelm"):
        ends.append(("output.weight", (sizes.width, VOCABULARY)))
    if label != "bert":
        ends += _norms(sizes, "output_norm", bias=architecture.bias)
    for tensor_name, shape in [*ends, *layers]:
        file.tensors.append(_random_tensor(tensor_name, shape, kind, chance))
    return file


def _add_tokenizer(file: GGUFFile, label: str) -> None:
    tokens, merges = _vocabulary(VOCABULARY)
    if label == "bert":
        words = [b"[PAD]", b"[UNK]", b"[CLS]", b"[SEP]", b"[MASK]"]
        words += [("\u2581" + token).encode() for token in tokens][: VOCABULARY - len(words)]
        file.set("tokenizer.ggml.model", b"bert", STRING)
        file.set("tokenizer.ggml.bos_token_id", 2)
        file.set("tokenizer.ggml.eos_token_id", 3)
        file.set("tokenizer.ggml.unknown_token_id", 1)
        file.set("tokenizer.ggml.seperator_token_id", 3)
        file.set("tokenizer.ggml.padding_token_id", 0)
        file.values[b"tokenizer.ggml.tokens"] = Value(ARRAY, words, STRING)
        file.values[b"tokenizer.ggml.token_type"] = Value(ARRAY, [3] * 5 + [1] * (VOCABULARY - 5), I32)
        return
    file.set("tokenizer.ggml.model", b"gpt2", STRING)
    file.set("tokenizer.ggml.pre", b"lfm2", STRING)
    if label == "phi3":
        tokens[3:6] = ["</s>", "<unk>", "<s>"]  # which llama.cpp looks for
    file.values[b"tokenizer.ggml.tokens"] = Value(ARRAY, [token.encode() for token in tokens], STRING)
    file.values[b"tokenizer.ggml.token_type"] = Value(ARRAY, [3] * 16 + [1] * (VOCABULARY - 16), I32)
    file.values[b"tokenizer.ggml.merges"] = Value(ARRAY, [merge.encode() for merge in merges], STRING)
    file.set("tokenizer.ggml.bos_token_id", 1)
    file.set("tokenizer.ggml.eos_token_id", 7)
    file.set("tokenizer.ggml.padding_token_id", 0)
    file.set("tokenizer.ggml.add_bos_token", True, BOOL)
    file.set("tokenizer.chat_template", TEMPLATE.encode(), STRING)


def _random_tensor(name: str, shape: tuple[int, ...], kind: int, chance: np.random.Generator) -> Tensor:
    values = chance.normal(0, shape[0] ** -0.5, shape).astype(np.float32)
    if name.endswith("norm.weight"):
        values = np.ones(shape, np.float32)
    if name.endswith("ssm_a"):
        values = -np.abs(values) - 0.1
    small = len(shape) == 1 or "ssm_" in name or name.startswith(("position_embd", "token_types"))
    if small or kind == F32:
        return Tensor(name.encode(), shape, F32, values.tobytes())
    return Tensor(name.encode(), shape, kind, values.astype(np.float16).tobytes())
