"""Projectors with random weights, in the shapes that tests and benchmarks need: LFM2-VL's vision tower and LFM2-Audio's
conformer. The same seed gives the same file. Needs the ``gguf`` package (extra ``test``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class VisionShape:
    """``hidden``: width between the two last layers. The patches are 16 pixels, four of them make a token."""

    blocks: int
    width: int
    heads: int
    feed_forward: int
    hidden: int


@dataclass(frozen=True)
class AudioShape:
    """``channels`` of the convolutions that shorten the spectrogram; ``seconds``: the longest sound."""

    blocks: int
    width: int
    heads: int
    feed_forward: int
    channels: int
    hidden: int
    seconds: int


LFM2_VL_450M = VisionShape(12, 768, 12, 3072, 2048)
TINY_VISION = VisionShape(2, 64, 4, 128, 64)
LFM2_AUDIO = AudioShape(17, 512, 8, 2048, 256, 2048, 60)
TINY_AUDIO = AudioShape(2, 64, 4, 128, 16, 64, 60)
SIDE = 16
"""Rows and columns of the table of positions."""


def write_random_projector(
    path: Path,
    text_width: int,
    *,
    vision: VisionShape | None = None,
    audio: AudioShape | None = None,
    quantization: str = "f16",
    seed: int = 7,
) -> Path:
    """Write a projector into a model of ``text_width``; ``quantization`` of the matrices is f32, f16 or q8_0."""
    import gguf

    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    weights = _Weights(writer, gguf.GGMLQuantizationType[quantization.upper()], seed)
    if vision is not None:
        writer.add_bool("clip.has_vision_encoder", True)
        writer.add_string("clip.vision.projector_type", "lfm2")
        writer.add_bool("clip.use_gelu", True)
        _write_vision(writer, weights, vision, text_width)
    if audio is not None:
        writer.add_bool("clip.has_audio_encoder", True)
        writer.add_string("clip.audio.projector_type", "lfm2a")
        _write_audio(writer, weights, audio, text_width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_sizes(writer: Any, modality: str, shape: VisionShape | AudioShape, text_width: int, epsilon: float) -> None:
    prefix = f"clip.{modality}."
    writer.add_uint32(prefix + "embedding_length", shape.width)
    writer.add_uint32(prefix + "feed_forward_length", shape.feed_forward)
    writer.add_uint32(prefix + "block_count", shape.blocks)
    writer.add_uint32(prefix + "attention.head_count", shape.heads)
    writer.add_uint32(prefix + "projection_dim", text_width)
    writer.add_float32(prefix + "attention.layer_norm_epsilon", epsilon)


def _write_vision(writer: Any, weights: _Weights, shape: VisionShape, text_width: int) -> None:
    _write_sizes(writer, "vision", shape, text_width, 1e-6)
    writer.add_uint32("clip.vision.image_size", SIDE * 16)
    writer.add_uint32("clip.vision.patch_size", 16)
    writer.add_uint32("clip.vision.projector.scale_factor", 2)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    width = shape.width
    weights.array("v.patch_embd.weight", (width, 3, 16, 16), 1 / 28)
    weights.array("v.patch_embd.bias", (width,), 0.02)
    weights.array("v.position_embd.weight", (SIDE * SIDE, width), 0.5)
    for n in range(shape.blocks):
        block = f"v.blk.{n}."
        weights.norm(block + "ln1", width)
        weights.norm(block + "ln2", width)
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            weights.linear(block + part, width, width)
        weights.linear(block + "ffn_up", width, shape.feed_forward)
        weights.linear(block + "ffn_down", shape.feed_forward, width)
    weights.norm("v.post_ln", width)
    weights.linear("mm.1", 4 * width, shape.hidden)
    weights.linear("mm.2", shape.hidden, text_width)


def _write_audio(writer: Any, weights: _Weights, shape: AudioShape, text_width: int) -> None:
    _write_sizes(writer, "audio", shape, text_width, 1e-5)
    writer.add_uint32("clip.audio.num_mel_bins", 128)
    width, channels = shape.width, shape.channels
    for layer, inputs in ((0, 1), (2, 1), (5, 1)):
        weights.array(f"a.conv1d.{layer}.weight", (channels, inputs, 3, 3), 1 / 3)
    for layer in (3, 6):
        weights.array(f"a.conv1d.{layer}.weight", (channels, channels, 1, 1), channels**-0.5)
    for layer in (0, 2, 3, 5, 6):
        weights.array(f"a.conv1d.{layer}.bias", (channels, 1, 1), 0.02)
    weights.linear("a.pre_encode.out", channels * 16, width)
    for n in range(shape.blocks):
        _write_conformer_block(weights, f"a.blk.{n}.", shape)
    weights.norm("mm.a.mlp.0", width)
    weights.linear("mm.a.mlp.1", width, shape.hidden)
    weights.linear("mm.a.mlp.3", shape.hidden, text_width)
    weights.array("a.position_embd.weight", (shape.seconds * 50, text_width), 0.02)


def _write_conformer_block(weights: _Weights, block: str, shape: AudioShape) -> None:
    width = shape.width
    for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
        weights.linear(block + part, width, width)
    for name in ("ffn_norm", "ffn_norm_1", "norm_conv", "conv_norm", "ln1", "ln2"):
        weights.norm(block + name, width)
    for half in ("", "_1"):
        weights.linear(f"{block}ffn_up{half}", width, shape.feed_forward)
        weights.linear(f"{block}ffn_down{half}", shape.feed_forward, width)
    for name in ("pos_bias_u", "pos_bias_v"):
        weights.array(block + name, (shape.heads, width // shape.heads), 0.1)
    weights.matrix(block + "linear_pos", 512, width)
    weights.array(block + "conv_dw.weight", (width, 9), 1 / 3)
    weights.array(block + "conv_dw.bias", (width,), 0.02)
    weights.linear(block + "conv_pw1", width, 2 * width)
    weights.linear(block + "conv_pw2", width, width)


class _Weights:
    """Adds tensors: matrices in the chosen type with a spread that keeps values near 1, the rest in F32."""

    def __init__(self, writer: Any, kind: Any, seed: int) -> None:
        import numpy as np

        self._writer, self._kind = writer, kind
        self._rng = np.random.default_rng(seed)

    def array(self, name: str, shape: tuple[int, ...], spread: float) -> None:
        self._writer.add_tensor(name, self._normal(shape, spread))

    def norm(self, name: str, size: int) -> None:
        import numpy as np

        self._writer.add_tensor(name + ".weight", np.ones(size, np.float32))
        self._writer.add_tensor(name + ".bias", np.zeros(size, np.float32))

    def linear(self, name: str, columns: int, rows: int) -> None:
        self.matrix(name, columns, rows)
        self.array(name + ".bias", (rows,), 0.02)

    def matrix(self, name: str, columns: int, rows: int) -> None:
        import gguf

        values = self._normal((rows, columns), columns**-0.5)
        if self._kind == gguf.GGMLQuantizationType.F32:
            self._writer.add_tensor(name + ".weight", values)
            return
        data = gguf.quants.quantize(values, self._kind)
        self._writer.add_tensor(name + ".weight", data, raw_dtype=self._kind)

    def _normal(self, shape: tuple[int, ...], spread: float) -> np.ndarray[Any, Any]:
        import numpy as np

        values: np.ndarray[Any, Any] = self._rng.standard_normal(shape, np.float32)
        values *= np.float32(spread)
        return values
