"""Vocoders with random weights, in both layouts and any size. The same seed gives the same weights in every type that
holds them, so a quantized one can be held against its own values. Needs the ``gguf`` package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leap_core.system.dataclass import dataclass
from leap_core.testing.miniature_speech import ARCHITECTURE


@dataclass(frozen=True)
class VocoderSize:
    """``hidden``: width of the backbone. ``detokenizer_attention``: its layers with attention; heads are as wide as
    those of the depthformer."""

    hidden: int
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    codebooks: int
    codes: int
    detokenizer_width: int
    detokenizer_feed_forward: int
    detokenizer_layers: int
    detokenizer_attention: frozenset[int]
    detokenizer_heads: int
    detokenizer_kv_heads: int
    n_fft: int = 1280


LFM2_5_AUDIO = VocoderSize(2048, 6, 1024, 2816, 32, 8, 8, 2049, 512, 2304, 8, frozenset({2, 4, 6}), 16, 8)
"""LFM2.5-Audio-1.5B's own size."""
TINY = VocoderSize(64, 2, 64, 96, 4, 2, 4, 33, 64, 96, 3, frozenset({1}), 4, 2, 64)


def write_random_vocoder(
    path: Path,
    size: VocoderSize = TINY,
    quantization: str = "f32",
    *,
    detokenizer_quantization: str | None = None,
    detokenizer_path: Path | None = None,
    seed: int = 5,
) -> Path:
    """Write a vocoder; with ``detokenizer_path`` in the split layout, in two files. Quantizations: f32, f16, q8_0,
    q4_0; the detokenizer's layers may have another."""
    head = _Writer(path, ARCHITECTURE, quantization, seed)
    head.gguf.add_uint32("depthformer_n_layer", size.layers)
    head.gguf.add_uint32("depthformer_n_embd", size.width)
    _write_depthformer(head, size)
    head.matrix("emb.emb.weight", size.codebooks * (size.codes - 1), size.detokenizer_width, spread=1.0)
    layers = head
    if detokenizer_path is None:
        layers.set_type(detokenizer_quantization or quantization)
    else:
        layers = _Writer(detokenizer_path, "lfm2", detokenizer_quantization or quantization, seed)
        _write_hyperparameters(layers.gguf, size)
        layers.matrix("token_embd.weight", 64, size.detokenizer_width)
    layers.restart(seed + 1)
    _write_detokenizer(layers, size, merged=detokenizer_path is None)
    head.finish()
    if layers is not head:
        layers.finish()
    return path


def _write_depthformer(writer: _Writer, size: VocoderSize) -> None:
    width, head = size.width, size.width // size.heads
    writer.matrix("depth_linear.weight", size.codebooks * width, size.hidden)
    writer.vector("depth_linear.bias", size.codebooks * width, around=0.0)
    for n in range(size.codebooks):
        writer.matrix(f"depth_embeddings.{n}.embedding.weight", size.codes, width, spread=0.5)
        writer.vector(f"depth_embeddings.{n}.embedding_norm.weight", width)
        writer.matrix(f"depth_embeddings.{n}.to_logits.weight", size.codes, width)
    writer.matrix("audio_embedding.embedding.weight", size.codebooks * size.codes, size.hidden, spread=0.3)
    for n in range(size.layers):
        start = f"depthformer.layers.{n}."
        writer.vector(start + "operator_norm.weight", width)
        writer.vector(start + "ffn_norm.weight", width)
        writer.matrix(start + "operator.qkv_proj.weight", width + 2 * size.kv_heads * head, width)
        writer.vector(start + "operator.attention.q_layernorm.weight", head)
        writer.vector(start + "operator.attention.k_layernorm.weight", head)
        writer.matrix(start + "operator.out_proj.weight", width, width)
        writer.matrix(start + "feed_forward.w1.weight", size.feed_forward, width)
        writer.matrix(start + "feed_forward.w3.weight", size.feed_forward, width)
        writer.matrix(start + "feed_forward.w2.weight", width, size.feed_forward)


def _write_detokenizer(writer: _Writer, size: VocoderSize, *, merged: bool) -> None:
    width, outputs = size.detokenizer_width, size.n_fft + 2
    head = width // size.detokenizer_heads
    kv = size.detokenizer_kv_heads * head
    for n in range(size.detokenizer_layers):
        start = f"lfm.layers.{n}." if merged else f"blk.{n}."

        def name(llama: str, liquid: str, start: str = start) -> str:
            return f"{start}{liquid if merged else llama}.weight"

        writer.vector(name("attn_norm", "operator_norm"), width)
        writer.vector(name("ffn_norm", "ffn_norm"), width)
        writer.matrix(name("ffn_gate", "feed_forward.w1"), size.detokenizer_feed_forward, width)
        writer.matrix(name("ffn_up", "feed_forward.w3"), size.detokenizer_feed_forward, width)
        writer.matrix(name("ffn_down", "feed_forward.w2"), width, size.detokenizer_feed_forward)
        if n in size.detokenizer_attention:
            writer.matrix(name("attn_q", "self_attn.q_proj"), width, width)
            writer.matrix(name("attn_k", "self_attn.k_proj"), kv, width)
            writer.matrix(name("attn_v", "self_attn.v_proj"), kv, width)
            writer.matrix(name("attn_output", "self_attn.out_proj"), width, width)
            writer.vector(name("attn_q_norm", "self_attn.q_layernorm"), head)
            writer.vector(name("attn_k_norm", "self_attn.k_layernorm"), head)
        else:
            writer.matrix(name("shortconv.in_proj", "conv.in_proj"), 3 * width, width)
            writer.matrix(name("shortconv.out_proj", "conv.out_proj"), width, width)
            writer.kernel(name("shortconv.conv", "conv.conv"), width)
    writer.vector("lfm.embedding_norm.weight" if merged else "token_embd_norm.weight", width)
    writer.matrix("lin.weight" if merged else "dense_2.weight", outputs, width)
    writer.vector("lin.bias" if merged else "dense_2.bias", outputs, around=0.0)


def _write_hyperparameters(writer: Any, size: VocoderSize) -> None:
    """Of the split layout's file of layers, which is a model of its own to llama.cpp."""
    kv = [size.detokenizer_kv_heads if n in size.detokenizer_attention else 0 for n in range(size.detokenizer_layers)]
    writer.add_context_length(128_000)
    writer.add_embedding_length(size.detokenizer_width)
    writer.add_block_count(size.detokenizer_layers)
    writer.add_feed_forward_length(size.detokenizer_feed_forward)
    writer.add_head_count(size.detokenizer_heads)
    writer.add_head_count_kv(kv)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e6)
    writer.add_sliding_window(30)
    writer.add_shortconv_l_cache(3)
    writer.add_embedding_length_out(size.n_fft + 2)
    writer.add_vocab_size(64)
    writer.add_tokenizer_model("none")


class _Writer:
    """Random tensors of one file. Matrices are of its type, all else float32."""

    def __init__(self, path: Path, architecture: str, quantization: str, seed: int) -> None:
        import gguf

        self.gguf = gguf.GGUFWriter(path, architecture)
        self.set_type(quantization)
        self.restart(seed)

    def set_type(self, quantization: str) -> None:
        """The type of the matrices from here on."""
        import gguf

        self._kind = gguf.GGMLQuantizationType[quantization.upper()]

    def restart(self, seed: int) -> None:
        """Draw from here on as a new writer with this seed would."""
        import numpy as np

        self._random = np.random.default_rng(seed)

    def matrix(self, name: str, rows: int, columns: int, *, spread: float | None = None) -> None:
        """``spread``: standard deviation; by default it keeps the size of what goes through."""
        import gguf
        import numpy as np

        values = self._random.standard_normal((rows, columns), np.float32)
        values *= columns**-0.5 if spread is None else spread
        self.gguf.add_tensor(name, gguf.quants.quantize(values, self._kind), raw_dtype=self._kind)

    def vector(self, name: str, size: int, *, around: float = 1.0) -> None:
        """Values near ``around``."""
        import numpy as np

        values = around + 0.1 * self._random.standard_normal(size, np.float32)
        self.gguf.add_tensor(name, values.astype(np.float32))

    def kernel(self, name: str, width: int) -> None:
        """A convolution over three positions."""
        import numpy as np

        self.gguf.add_tensor(name, 0.5 * self._random.standard_normal((width, 3), np.float32))

    def finish(self) -> None:
        """Write it all."""
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_tensors_to_file()
        self.gguf.close()
