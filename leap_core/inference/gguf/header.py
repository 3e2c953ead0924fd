"""The header of a GGUF file, read and checked without llama.cpp, which may abort the process on a damaged file.

Every count and length is held against the size of the file before anything is read or allocated, and the whole file
must be there: each tensor's bytes have to lie inside it. Large arrays (vocabularies) are skipped, not kept.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from math import prod
from os import PathLike
from pathlib import Path
from stat import S_ISREG
from struct import Struct
from struct import error as StructError
from typing import Any

from ...errors import LeapModelLoadingError, LeapModelNotFoundError
from ...system.dataclass import dataclass
from .file_names import first_part_of, names_in
from .tensor_types import FILE_TYPES, TENSOR_TYPES, TensorType

DEFAULT_ALIGNMENT = 32
MOST_BLOCKS = 512
"""llama.cpp's limit (LLAMA_MAX_LAYERS)."""
TOKENS = "tokenizer.ggml.tokens"
TOKENIZER_ARRAYS = {
    TOKENS: ("string",),
    "tokenizer.ggml.scores": ("float32", "int32"),
    "tokenizer.ggml.token_type": ("int32", "uint32"),
    "tokenizer.ggml.merges": ("string",),
}
MODEL = "tokenizer.ggml.model"
SENTENCEPIECE = "llama"
BYTES_OF_TEXT = (*range(0xC0), *range(0xC2, 0xF5))
"""UTF-8 uses no others."""
AS_LONG_AS_TOKENS = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
"""llama.cpp reads these arrays by token id without looking at their own lengths."""


class Damaged(Exception):
    """What is wrong with the file, as the end of a sentence."""


def check_metadata(metadata: dict[str, Any], array_types: dict[str, str], lacking: frozenset[int]) -> None:
    """Raises Damaged for values over which llama.cpp ends the process or reads beyond its arrays. ``lacking``: bytes
    that have no token."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise Damaged("it does not name its architecture (general.architecture)")
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise Damaged(f"its alignment (general.alignment) is {alignment!r} and must be a power of two")
    for key, types in TOKENIZER_ARRAYS.items():
        if key in metadata and array_types.get(key) not in types:
            raise Damaged(f"{key!r} must be an array of {' or '.join(types)}")
    blocks = metadata.get(f"{architecture}.block_count", 1)
    if not isinstance(blocks, int) or not 1 <= blocks <= MOST_BLOCKS:
        raise Damaged(f"it claims {blocks!r} layers ({architecture}.block_count)")
    for name in ("layer_norm_epsilon", "layer_norm_rms_epsilon"):
        epsilon = metadata.get(f"{architecture}.attention.{name}", 0.0)
        if not isinstance(epsilon, (int, float)) or not epsilon >= 0.0:  # nor not a number
            raise Damaged(f"{architecture}.attention.{name} is {epsilon!r}")
    if lacking and metadata.get(MODEL) == SENTENCEPIECE:
        raise Damaged(f"{MODEL} is {SENTENCEPIECE}, but {TOKENS} has no token for the byte <0x{min(lacking):02X}>")
    _check_lengths(metadata)


def _check_lengths(metadata: dict[str, Any]) -> None:
    """Raises Damaged for an array that is shorter than the vocabulary."""
    tokens = metadata.get(TOKENS)
    for key in AS_LONG_AS_TOKENS:
        value = metadata.get(key)
        if value is not None and (tokens is None or len(value) < len(tokens)):
            raise Damaged(f"{key!r} has {len(value)} elements for {0 if tokens is None else len(tokens)} tokens")


def check_tokens(tokens: Iterable[bytes]) -> frozenset[int]:
    """The bytes that no token of this vocabulary means: llama.cpp's SentencePiece tokenizer ends the process over
    a text in which it needs one of them. Raises Damaged when a token occurs twice, which ends the process at once;
    empty ones are given names."""
    seen: set[bytes] = set()
    for token in tokens:
        if token and token in seen:
            raise Damaged(f"the token {token!r} occurs twice in {TOKENS}")
        seen.add(token)
    return frozenset(byte for byte in BYTES_OF_TEXT if seen.isdisjoint((b"<0x%02X>" % byte, bytes([byte]))))


MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_DIMENSIONS = 4
LONGEST_KEY = 65_535
MOST_STRINGS = 16 * 1024**2
"""One array holds at most these: fifty times the largest vocabulary."""
LONGEST_TENSOR_NAME = 63
LONGEST_KEPT_STRING = 16 * 1024**2
LARGEST_KEPT_ARRAY = 1024
LEAST_BYTES_OF_A_TENSOR_RECORD = 8 + 4 + 8 + 4 + 8

STRING, ARRAY = 8, 9
SCALARS = {
    0: ("uint8", Struct("<B")),
    1: ("int8", Struct("<b")),
    2: ("uint16", Struct("<H")),
    3: ("int16", Struct("<h")),
    4: ("uint32", Struct("<I")),
    5: ("int32", Struct("<i")),
    6: ("float32", Struct("<f")),
    7: ("bool", Struct("<?")),
    10: ("uint64", Struct("<Q")),
    11: ("int64", Struct("<q")),
    12: ("float64", Struct("<d")),
}
TYPE_NAMES = {number: name for number, (name, _) in SCALARS.items()} | {STRING: "string", ARRAY: "array"}
U32, U64 = Struct("<I"), Struct("<Q")
ALIKE = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL"})
"""Types whose products with one position and with several have the same bits on a processor: those with blocks of 32
weights. ``scripts/same_rows.py`` prints the table."""
FLOATS = frozenset({"F32", "F16", "BF16"})
COARSE_FILE_TYPES = frozenset(str(number) for number, name in FILE_TYPES.items() if name not in ALIKE | FLOATS)
"""The values of ``general.file_type`` that name other quantizations: their products differ more than attention does."""
NO_PRODUCTS = ("conv", "ssm_a", "ssm_d.", "norm")
"""Parts of the names of tensors with two dimensions that multiply no position as a matrix."""
POOLINGS = ("none", "mean", "cls", "last", "rank")
"""llama.cpp's, by their numbers in files."""


@dataclass(frozen=True)
class SkippedArray:
    """An array too large to keep: the name of its elements' type, and how many there are. A text that is too long
    counts as an array of bytes."""

    type: str
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: ``shape`` in ggml's order (fastest first), ``offset`` in bytes from the start of the file."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class GGUFHeader:
    """What a GGUF says about itself. ``metadata`` has its keys in the file's order; large arrays are SkippedArray."""

    path: Path
    version: int
    size_bytes: int
    metadata: dict[str, Any]
    tensors: tuple[TensorInfo, ...]
    data_start: int = 0
    """Where the header ends and the tensors' bytes begin."""

    @property
    def architecture(self) -> str:
        """``general.architecture``, such as lfm2, or clip for a projector."""
        return self._text("general.architecture") or ""

    @property
    def name(self) -> str | None:
        return self._text("general.name")

    @property
    def names(self) -> tuple[str, ...]:
        """What it calls its model."""
        return names_in(self._text)

    @property
    def context_length(self) -> int | None:
        """Tokens the model was trained for."""
        return self._number(f"{self.architecture}.context_length")

    @property
    def quantization(self) -> str:
        """The file type's name, such as Q4_K_M; where the file does not say, the type of most of its weights."""
        number = self._number("general.file_type")
        return FILE_TYPES.get(-1 if number is None else number) or self._commonest_type

    @property
    def chat_template(self) -> str | None:
        return self._text("tokenizer.chat_template")

    @property
    def decisions(self) -> str:
        """How a model that was made for decisions is asked, such as lfm2-d1; empty for any other."""
        return self._text(f"{self.architecture}.decision.type") or ""

    @property
    def is_alike(self) -> bool:
        """Whether the same request gets the same answer from it without ``exact``, on a processor."""
        products = (
            each for each in self.tensors if len(each.shape) > 1 and not any(n in each.name for n in NO_PRODUCTS)
        )
        is_coarse = str(self._number("general.file_type")) in COARSE_FILE_TYPES  # then a context has other defaults
        return not is_coarse and all(each.type in ALIKE for each in products)

    @property
    def tokenizer_pre(self) -> str | None:
        """The name of the pre-tokenizer, such as lfm2."""
        return self._text("tokenizer.ggml.pre")

    @property
    def vocabulary_size(self) -> int | None:
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return None if tokens is None else len(tokens)

    @property
    def pooling(self) -> str | None:
        """How vectors of tokens become one of the text: none, mean, cls, last or rank; None for a model that was not
        made for embeddings."""
        number = self._number(f"{self.architecture}.pooling_type") or 0
        pooling = POOLINGS[number] if 0 <= number < len(POOLINGS) else POOLINGS[0]
        causal = self.metadata.get(f"{self.architecture}.attention.causal") is not False
        return None if causal and pooling == POOLINGS[0] else pooling

    @property
    def is_projector(self) -> bool:
        """Whether this is an mmproj file, the companion of a multimodal model."""
        return self.architecture == "clip" or self._text("general.type") == "mmproj"

    @cached_property
    def parameter_count(self) -> int:
        """Elements of all tensors."""
        return sum(tensor.elements for tensor in self.tensors)

    @cached_property
    def _commonest_type(self) -> str:
        bytes_of: dict[str, int] = {}
        for tensor in self.tensors:
            bytes_of[tensor.type] = bytes_of.get(tensor.type, 0) + tensor.size_bytes
        return max(bytes_of, key=lambda name: bytes_of[name], default="unknown")

    def _text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def _number(self, key: str) -> int | None:
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_gguf_header(path: str | PathLike[str]) -> GGUFHeader:
    """Read and check the header of the GGUF file at ``path``; of the tensors' bytes only the presence is checked.

    Raises LeapModelNotFoundError when there is no such file, and LeapModelLoadingError, saying what is wrong, when it
    cannot be read, is no GGUF, or is damaged or cut short.
    """
    path = Path(path)
    try:
        if not S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise LeapModelLoadingError(f"{path} is not a regular file")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            _check_opening(path, file.read(8), size)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(path, data, size)
    except FileNotFoundError:
        raise LeapModelNotFoundError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        if path.is_dir():
            raise LeapModelLoadingError(f"{path} is a directory, not a GGUF file") from None
        reason = getattr(error, "strerror", None) or error
        raise LeapModelLoadingError(f"cannot read {path}: {reason}") from None
    except Damaged as damage:
        if (first := first_part_of(path.name)) is not None:
            raise LeapModelLoadingError(f"{path} is a further part of a split model", hint=f"name {first}") from None
        raise LeapModelLoadingError(
            f"{path} is a damaged GGUF file: {damage}", hint="download or copy it again"
        ) from None


def _check_opening(path: Path, opening: bytes, size: int) -> None:
    if size == 0:
        raise LeapModelLoadingError(f"{path} is empty, not a GGUF file", hint="download or copy it again")
    if opening[:4] != MAGIC:
        looks_like = _guess(opening)
        raise LeapModelLoadingError(f"{path} is not a GGUF file: it begins with {repr(opening[:4])[1:]}{looks_like}")
    if size < 8:
        raise Damaged(f"it ends after {size} bytes")
    version = U32.unpack(opening[4:])[0]
    if version in VERSIONS:
        return
    if version and version & 0xFFFF == 0:
        raise LeapModelLoadingError(f"{path} is a big-endian GGUF file, and this machine reads little-endian ones")
    raise LeapModelLoadingError(
        f"{path} has GGUF version {version}; versions 2 and 3 can be read",
        hint="convert it again with a current llama.cpp" if version == 1 else None,
    )


def _guess(opening: bytes) -> str:
    if opening.startswith(b"version "):
        return ", like a Git LFS pointer whose content was not fetched"
    if opening.startswith(b"PK"):
        return ", like a zip archive"
    if opening.lstrip().startswith((b"<", b"{")):
        return ", like a web page or JSON"
    return ""


def _read(path: Path, data: mmap.mmap, size: int) -> GGUFHeader:
    cursor = _Cursor(data, size)
    version = U32.unpack_from(data, 4)[0]
    tensor_count, pair_count = cursor.scalar(U64), cursor.scalar(U64)
    if tensor_count > size // LEAST_BYTES_OF_A_TENSOR_RECORD or pair_count > size // (8 + 4 + 1):
        raise Damaged(f"it claims {tensor_count} tensors and {pair_count} keys, more than {size} bytes can hold")
    metadata: dict[str, Any] = {}
    for _ in range(pair_count):
        key = cursor.key()
        if key in metadata:
            raise Damaged(f"the key {key!r} occurs twice")
        metadata[key] = cursor.value(key, cursor.scalar(U32))
    check_metadata(metadata, cursor.array_types, cursor.lacking)
    tensors = tuple(_tensors(cursor, tensor_count, metadata.get("general.alignment", DEFAULT_ALIGNMENT)))
    _check_overlap(tensors)
    return GGUFHeader(path, version, size, metadata, tensors, cursor.position)


class _Cursor:
    """Reads forward through the bytes; running over their end is damage."""

    def __init__(self, data: mmap.mmap, size: int) -> None:
        self.data = data
        self.size = size
        self.position = 8
        self.array_types: dict[str, str] = {}
        self.lacking: frozenset[int] = frozenset()

    def scalar(self, layout: Struct) -> Any:
        try:
            value = layout.unpack_from(self.data, self.position)[0]
        except StructError:
            raise self._cut() from None
        self.position += layout.size
        return value

    def bytes(self, length: int) -> bytes:
        start, end = self.position, self.position + length
        if end > self.size:
            raise self._cut()
        self.position = end
        return self.data[start:end]

    def key(self) -> str:
        return self.name("a key", LONGEST_KEY)

    def name(self, what: str, longest: int) -> str:
        length = self.scalar(U64)
        if not 0 < length <= longest:
            raise Damaged(f"{what} at byte {self.position - 8} claims a length of {length} bytes")
        return self.bytes(length).decode("utf-8", "backslashreplace")

    def value(self, key: str, kind: int) -> Any:
        if kind in SCALARS:
            return self.scalar(SCALARS[kind][1])
        if kind == STRING:
            return self._string(key)
        if kind == ARRAY:
            return self._array(key)
        raise Damaged(f"{key!r} has the unknown value type {kind}")

    def _string(self, key: str) -> str | SkippedArray:
        length = self.scalar(U64)
        if length > self.size - self.position:
            raise Damaged(f"{key!r} claims a text of {length} bytes, more than the file has left to give")
        if length > LONGEST_KEPT_STRING:
            self.position += length
            return SkippedArray("byte", length)
        return self.bytes(length).decode("utf-8", "replace")

    def _array(self, key: str) -> list[Any] | SkippedArray:
        kind, count = self.scalar(U32), self.scalar(U64)
        if kind != STRING and kind not in SCALARS:
            raise Damaged(f"{key!r} is an array of the unknown or nested value type {kind}")
        self.array_types[key] = TYPE_NAMES[kind]
        smallest = 8 if kind == STRING else SCALARS[kind][1].size
        if count > (self.size - self.position) // smallest:
            raise Damaged(f"{key!r} claims {count} elements, more than the file has left to give")
        begin = self.position
        if kind == STRING:
            self._skip_strings(key, count)
        else:
            self.position += count * smallest
        if count > LARGEST_KEPT_ARRAY:
            return SkippedArray(TYPE_NAMES[kind], count)
        self.position = begin
        return [self.value(key, kind) for _ in range(count)]

    def _skip_strings(self, key: str, count: int) -> None:
        if count > MOST_STRINGS:
            raise Damaged(f"{key!r} claims {count} texts")
        data, position, length_at = self.data, self.position, U64.unpack_from
        ends = [position]
        try:
            for _ in range(count):
                position += 8 + length_at(data, position)[0]
                ends.append(position)
        except (StructError, OverflowError):
            raise self._cut() from None
        if position > self.size:
            raise self._cut()
        if key == TOKENS:
            self.lacking = check_tokens(bytes(data[begin + 8 : end]) for begin, end in pairwise(ends))
        self.position = position

    def _cut(self) -> Damaged:
        return Damaged(f"it ends inside its header, after {self.size} bytes")


def _tensors(cursor: _Cursor, count: int, alignment: int) -> Iterator[TensorInfo]:
    records = [_tensor_record(cursor) for _ in range(count)]
    start = -(-cursor.position // alignment) * alignment
    seen: set[str] = set()
    for name, kind, shape, offset in records:
        if name in seen:
            raise Damaged(f"the tensor {name!r} occurs twice")
        seen.add(name)
        if offset % alignment:
            raise Damaged(f"the tensor {name!r} lies at {offset}, which is no multiple of {alignment}")
        size = prod(shape) // kind.block * kind.bytes
        if start + offset + size > cursor.size:
            raise Damaged(
                f"the tensor {name!r} ends at byte {start + offset + size}, but the file has only {cursor.size} bytes"
            )
        yield TensorInfo(name, kind.name, shape, start + offset, size)


def _tensor_record(cursor: _Cursor) -> tuple[str, TensorType, tuple[int, ...], int]:
    name = cursor.name("the name of a tensor", LONGEST_TENSOR_NAME)
    dimensions = cursor.scalar(U32)
    if dimensions > MOST_DIMENSIONS:
        raise Damaged(f"the tensor {name!r} claims {dimensions} dimensions")
    shape = tuple(cursor.scalar(U64) for _ in range(dimensions))
    number = cursor.scalar(U32)
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        raise Damaged(f"the tensor {name!r} has the unknown type {number}, of a newer llama.cpp or of none")
    if any(size >= 2**63 for size in shape) or prod(size for size in shape if size) >= 2**63:
        raise Damaged(f"the tensor {name!r} claims the shape {shape}")
    row = shape[0] if shape else 1
    if row % kind.block:
        raise Damaged(f"the tensor {name!r} has rows of {row}, no multiple of {kind.name}'s {kind.block}")
    return name, kind, shape, cursor.scalar(U64)


def _check_overlap(tensors: tuple[TensorInfo, ...]) -> None:
    end, before = 0, ""
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise Damaged(f"the tensors {before!r} and {tensor.name!r} overlap")
        end, before = tensor.offset + tensor.size_bytes, tensor.name
