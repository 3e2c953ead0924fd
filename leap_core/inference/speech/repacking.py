"""Vocoder weights as llama.cpp takes them: small GGUF files, made once and kept.

The depthformer becomes a qwen3: the same layers but for the rotary pairs, which are neighbours there and halves here,
so the rows of queries and keys change places within each head; quantized blocks run along rows and stay whole. Its
final norm of ones is the one that every codebook's logits need. (As lfm2 it would abort the process: llama.cpp cannot
make a hybrid memory without convolutions.) The detokenizer is an lfm2 that gives rows of ``dense_2`` for output.

They lie in a directory of the cache under the digest of what they were made from, so two quantizations of a vocoder
never meet, and each is held against its own digest before it is used: a damaged or half-written one is made anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...system.files import digest_file, replacing
from .vocoder import ATTENTION_WINDOW, ELEMENT_TYPES, EPSILON, ROPE_BASE, TensorFile, Vocoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

DUMMY_ROWS = 32
"""llama.cpp wants a table of token embeddings, which embeddings as input never touch."""
MATRIX_TYPES = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}
"""What llama.cpp computes with on every CPU. Matrices of other types become float32."""


def write_depthformer(vocoder: Vocoder, path: Path, source: str) -> None:
    """``source`` names the vocoder's content, and is kept in the file."""
    import numpy as np

    shape = vocoder.depthformer
    heads = shape.attention
    writer = _GgufWriter(path, "qwen3", source, shape.layers, shape.width, shape.feed_forward)
    writer.gguf.add_context_length(shape.codebooks)
    writer.gguf.add_head_count(heads.heads)
    writer.gguf.add_head_count_kv(heads.kv_heads)
    writer.gguf.add_key_length(heads.head)
    writer.gguf.add_value_length(heads.head)
    writer.values("output_norm.weight", np.ones(shape.width, np.float32))
    file, name = vocoder.file, vocoder.depthformer_name
    queries, keys = heads.heads * heads.head, heads.kv_heads * heads.head
    order = np.array([*range(0, heads.head, 2), *range(1, heads.head, 2)])
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        qkv = name(layer, "operator.qkv_proj")
        kind, rows = _matrix(file, qkv)
        parts = np.split(rows, [queries, queries + keys])
        for part, data in zip(("attn_q", "attn_k", "attn_v"), parts, strict=True):
            if part != "attn_v":
                data = data.reshape(-1, heads.head, data.shape[1])[:, order].reshape(data.shape)
            writer.rows(f"{block}{part}.weight", data, kind)
        for part, norm in (("attn_q_norm", "q_layernorm"), ("attn_k_norm", "k_layernorm")):
            writer.values(f"{block}{part}.weight", file.float32(name(layer, f"operator.attention.{norm}"))[order])
        for part, vector in (("attn_norm", "operator_norm"), ("ffn_norm", "ffn_norm")):
            writer.values(f"{block}{part}.weight", file.float32(name(layer, vector)))
        for part, matrix in {
            "attn_output": "operator.out_proj",
            "ffn_gate": "feed_forward.w1",
            "ffn_up": "feed_forward.w3",
            "ffn_down": "feed_forward.w2",
        }.items():
            writer.tensor(f"{block}{part}.weight", file, name(layer, matrix))
    writer.finish()


def write_detokenizer(vocoder: Vocoder, path: Path, source: str) -> None:
    """``source`` names the vocoder's content, and is kept in the file."""
    shape = vocoder.detokenizer
    writer = _GgufWriter(path, "lfm2", source, shape.layers, shape.width, shape.feed_forward)
    writer.gguf.add_context_length(128_000)
    writer.gguf.add_head_count(shape.heads.heads)
    writer.gguf.add_head_count_kv([heads.kv_heads if heads else 0 for heads in shape.attention])
    writer.gguf.add_sliding_window(ATTENTION_WINDOW)
    writer.gguf.add_shortconv_l_cache(shape.kernel)
    writer.gguf.add_embedding_length_out(shape.n_fft + 2)
    file, name = vocoder.layers_file, vocoder.detokenizer_name
    for layer, heads in enumerate(shape.attention):
        block = f"blk.{layer}."
        matrices = ["ffn_gate", "ffn_up", "ffn_down"]
        vectors = ["attn_norm", "ffn_norm"]
        if heads:
            matrices += ["attn_q", "attn_k", "attn_v", "attn_output"]
            vectors += ["attn_q_norm", "attn_k_norm"]
        else:
            matrices += ["shortconv.in_proj", "shortconv.out_proj"]
            kernel = file.float32(name(layer, "shortconv.conv")).reshape(shape.width, shape.kernel)
            writer.values(f"{block}shortconv.conv.weight", kernel)
        for part in matrices:
            writer.tensor(f"{block}{part}.weight", file, name(layer, part))
        for part in vectors:
            writer.values(f"{block}{part}.weight", file.float32(name(layer, part)))
    writer.values("token_embd_norm.weight", file.float32(vocoder.output_name("token_embd_norm.weight")))
    writer.tensor("dense_2.weight", file, vocoder.output_name("dense_2.weight"))
    writer.values("dense_2.bias", file.float32(vocoder.output_name("dense_2.bias")))
    writer.finish()


def _matrix(file: TensorFile, name: str) -> tuple[str, NDArray[Any]]:
    """The ggml type and the bytes of the rows: as they are in the file, where llama.cpp computes with that type."""
    import numpy as np

    kind = file.type(name)
    return (kind, file.rows(name)) if kind in MATRIX_TYPES else ("F32", file.float32(name).view(np.uint8))


class _GgufWriter:
    """A GGUF that reads and gives embeddings, without a vocabulary."""

    def __init__(self, path: Path, architecture: str, source: str, layers: int, width: int, feed_forward: int) -> None:
        import gguf
        import numpy as np

        self.gguf = writer = gguf.GGUFWriter(path, architecture)
        self._types = gguf.GGMLQuantizationType
        writer.add_string("leap.source", source)
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        writer.add_block_count(layers)
        writer.add_embedding_length(width)
        writer.add_feed_forward_length(feed_forward)
        writer.add_layer_norm_rms_eps(EPSILON)
        writer.add_rope_freq_base(ROPE_BASE)
        writer.add_vocab_size(DUMMY_ROWS)
        writer.add_tokenizer_model("none")
        writer.add_tensor("token_embd.weight", np.zeros((DUMMY_ROWS, width), np.float16))

    def values(self, name: str, values: NDArray[Any]) -> None:
        """A tensor of float32."""
        self.gguf.add_tensor(name, values)

    def tensor(self, name: str, file: TensorFile, source: str) -> None:
        """A matrix of another file."""
        kind, rows = _matrix(file, source)
        self.rows(name, rows, kind)

    def rows(self, name: str, rows: NDArray[Any], kind: str) -> None:
        """Rows of bytes, shape [rows, bytes of a row], of the ggml type ``kind``."""
        import numpy as np

        rows = np.ascontiguousarray(rows)
        if kind in ELEMENT_TYPES:
            self.gguf.add_tensor(name, rows.view(ELEMENT_TYPES[kind]))
        else:
            self.gguf.add_tensor(name, rows, raw_dtype=self._types[kind])

    def finish(self) -> None:
        """Write it all."""
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_tensors_to_file()
        self.gguf.close()


LAYOUT = b"2"
"""The layout of repacked files; another number leaves files of other versions of leap alone."""
MOST_FILES = 12
"""Files kept, the most recently used; the others are removed when a new one is made."""


def repacked_files(vocoder: Vocoder, directory: Path) -> tuple[Path, Path]:
    """Paths of the depthformer and the detokenizer as llama.cpp takes them, made if need be.

    Raises OSError when ``directory`` cannot be written."""
    depthformer = _kept(
        directory, "depthformer", _content(vocoder.file, "depthformer."), lambda p, s: write_depthformer(vocoder, p, s)
    )
    layers = _content(vocoder.layers_file, "lfm.", "lin.", "blk.", "dense_2.", "token_embd_norm.")
    detokenizer = _kept(directory, "detokenizer", layers, lambda p, s: write_detokenizer(vocoder, p, s))
    return depthformer, detokenizer


def _kept(directory: Path, kind: str, source: str, write: Callable[[Path, str], None]) -> Path:
    path = directory / f"{kind}-{source}.gguf"
    digest_path = path.with_suffix(".blake2b")
    with suppress(OSError):
        if digest_path.read_text() == _digest(path):
            os.utime(path)
            return path
    directory.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=0o600, durable=False) as file:
        write(Path(file.name), source)
        digest = _digest(Path(file.name))
    with replacing(digest_path, mode=0o600, durable=False) as file:
        file.write(digest.encode())
    _remove_oldest(directory)
    return path


def _content(file: TensorFile, *prefixes: str) -> str:
    """A digest of the tensors whose names begin so: names, types, shapes and bytes."""
    digest = blake2b(LAYOUT, digest_size=16)
    for name in sorted(name for name in file.names() if name.startswith(prefixes)):
        digest.update(f"{name} {file.type(name)} {file.shape(name)}\0".encode())
        digest.update(file.rows(name).reshape(-1).data)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    return str(digest_file(blake2b(digest_size=16), path).hexdigest())


def _remove_oldest(directory: Path) -> None:
    """Keep the cache small. A file that another process has mapped stays readable to it."""
    with suppress(OSError):
        files = sorted(directory.glob("*.gguf"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[MOST_FILES:]:
            with suppress(OSError):
                path.unlink()
                path.with_suffix(".blake2b").unlink()
