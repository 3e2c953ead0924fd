"""What a projector and a LoRA adapter must hold before llama.cpp may see them.

Two kinds are read: ``lfm2`` (LFM2-VL: a SigLIP vision tower, pixel unshuffle, two linear layers) and ``lfm2a``
(LFM2-Audio: a conformer over a log-mel spectrogram). One file may hold both. Shapes here are in ggml's order, fastest
first. Sources: llama.cpp's tools/mtmd (clip.cpp, models/siglip.cpp, models/conformer.cpp) at the pinned version.

Source: llama.cpp's src/llama-adapter.cpp at the pinned version, and convert_lora_to_gguf.py, which writes the files.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ...errors import LeapModelLoadingError
from ...system.dataclass import dataclass
from .header import GGUFHeader, TensorInfo

VISION, AUDIO = "lfm2", "lfm2a"
PATCH, UNSHUFFLE = 16, 2
MEL_BINS = 128
POSITION_WIDTH = 512
"""Input width of the conformer's relative positions, whatever its own width is."""
KERNEL = 9
FRAMES_A_SECOND = 100
FRAMES_A_POSITION = 2
LARGEST = 65_536
"""Widths and counts are at most this; real files stay far below."""
MOST_BLOCKS = 512

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ProjectorInfo:
    """What a projector takes, and the ``width`` of its embeddings, which must be that of the text model.

    ``longest_seconds`` of sound in one piece; 0.0 without audio input.
    """

    sees: bool
    hears: bool
    width: int
    longest_seconds: float = 0.0


def check_projector(header: GGUFHeader) -> ProjectorInfo:
    """Hold every key and tensor against what llama.cpp will compute. Raises LeapModelLoadingError."""
    if not header.is_projector:
        raise LeapModelLoadingError(
            f"{header.path} is a model, not a projector", hint="a projector's name usually begins with mmproj"
        )
    try:
        vision = header.metadata.get("clip.has_vision_encoder") is True
        audio = header.metadata.get("clip.has_audio_encoder") is True
        if not vision and not audio:
            raise _Unusable("it has neither a vision nor an audio encoder")
        widths = set()
        longest = 0.0
        if vision:
            widths.add(_Vision(header).check())
        if audio:
            encoder = _Audio(header)
            widths.add(encoder.check())
            longest = encoder.longest_seconds
        if len(widths) != 1:
            raise _Unusable(f"its encoders make embeddings of different widths ({sorted(widths)})")
    except _Unusable as reason:
        raise LeapModelLoadingError(
            f"{header.path} is no usable projector: {reason}", hint="download or convert it again"
        ) from None
    return ProjectorInfo(vision, audio, widths.pop(), longest)


class _Unusable(Exception):
    """What is wrong with the file, as the end of a sentence."""


class _Encoder:
    """Reads keys and tensors of one encoder; ``modality`` is vision or audio."""

    modality: str
    projector: str
    prefix: str

    def __init__(self, header: GGUFHeader) -> None:
        self.metadata = header.metadata
        self.tensors = {tensor.name: tensor for tensor in header.tensors}
        self.read: set[str] = set()
        kind = self.metadata.get(f"clip.{self.modality}.projector_type", self.metadata.get("clip.projector_type"))
        if kind != self.projector:
            raise _Unusable(f"its {self.modality} projector is of type {kind!r}; {self.projector!r} can be used")
        self.width = self.number("embedding_length")
        self.feed_forward = self.number("feed_forward_length")
        self.blocks = self.number("block_count", most=MOST_BLOCKS)
        self.heads = self.number("attention.head_count")
        self.number("projection_dim")
        if self.width % self.heads:
            raise _Unusable(f"its width {self.width} is no multiple of its {self.heads} heads")
        epsilon = self.key("attention.layer_norm_epsilon")
        if not isinstance(epsilon, float) or not 0.0 <= epsilon < 1.0:
            raise _Unusable(f"clip.{self.modality}.attention.layer_norm_epsilon is {epsilon!r}")

    def key(self, name: str) -> Any:
        key = f"clip.{self.modality}.{name}"
        if key not in self.metadata:
            raise _Unusable(f"it lacks the key {key}")
        return self.metadata[key]

    def number(self, name: str, most: int = LARGEST) -> int:
        value = self.key(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise _Unusable(f"clip.{self.modality}.{name} is {value!r}")
        return value

    def tensor(self, name: str, *shape: int | None) -> TensorInfo:
        """A tensor that must be there; None means any size."""
        self.read.add(name)
        tensor = self.tensors.get(name)
        if tensor is None:
            raise _Unusable(f"it lacks the tensor {name}")
        sizes = tensor.shape + (1,) * (len(shape) - len(tensor.shape))
        if len(sizes) != len(shape) or any(s not in (None, size) for s, size in zip(shape, sizes, strict=True)):
            expected = " x ".join("?" if size is None else str(size) for size in shape)
            raise _Unusable(f"its tensor {name} is {' x '.join(map(str, tensor.shape))} and should be {expected}")
        return tensor

    def plain(self, name: str, *shape: int | None, types: tuple[str, ...] = ("F32",)) -> TensorInfo:
        """A tensor that is added or convolved, not multiplied: quantized ones end the process."""
        tensor = self.tensor(name, *shape)
        if tensor.type not in types:
            raise _Unusable(f"its tensor {name} is of type {tensor.type}; {' or '.join(types)} can be used")
        return tensor

    def optional(self, name: str, *shape: int) -> None:
        if name in self.tensors:
            self.plain(name, *shape)

    def matrix(self, name: str, columns: int, rows: int | None, *, bias: bool) -> int:
        """``name``.weight and its bias, which may be missing unless ``bias``; returns the rows."""
        tensor = self.tensor(f"{name}.weight", columns, rows)
        if tensor.type.startswith("I") and not tensor.type.startswith("IQ") or tensor.type in ("F64", "Q8_1", "Q8_K"):
            raise _Unusable(f"its tensor {name}.weight is of type {tensor.type}, which cannot be multiplied")
        size = tensor.shape[1] if len(tensor.shape) > 1 else 1
        (self.plain if bias else self.optional)(f"{name}.bias", size)
        return size

    def norm(self, name: str, size: int, *, required: bool) -> None:
        for part in ("weight", "bias"):
            (self.plain if required else self.optional)(f"{name}.{part}", size)

    def refuse_others(self) -> None:
        """llama.cpp computes with more tensors than these where a file has them, of shapes unknown here."""
        pattern = re.compile(rf"{self.prefix}\.(blk|pre_ln|post_ln|class_embd|conv1d|pre_encode)\b")
        for name in self.tensors:
            if pattern.match(name) and name not in self.read:
                raise _Unusable(f"its tensor {name} has no place in an encoder of type {self.projector}")


class _Vision(_Encoder):
    modality, projector, prefix = "vision", VISION, "v"

    def check(self) -> int:
        """The width of the embeddings."""
        if self.metadata.get("clip.use_gelu") is not True:
            # llama.cpp would compute with another activation and say nothing.
            raise _Unusable("clip.use_gelu must be true")
        image, patch = self.number("image_size"), self.number("patch_size")
        scale = self.number("projector.scale_factor")
        if (patch, scale) != (PATCH, UNSHUFFLE):
            raise _Unusable(f"patches of {patch} pixels by {scale}; {PATCH} by {UNSHUFFLE} can be used")
        if image % patch:
            raise _Unusable(f"its image size {image} is no multiple of {patch}")
        self._check_colours("image_mean", "image_std")
        width = self.width
        self.plain("v.patch_embd.weight", patch, patch, 3, width, types=("F32", "F16"))
        self.optional("v.patch_embd.bias", width)
        table = self.plain("v.position_embd.weight", width, None)
        side = math.isqrt(table.shape[1] if len(table.shape) > 1 else 1)
        if len(table.shape) < 2 or side * side != table.shape[1]:
            raise _Unusable(f"its position table has {table.shape[-1]} rows, which is no square")
        for block in range(self.blocks):
            self._check_block(f"v.blk.{block}.")
        self.norm("v.post_ln", width, required=False)
        joined = width * scale * scale
        self.norm("mm.input_norm", joined, required=False)
        hidden = self.matrix("mm.1", joined, None, bias=True)
        output = self.matrix("mm.2", hidden, None, bias=True)
        self.refuse_others()
        return output

    def _check_block(self, block: str) -> None:
        width, inner = self.width, self.feed_forward
        if f"{block}attn_qkv.weight" in self.tensors:
            self.matrix(f"{block}attn_qkv", width, 3 * width, bias=False)
        else:
            for part in "qkv":
                self.matrix(f"{block}attn_{part}", width, width, bias=False)
        self.matrix(f"{block}attn_out", width, width, bias=False)
        self.matrix(f"{block}ffn_up", width, inner, bias=False)
        self.matrix(f"{block}ffn_down", inner, width, bias=False)
        self.norm(f"{block}ln1", width, required=False)
        self.norm(f"{block}ln2", width, required=False)

    def _check_colours(self, *names: str) -> None:
        for name in names:
            values = self.key(name)
            numbers = isinstance(values, list) and len(values) == 3 and all(isinstance(v, float) for v in values)
            if not numbers or not all(math.isfinite(v) for v in values) or (name == "image_std" and 0.0 in values):
                raise _Unusable(f"clip.vision.{name} is {values!r}; three numbers are needed")


class _Audio(_Encoder):
    modality, projector, prefix = "audio", AUDIO, "a"
    longest_seconds = 0.0

    def check(self) -> int:
        """The width of the embeddings; sets ``longest_seconds``."""
        if self.number("num_mel_bins") != MEL_BINS:
            raise _Unusable(f"clip.audio.num_mel_bins is {self.key('num_mel_bins')}; {MEL_BINS} can be used")
        channels = self._check_convolutions()
        frequencies = -(-MEL_BINS // 8)  # halved three times
        self.matrix("a.pre_encode.out", channels * frequencies, self.width, bias=True)
        for block in range(self.blocks):
            self._check_block(f"a.blk.{block}.")
        self.norm("mm.a.mlp.0", self.width, required=True)
        hidden = self.matrix("mm.a.mlp.1", self.width, None, bias=True)
        output = self.matrix("mm.a.mlp.3", hidden, None, bias=True)
        table = self.tensor("a.position_embd.weight", output, None)
        rows = table.shape[1] if len(table.shape) > 1 else 1
        self.longest_seconds = rows * FRAMES_A_POSITION / FRAMES_A_SECOND
        self.refuse_others()
        return output

    def _check_convolutions(self) -> int:
        channels = self.plain("a.conv1d.0.weight", 3, 3, 1, None).shape[-1]
        for layer in (2, 5):
            self.plain(f"a.conv1d.{layer}.weight", 3, 3, 1, channels)
        for layer in (3, 6):
            self.plain(f"a.conv1d.{layer}.weight", 1, 1, channels, channels)
        for layer in (0, 2, 3, 5, 6):
            self.plain(f"a.conv1d.{layer}.bias", 1, 1, channels)
        return channels

    def _check_block(self, block: str) -> None:
        width = self.width
        for part in ("q", "k", "v", "out"):
            self.matrix(f"{block}attn_{part}", width, width, bias=True)
        for name in ("ffn_norm", "ffn_norm_1", "norm_conv", "conv_norm"):
            self.norm(f"{block}{name}", width, required=True)
        self.norm(f"{block}ln1", width, required=False)
        self.norm(f"{block}ln2", width, required=False)
        for half in ("", "_1"):
            inner = self.matrix(f"{block}ffn_up{half}", width, None, bias=bool(half))
            self.matrix(f"{block}ffn_down{half}", inner, width, bias=bool(half))
        for name in ("pos_bias_u", "pos_bias_v"):
            self.plain(f"{block}{name}", width // self.heads, self.heads)
        self.matrix(f"{block}linear_pos", POSITION_WIDTH, width, bias=False)
        self.plain(f"{block}conv_dw.weight", KERNEL, width)
        self.plain(f"{block}conv_dw.bias", width)
        self.matrix(f"{block}conv_pw1", width, 2 * width, bias=True)
        self.matrix(f"{block}conv_pw2", width, width, bias=True)


TYPES = {"F32", "F16", "BF16", "Q8_0"}
"""The converter writes matrices of these types."""
TRANSPOSED = "token_embd.weight"
"""Only this matrix has its first factor transposed."""


def check_adapter(adapter: GGUFHeader, model: GGUFHeader) -> None:
    """Hold an adapter's header against the model's. Raises LeapModelLoadingError, saying what does not fit."""
    problem = _problem(adapter, model)
    if problem is not None:
        raise LeapModelLoadingError(
            f"{adapter.path} cannot be used with {model.path.name}: {problem}",
            hint="an adapter belongs to the model it was trained on",
        )


def _problem(adapter: GGUFHeader, model: GGUFHeader) -> str | None:
    values = adapter.metadata
    if values.get("general.type") != "adapter" or values.get("adapter.type") != "lora":
        return "it is no LoRA adapter"
    ours, its = model.metadata.get("general.architecture"), values.get("general.architecture")
    if ours != its:
        return f"it was made for the architecture {its}, and the model's is {ours}"
    alpha = values.get("adapter.lora.alpha")
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        return "its adapter.lora.alpha is no number"
    tensors = {tensor.name: tensor for tensor in adapter.tensors}
    targets = {tensor.name: tensor for tensor in model.tensors}
    names = {_base(name) for name in tensors}
    if not names:
        return "it has no tensors"
    for name in sorted(names):
        problem = _problem_of_pair(name, tensors, targets)
        if problem is not None:
            return problem
    return None


def _base(name: str) -> str:
    for ending in (".lora_a", ".lora_b"):
        if name.endswith(ending):
            return name[: -len(ending)]
    return name


def _problem_of_pair(name: str, tensors: dict[str, TensorInfo], targets: dict[str, TensorInfo]) -> str | None:
    if name in tensors:
        if name.endswith("_norm.weight"):
            return None  # llama.cpp leaves norms out
        return f"its tensor {name} is neither lora_a nor lora_b"
    first, second, target = tensors.get(f"{name}.lora_a"), tensors.get(f"{name}.lora_b"), targets.get(name)
    if first is None or second is None:
        return f"its {name} is half a pair"
    if target is None:
        return f"the model has no tensor {name}"
    for tensor in (first, second):
        if tensor.type not in TYPES:
            return f"its tensor {tensor.name} is of type {tensor.type}"
        if len(tensor.shape) != len(target.shape) or len(target.shape) not in (2, 3):
            return f"its tensor {tensor.name} is no matrix"
        if tensor.shape[2:] != target.shape[2:]:
            return f"its tensor {tensor.name} is of another count of experts"
    inner, outer = target.shape[:2]
    if name == TRANSPOSED:
        fits = (second.shape[1], first.shape[1]) == (inner, outer) and first.shape[0] == second.shape[0]
    else:
        fits = (first.shape[0], second.shape[1]) == (inner, outer) and first.shape[1] == second.shape[0]
    return None if fits else f"its {name} does not have the model's shape"
