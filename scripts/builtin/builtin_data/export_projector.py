"""A tower to a projector file as llama.cpp's mtmd reads it: matrices as F16, the rest as F32."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from builtin_data.conformer import Conformer
from builtin_data.vision import Vision
from torch import Tensor, nn

SECONDS, ROWS_PER_SECOND = 60, 50
"""How long a clip may be, and how many rows of a.position_embd that takes: mtmd looks at the table's shape alone."""


class _Draft:
    """A projector file under another name until it is whole."""

    def __init__(self, path: Path, name: str, kind: str) -> None:
        self.path, self.draft, self.prefix = path, path.with_suffix(".part"), f"clip.{kind}."
        self.writer = gguf.GGUFWriter(self.draft, "clip")
        self.writer.add_type("mmproj")
        self.writer.add_name(f"{name}, projector")
        self.writer.add_license("apache-2.0")
        self.writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
        self.writer.add_bool(f"clip.has_{kind}_encoder", True)

    def numbers(self, **values: float) -> None:
        for key, value in values.items():
            add = self.writer.add_float32 if isinstance(value, float) else self.writer.add_uint32
            add(self.prefix + key.replace("__", "."), value)

    def plain(self, name: str, tensor: Tensor) -> None:
        self.writer.add_tensor(name, tensor.detach().float().numpy().astype(np.float32))

    def matrix(self, name: str, tensor: Tensor) -> None:
        self.writer.add_tensor(name, tensor.detach().float().numpy().astype(np.float16))

    def linear(self, name: str, layer: nn.Linear) -> None:
        self.matrix(f"{name}.weight", layer.weight)
        if layer.bias is not None:
            self.plain(f"{name}.bias", layer.bias)

    def norm(self, name: str, layer: nn.LayerNorm) -> None:
        self.plain(f"{name}.weight", layer.weight)
        self.plain(f"{name}.bias", layer.bias)

    def write(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        self.draft.replace(self.path)


def write_vision(tower: Vision, path: Path, name: str) -> None:
    """The file of the projector "lfm2"."""
    shape, draft = tower.shape, _Draft(path, name, "vision")
    draft.writer.add_string("clip.projector_type", "lfm2")
    draft.writer.add_bool("clip.use_gelu", True)  # without it mtmd takes another GELU
    draft.numbers(
        image_size=shape.patch * shape.grid,
        patch_size=shape.patch,
        embedding_length=shape.width,
        feed_forward_length=shape.feed_forward,
        block_count=shape.layers,
        projection_dim=shape.out,
        attention__head_count=shape.heads,
        attention__layer_norm_epsilon=shape.epsilon,
        projector__scale_factor=shape.merge,
    )
    for key in ("image_mean", "image_std"):
        draft.writer.add_array(f"clip.vision.{key}", [0.5, 0.5, 0.5])
    draft.matrix("v.patch_embd.weight", tower.patches.weight)
    draft.plain("v.patch_embd.bias", tower.patches.bias)
    draft.plain("v.position_embd.weight", tower.positions)
    for index, layer in enumerate(tower.layers):
        prefix = f"v.blk.{index}."
        parts = {"attn_q": layer.q, "attn_k": layer.k, "attn_v": layer.v, "attn_out": layer.out}
        for part, matrix in (parts | {"ffn_up": layer.up, "ffn_down": layer.down}).items():
            draft.linear(prefix + part, matrix)
        draft.norm(prefix + "ln1", layer.norm1)
        draft.norm(prefix + "ln2", layer.norm2)
    draft.norm("v.post_ln", tower.norm)
    draft.norm("mm.input_norm", tower.merged_norm)
    draft.linear("mm.1", tower.project)
    draft.linear("mm.2", tower.out)
    draft.write()


def write_audio(tower: Conformer, path: Path, name: str) -> None:
    """The file of the projector "lfm2a"."""
    shape, draft = tower.shape, _Draft(path, name, "audio")
    draft.writer.add_string("clip.projector_type", "lfm2a")
    draft.numbers(
        embedding_length=shape.width,
        feed_forward_length=shape.feed_forward,
        block_count=shape.layers,
        projection_dim=shape.out,
        num_mel_bins=128,
        attention__head_count=shape.heads,
        attention__layer_norm_epsilon=1e-5,
    )
    convolutions = {0: tower.first, 2: tower.depth1, 3: tower.point1, 5: tower.depth2, 6: tower.point2}
    for index, convolution in convolutions.items():
        draft.plain(f"a.conv1d.{index}.weight", convolution.weight)
        draft.plain(f"a.conv1d.{index}.bias", convolution.bias[:, None, None])
    draft.linear("a.pre_encode.out", tower.enter)
    blocks = (SECONDS * ROWS_PER_SECOND, shape.out // 32 * 18)
    kind = gguf.GGMLQuantizationType.Q4_0
    draft.writer.add_tensor("a.position_embd.weight", np.zeros(blocks, np.uint8), raw_dtype=kind)
    for index, layer in enumerate(tower.layers):
        prefix, attention = f"a.blk.{index}.", layer.attention
        parts = {
            "attn_q": attention.q,
            "attn_k": attention.k,
            "attn_v": attention.v,
            "attn_out": attention.out,
            "linear_pos": attention.position,
            "ffn_up": layer.up1,
            "ffn_down": layer.down1,
            "ffn_up_1": layer.up2,
            "ffn_down_1": layer.down2,
            "conv_pw1": layer.point1,
            "conv_pw2": layer.point2,
        }
        for part, matrix in parts.items():
            draft.linear(prefix + part, matrix)
        norms = {
            "ffn_norm": layer.feed_norm1,
            "ln1": layer.attention_norm,
            "norm_conv": layer.conv_norm,
            "ffn_norm_1": layer.feed_norm2,
            "ln2": layer.out_norm,
        }
        for part, norm in norms.items():
            draft.norm(prefix + part, norm)
        draft.plain(prefix + "pos_bias_u", attention.bias_u)
        draft.plain(prefix + "pos_bias_v", attention.bias_v)
        draft.plain(prefix + "conv_dw.weight", layer.depth.weight[:, 0])
        draft.plain(prefix + "conv_dw.bias", layer.depth.bias)
        draft.plain(prefix + "conv_norm.weight", layer.scale)
        draft.plain(prefix + "conv_norm.bias", layer.shift)
    draft.norm("mm.a.mlp.0", tower.norm)
    draft.linear("mm.a.mlp.1", tower.project)
    draft.linear("mm.a.mlp.3", tower.out)
    draft.write()
