"""The dimensions of a vocoder, derived from the shapes of its tensors, each of which is held against the others."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .tensor_file import TensorFile
from .vocoder_files import VocoderFiles

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
