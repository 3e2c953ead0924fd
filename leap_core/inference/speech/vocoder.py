"""The weights that turn hidden states into sound: LFM2.5-Audio's vocoder, its tensors and their shapes.

Merged: one file holds depthformer and detokenizer. Split: the detokenizer's layers are in a file of llama.cpp's lfm2
architecture beside it, and only its table of codes and its window are in the vocoder. Names are those of Liquid's
``liquid-audio``, but for "bounded_attention", which is longer than GGUF allows and therefore "attention".
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import LeapModelLoadingError
from ...system.dataclass import dataclass
from ..gguf.header import GGUFHeader, TensorInfo, read_gguf_header
from ..llama.model import file_fingerprint
from .waveform import hann_window

if TYPE_CHECKING:
    from numpy import float32, uint8
    from numpy.typing import NDArray

    Values = NDArray[float32]
    from numpy import float32

ELEMENT_TYPES = {"F32": "<f4", "F16": "<f2"}
"""ggml types whose bytes numpy reads as they are."""


class TensorFile:
    """A GGUF file at ``path``. Shapes here are in numpy's order: (rows, columns).

    Raises LeapModelLoadingError when the file is missing, damaged or no GGUF.
    """

    def __init__(self, path: Path) -> None:
        import numpy as np

        self.path = path
        self.header: GGUFHeader = read_gguf_header(path)
        self._tensors: dict[str, TensorInfo] = {tensor.name: tensor for tensor in self.header.tensors}
        self._data: NDArray[uint8] = np.memmap(path, np.uint8, "r")

    @property
    def fingerprint(self) -> bytes:
        """Distinguishes files by content: size and samples spread over the file (16 bytes)."""
        return file_fingerprint(self.path)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def names(self) -> list[str]:
        """All names, in the file's order."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Rows first. A trailing dimension of 1 in the file is left out."""
        return _numpy_shape(self._tensor(name).shape)

    def type(self, name: str) -> str:
        """The ggml type, such as Q8_0."""
        return self._tensor(name).type

    def rows(self, name: str) -> NDArray[uint8]:
        """The tensor's bytes as they are, shape [rows, bytes of a row]; a view of the file."""
        tensor = self._tensor(name)
        count = tensor.elements // tensor.shape[0]
        data = self._data[tensor.offset : tensor.offset + tensor.size_bytes]
        return data.reshape(count, tensor.size_bytes // count)

    def float32(self, name: str) -> Values:
        """The whole tensor as float32, in ``shape(name)``."""
        return self._dequantized(name, self.rows(name)).reshape(self.shape(name))

    def float32_rows(self, name: str, rows: Any) -> Values:
        """The rows of the given numbers as float32, shape [len(rows), columns]."""
        return self._dequantized(name, self.rows(name)[rows])

    def _dequantized(self, name: str, rows: NDArray[uint8]) -> Values:
        import numpy as np

        kind = self.type(name)
        if kind in ELEMENT_TYPES:
            return np.ascontiguousarray(rows).view(ELEMENT_TYPES[kind]).astype(np.float32)
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        try:
            return np.asarray(dequantize(np.ascontiguousarray(rows), GGMLQuantizationType[kind]), np.float32)
        except (KeyError, NotImplementedError):
            raise LeapModelLoadingError(
                f"{self.path} holds {name!r} as {kind}, which cannot be read", hint="use the file in F16, Q8_0 or Q4_0"
            ) from None

    def _tensor(self, name: str) -> TensorInfo:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise LeapModelLoadingError(f"{self.path} lacks the tensor {name!r}")
        return tensor


def _numpy_shape(ggml_shape: tuple[int, ...]) -> tuple[int, ...]:
    shape = list(ggml_shape)
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return tuple(reversed(shape))


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


LAYER = re.compile(r"depthformer\.layers\.(\d+)\.")
MERGED_LAYER, SPLIT_LAYER = re.compile(r"lfm\.layers\.(\d+)\."), re.compile(r"blk\.(\d+)\.")
CODEBOOK = re.compile(r"depth_embeddings\.(\d+)\.")


class MisshapenError(ValueError):
    """A tensor, by its name, does not fit the others."""


@dataclass(frozen=True)
class Attention:
    """Heads of a layer: ``heads`` of queries, ``kv_heads`` of keys and values, each ``head`` wide."""

    heads: int
    kv_heads: int
    head: int


@dataclass(frozen=True)
class DepthformerShape:
    """``hidden``: width of the backbone; ``codes``: of one codebook, the last of which ends the sound."""

    layers: int
    width: int
    feed_forward: int
    attention: Attention
    hidden: int
    codebooks: int
    codes: int

    @property
    def end_code(self) -> int:
        """The code of the first codebook that ends the sound; the others' is no sound either."""
        return self.codes - 1


@dataclass(frozen=True)
class DetokenizerShape:
    """``attention``: heads of each layer, None for convolutions; ``codes``: rows of a codebook's table."""

    width: int
    feed_forward: int
    kernel: int
    attention: tuple[Attention | None, ...]
    codes: int
    n_fft: int

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.attention)

    @property
    def heads(self) -> Attention:
        """Heads of the layers with attention, all alike."""
        return next(heads for heads in self.attention if heads is not None)


def depthformer_shape(vocoder: VocoderFiles) -> DepthformerShape:
    """Raises MisshapenError, or LeapModelLoadingError for a tensor that is missing."""
    file = vocoder.file
    layers, codebooks = _count(LAYER, file), _count(CODEBOOK, file)
    width = _vector(file, vocoder.depthformer_name(0, "operator_norm"))
    head = _vector(file, vocoder.depthformer_name(0, "operator.attention.q_layernorm"))
    qkv_rows, _ = _matrix(file, vocoder.depthformer_name(0, "operator.qkv_proj"))
    feed_forward, _ = _matrix(file, vocoder.depthformer_name(0, "feed_forward.w1"))
    rows, hidden = _matrix(file, "depth_linear.weight")
    codes, _ = _matrix(file, "depth_embeddings.0.to_logits.weight")
    attention = _attention(width, head, (qkv_rows - width) // 2, vocoder.depthformer_name(0, "operator.qkv_proj"))
    if rows != codebooks * width or codes < 2:
        raise MisshapenError("depth_linear.weight")
    _check(file, "depth_linear.bias", (rows,))
    _check(file, "audio_embedding.embedding.weight", (codebooks * codes, hidden))
    for layer in range(layers):
        for part, shape in {
            "operator_norm": (width,),
            "ffn_norm": (width,),
            "operator.qkv_proj": (width + 2 * attention.kv_heads * head, width),
            "operator.attention.q_layernorm": (head,),
            "operator.attention.k_layernorm": (head,),
            "operator.out_proj": (width, width),
            "feed_forward.w1": (feed_forward, width),
            "feed_forward.w3": (feed_forward, width),
            "feed_forward.w2": (width, feed_forward),
        }.items():
            _check(file, vocoder.depthformer_name(layer, part), shape)
    for codebook in range(codebooks):
        start = f"depth_embeddings.{codebook}."
        _check(file, start + "embedding.weight", (codes, width))
        _check(file, start + "embedding_norm.weight", (width,))
        _check(file, start + "to_logits.weight", (codes, width))
    return DepthformerShape(layers, width, feed_forward, attention, hidden, codebooks, codes)


def detokenizer_shape(vocoder: VocoderFiles, codebooks: int) -> DetokenizerShape:
    """Raises MisshapenError, or LeapModelLoadingError for a tensor that is missing."""
    file, name = vocoder.layers_file, vocoder.detokenizer_name
    rows, width = _matrix(vocoder.file, "emb.emb.weight")
    if rows % codebooks:
        raise MisshapenError("emb.emb.weight")
    layers = _count(MERGED_LAYER if vocoder.is_merged else SPLIT_LAYER, file)
    attention = tuple(_layer_attention(vocoder, layer, width) for layer in range(layers))
    convolutions = [layer for layer, heads in enumerate(attention) if heads is None]
    kinds = {heads for heads in attention if heads is not None}
    if not convolutions or len(kinds) != 1:  # llama.cpp aborts the process on a hybrid memory of one kind
        raise MisshapenError(name(0, "attn_norm"))
    feed_forward, _ = _matrix(file, name(0, "ffn_gate"))
    kernel = file.shape(name(convolutions[0], "shortconv.conv"))[-1]
    outputs, _ = _matrix(file, vocoder.output_name("dense_2.weight"))
    shape = DetokenizerShape(width, feed_forward, kernel, attention, rows // codebooks, outputs - 2)
    if shape.n_fft < 4 or shape.n_fft % 4 or kernel < 2:
        raise MisshapenError(vocoder.output_name("dense_2.weight"))
    for layer in range(layers):
        _check_detokenizer_layer(vocoder, layer, shape)
    _check(file, vocoder.output_name("token_embd_norm.weight"), (width,))
    _check(file, vocoder.output_name("dense_2.weight"), (outputs, width))
    _check(file, vocoder.output_name("dense_2.bias"), (outputs,))
    if "istft.window" in vocoder.file:
        _check(vocoder.file, "istft.window", (shape.n_fft,))
    return shape


def _layer_attention(vocoder: VocoderFiles, layer: int, width: int) -> Attention | None:
    file, name = vocoder.layers_file, vocoder.detokenizer_name
    if name(layer, "attn_q") not in file:
        return None
    kv_rows, _ = _matrix(file, name(layer, "attn_k"))
    return _attention(width, _vector(file, name(layer, "attn_q_norm")), kv_rows, name(layer, "attn_k"))


def _attention(width: int, head: int, kv_rows: int, name: str) -> Attention:
    heads, kv_heads = width // head, kv_rows // head
    if head % 2 or width % head or kv_rows % head or kv_heads < 1 or heads % kv_heads:
        raise MisshapenError(name)
    return Attention(heads, kv_heads, head)


def _check_detokenizer_layer(vocoder: VocoderFiles, layer: int, shape: DetokenizerShape) -> None:
    width, heads = shape.width, shape.attention[layer]
    parts: dict[str, tuple[int, ...]] = {
        "attn_norm": (width,),
        "ffn_norm": (width,),
        "ffn_gate": (shape.feed_forward, width),
        "ffn_up": (shape.feed_forward, width),
        "ffn_down": (width, shape.feed_forward),
    }
    if heads is None:
        parts |= {"shortconv.in_proj": (3 * width, width), "shortconv.out_proj": (width, width)}
        kernel = vocoder.detokenizer_name(layer, "shortconv.conv")
        if vocoder.layers_file.shape(kernel) not in ((width, shape.kernel), (width, 1, shape.kernel)):
            raise MisshapenError(kernel)
    else:
        kv = heads.kv_heads * heads.head
        parts |= {"attn_q": (width, width), "attn_k": (kv, width), "attn_v": (kv, width)}
        parts |= {"attn_output": (width, width), "attn_q_norm": (heads.head,), "attn_k_norm": (heads.head,)}
    for part, expected in parts.items():
        _check(vocoder.layers_file, vocoder.detokenizer_name(layer, part), expected)


def _count(pattern: re.Pattern[str], file: TensorFile) -> int:
    """How many numbered parts there are: 0, 1, 2 … without a gap."""
    numbers = {int(match[1]) for name in file.names() if (match := pattern.match(name))}
    if not numbers or numbers != set(range(len(numbers))):
        raise MisshapenError(pattern.pattern.replace("\\", ""))
    return len(numbers)


def _vector(file: TensorFile, name: str) -> int:
    shape = file.shape(name)
    if len(shape) != 1:
        raise MisshapenError(name)
    return shape[0]


def _matrix(file: TensorFile, name: str) -> tuple[int, int]:
    shape = file.shape(name)
    if len(shape) != 2:
        raise MisshapenError(name)
    return shape[0], shape[1]


def _check(file: TensorFile, name: str, shape: tuple[int, ...]) -> None:
    if file.shape(name) != shape:
        raise MisshapenError(name)


SAMPLE_RATE = 24_000
"""Hz."""
COLUMNS_A_FRAME = 6
"""The detokenizer makes six columns of spectrum from each frame of codes."""
ATTENTION_WINDOW = 30
"""Columns that the detokenizer's attention sees, its own included. The files do not carry it."""
EPSILON = 1e-5
"""All RMS norms add this before the root."""
ROPE_BASE = 1e6


class Vocoder(VocoderFiles):
    """An opened vocoder. ``detokenizer_path``: the file with the detokenizer's layers in the split layout.

    Raises LeapModelLoadingError, naming the file and what is wrong with it.
    """

    def __init__(self, path: Path, detokenizer_path: Path | None = None) -> None:
        super().__init__(path, detokenizer_path)
        try:
            self.depthformer = depthformer_shape(self)
        except MisshapenError as error:
            raise _misshapen(path, error) from None
        try:
            self.detokenizer = detokenizer_shape(self, self.depthformer.codebooks)
        except MisshapenError as error:
            raise _misshapen(self.layers_file.path, error) from None
        if self.detokenizer.codes != self.depthformer.codes - 1:
            raise _misshapen(path, MisshapenError("emb.emb.weight"))

    def window(self) -> NDArray[float32]:
        """The window of the inverse Fourier transform, shape [n_fft]."""
        if "istft.window" in self.file:
            return self.file.float32("istft.window")
        return hann_window(self.detokenizer.n_fft)


def _misshapen(path: Path, error: MisshapenError) -> LeapModelLoadingError:
    return LeapModelLoadingError(
        f"{path} is no usable vocoder: the shape of {str(error)!r} does not fit the other tensors",
        hint="download or copy it again",
    )
