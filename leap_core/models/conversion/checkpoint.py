"""A checkpoint: its family, its settings, and its tensors in the safetensors format, believed nothing.

Format: https://huggingface.co/docs/safetensors: eight bytes with the header's length, JSON with each tensor's type,
shape and offsets, the tensors. What a header claims is held against the file before anything is read or allocated.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import LeapModelLoadingError
from ...system.dataclass import dataclass
from ...system.files import BINARY, read_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}
LARGEST_HEADER = 100 * 1024**2
LARGEST_JSON = 64 * 1024**2
MOST_DIMENSIONS = 8
LONGEST_NAME = 512
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file: ``offset`` and ``size`` in bytes, ``shape`` as the checkpoint has it."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    def read(self, first: int = 0, count: int | None = None) -> NDArray[Any]:
        """Rows of the first dimension in their stored type; bf16 as uint16. Raises LeapModelLoadingError."""
        import numpy as np

        count = self.rows - first if count is None else min(count, self.rows - first)
        row = self.size // self.rows if self.rows else 0
        data = bytearray()
        descriptor = os.open(self.path, os.O_RDONLY | BINARY)
        try:
            while len(data) < count * row:
                piece = read_at(
                    descriptor, min(count * row - len(data), 1 << 26), self.offset + first * row + len(data)
                )
                if not piece:
                    raise damaged(self.path, f"it was cut while {self.name} was read")
                data += piece
        finally:
            os.close(descriptor)
        integers, exponent = {"F32": (np.uint32, 0x7F800000), "F16": (np.uint16, 0x7C00), "BF16": (np.uint16, 0x7F80)}[
            self.dtype
        ]
        if (np.frombuffer(data, integers) & exponent == exponent).any():
            raise damaged(self.path, f"{self.name} has values that are not finite (NaN or infinity)")
        kind = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}[self.dtype]
        return np.frombuffer(data, kind).reshape((count, *self.shape[1:]) if self.shape else ())


def damaged(path: Path, what: str) -> LeapModelLoadingError:
    return LeapModelLoadingError(f"{path} is damaged: {what}", hint="copy or download it again")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a checkpoint. Raises LeapModelLoadingError."""
    try:
        if not path.is_file():
            raise LeapModelLoadingError(f"{path} is missing")
        if path.stat().st_size > LARGEST_JSON:
            raise damaged(path, f"it is larger than {LARGEST_JSON} bytes")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise LeapModelLoadingError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"not JSON: {str(error)[:80]}") from None
    if not isinstance(value, dict):
        raise damaged(path, "it is no JSON object")
    return value


def read_checkpoint(directory: Path, single: str = SINGLE) -> dict[str, StoredTensor]:
    """The tensors of all files of a checkpoint, by name. Raises LeapModelLoadingError for what is missing, damaged, or
    not safetensors."""
    if (directory / INDEX).exists() and single == SINGLE:
        return _of_index(directory, directory / INDEX)
    file = directory / single
    if not file.exists():
        others = sorted(path.name for path in directory.glob("*model*.bin"))
        hint = f"{others[0]} is a pickle, which runs code: save it as safetensors" if others else None
        raise LeapModelLoadingError(f"there is no {single} in {directory}", hint=hint)
    return read_file(file)


def _of_index(directory: Path, index: Path) -> dict[str, StoredTensor]:
    placed = read_json(index).get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(file, str) for file in placed.values()) or not placed:
        raise damaged(index, "it has no weight_map")
    tensors: dict[str, StoredTensor] = {}
    for name in sorted(set(placed.values())):
        if Path(name).name != name or name in ("", ".", "..") or "\\" in name or not name.isprintable():
            raise damaged(index, f"it names a file {name[:80]!r}, which leaves the directory")
        if not (directory / name).exists():
            raise LeapModelLoadingError(f"{directory / name} is missing, one of the checkpoint's files")
        for key, tensor in read_file(directory / name).items():
            if key in tensors:
                raise damaged(index, f"the tensor {key!r} is in two files")
            tensors[key] = tensor
    lost = sorted(set(placed) - set(tensors))
    if lost:
        raise damaged(index, f"{len(lost)} tensors are in no file, such as {lost[0][:80]!r}")
    return tensors


def read_file(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one safetensors file."""
    try:
        if not path.is_file():
            raise LeapModelLoadingError(f"{path} is no file")
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(LARGEST_HEADER, size - 8):
                raise damaged(path, f"it claims a header of {length} bytes, and has {size} in all")
            text = file.read(length)
    except OSError as error:
        raise LeapModelLoadingError(f"cannot read {path}: {error.strerror}") from None
    try:
        entries = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"its header is not JSON: {str(error)[:80]}") from None
    if not isinstance(entries, dict):
        raise damaged(path, "its header is no JSON object")
    entries.pop("__metadata__", None)
    tensors = {
        name: _tensor(path, name, entry, 8 + length, size)
        for name, entry in entries.items()
        if not _is_position(name, entry)
    }
    end = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.size)):
        if tensor.offset < end:
            raise damaged(path, f"{tensor.name!r} overlaps another tensor")
        end = tensor.offset + tensor.size
    return tensors


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _tensor(path: Path, name: str, entry: Any, start: int, size: int) -> StoredTensor:
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise damaged(path, f"it has a tensor named {name[:40]!r}")
    if not isinstance(entry, dict):
        raise damaged(path, f"{name!r} is not described")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in WIDTHS:
        raise LeapModelLoadingError(
            f"{path}: {name!r} is of type {str(dtype)[:20]!r}; F32, F16 and BF16 are converted",
            hint="for a checkpoint that is quantized already, llama.cpp's convert_hf_to_gguf.py may do it",
        )
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS or not all(_is_count(each) for each in shape):
        raise damaged(path, f"{name!r} claims the shape {str(shape)[:60]}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_count(each) for each in offsets):
        raise damaged(path, f"{name!r} claims the place {str(offsets)[:60]}")
    begin, end = offsets
    if begin > end or start + end > size:
        raise damaged(path, f"{name!r} ends at byte {start + end}, but the file has only {size} bytes")
    if prod(shape) * WIDTHS[dtype] != end - begin:
        raise damaged(path, f"{name!r} is {dtype} of shape {str(shape)[:60]} in {end - begin} bytes")
    return StoredTensor(name, path, dtype, tuple(shape), start + begin, end - begin)


def _is_position(name: str, entry: Any) -> bool:
    """Whether it is the list 0, 1, 2, …, which older versions of transformers wrote beside the weights."""
    return name.endswith("position_ids") and isinstance(entry, dict) and entry.get("dtype") == "I64"


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


LFM2, MOE, LLAMA, BERT = "lfm2", "lfm2moe", "llama", "bert"
ARCHITECTURES = {
    "Lfm2ForCausalLM": LFM2,
    "LFM2ForCausalLM": LFM2,
    "Lfm2Model": LFM2,
    "Lfm2BidirectionalModel": LFM2,
    "Lfm2MoeForCausalLM": MOE,
    "Lfm2VlForConditionalGeneration": LFM2,
    "LlamaForCausalLM": LLAMA,
    "BertModel": BERT,
}
BARE = ("Lfm2Model", "Lfm2BidirectionalModel")
"""Without a language model's head: their tensors are called without ``model.``."""
VISION = "Lfm2VlForConditionalGeneration"
MOST_BLOCKS, MOST_TOKENS = 1024, 4_000_000
CONVERTER = "python convert_hf_to_gguf.py {} --outfile model.gguf"


@dataclass(frozen=True)
class Family:
    """``settings``: config.json, the text model's part over it. ``whole``: config.json as it is."""

    directory: Path
    hf_name: str
    architecture: str
    settings: dict[str, Any]
    whole: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def blocks(self) -> int:
        return self.number("num_hidden_layers", most=MOST_BLOCKS)

    @property
    def is_bare(self) -> bool:
        return self.hf_name in BARE

    @property
    def sees(self) -> bool:
        return self.hf_name == VISION

    def number(self, key: str, *, most: int = 2**31 - 1) -> int:
        """A positive whole number of config.json. Raises LeapModelLoadingError."""
        value = self.settings.get(key)
        if type(value) is not int or not 0 < value <= most:
            raise self.unclear(key, value)
        return value

    def real(self, *keys: str) -> float:
        """A number of config.json under the first of these keys that is there."""
        for key in keys:
            value = self.settings.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30:
                return float(value)
        raise self.unclear(keys[0], self.settings.get(keys[0]))

    def unclear(self, key: str, value: object) -> LeapModelLoadingError:
        what = "is missing" if value is None else f"is {str(value)[:60]}, which cannot be"
        return LeapModelLoadingError(f"{self.directory / 'config.json'}: {key} {what}")

    def refused(self, why: str) -> LeapModelLoadingError:
        """The error for what only llama.cpp's own converter does."""
        return other_converter(self.directory, why)


def other_converter(directory: Path, why: str) -> LeapModelLoadingError:
    return LeapModelLoadingError(why, hint=f"llama.cpp's own converter may: {CONVERTER.format(directory)}")


def read_family(directory: Path) -> Family:
    """The family of a checkpoint. Raises LeapModelLoadingError for one that leap does not convert."""
    if not directory.is_dir():
        hint = "give the one that holds config.json and *.safetensors"
        raise LeapModelLoadingError(f"there is no directory {directory}", hint=hint)
    whole = read_json(directory / "config.json")
    names = whole.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    if name is None:
        raise LeapModelLoadingError(f"{directory / 'config.json'}: architectures is missing, so this is no checkpoint")
    if name not in ARCHITECTURES:
        known = "LFM2 (dense, MoE, VL, embedding, ColBERT), Llama and BERT for embeddings"
        raise other_converter(directory, f"{directory} is a {name[:60]}; leap converts {known}")
    text = whole.get("text_config")
    family = Family(directory, name, ARCHITECTURES[name], {**whole, **(text if isinstance(text, dict) else {})}, whole)
    if whole.get("quantization_config"):
        raise family.refused(f"{directory} is quantized already")
    scaling = family.settings.get("rope_parameters") or family.settings.get("rope_scaling") or {}
    kind = (scaling.get("rope_type") or scaling.get("type")) if isinstance(scaling, dict) else "unknown"
    if kind not in (None, "default"):
        raise family.refused(f"{directory} stretches its positions by {str(kind)[:20]!r}, which leap does not convert")
    if family.architecture == LLAMA and family.settings.get("num_local_experts"):
        raise family.refused(f"{directory} is a mixture-of-experts model of the Llama architecture")
    return family
