"""LoRA adapters as PEFT leaves them -> GGUF, for the families that leap converts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import LeapModelLoadingError
from ..models.gguf.adapter_checks import check_adapter
from ..models.gguf.header import GGUFHeader, read_gguf_header
from .converting import understanding
from .family import LLAMA
from .safetensors_file import StoredTensor, read_checkpoint, read_json

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FACTOR = re.compile(r"(?:base_model\.model\.)?(.+?)\.lora_(?:embedding_)?([AB])(?:\.weight|\.default\.weight|)")
EXPERT = re.compile(r"model\.layers\.(\d+)\.feed_forward\.experts\.(\d+)\.(w[123])")
ARCHITECTURES = ("lfm2", "lfm2moe", "llama")


def is_adapter(directory: Path) -> bool:
    """Whether a directory holds an adapter of PEFT's."""
    return (directory / CONFIG).is_file()


def convert_adapter(directory: Path, base: Path, target: Path) -> None:
    """Write an adapter for the model ``base``, a GGUF file. Raises LeapModelLoadingError for what is damaged, of
    another kind than LoRA, or made for another model."""
    header = read_gguf_header(base)
    if header.architecture not in ARCHITECTURES:
        raise LeapModelLoadingError(
            f"{base.name} is of the architecture {header.architecture}; adapters of {', '.join(ARCHITECTURES)} convert"
        )
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        with understanding(directory):
            settings = read_json(directory / CONFIG)
            _write(directory, settings, _factors(directory, header), header, unfinished)
        check_adapter(read_gguf_header(unfinished), header)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def alpha_of(settings: Mapping[str, Any], where: Path) -> float:
    """The factor that llama.cpp divides by the rank. Raises LeapModelLoadingError for kinds that it does not have."""
    for key, what in (("use_dora", "DoRA"), ("alpha_pattern", "an alpha for each module"), ("use_qalora", "QALoRA")):
        if settings.get(key):
            raise LeapModelLoadingError(
                f"{where} uses {what}, which llama.cpp does not compute", hint="merge it in training"
            )
    alpha, rank = settings.get("lora_alpha"), settings.get("r")
    if not isinstance(alpha, (int, float)) or isinstance(alpha, bool) or not math.isfinite(alpha):
        raise LeapModelLoadingError(f"{where}: lora_alpha is {str(alpha)[:40]}")
    if settings.get("use_rslora"):
        if type(rank) is not int or not 0 < rank < 65536:
            raise LeapModelLoadingError(f"{where}: r is {str(rank)[:40]}")
        return float(alpha) * math.sqrt(rank)
    return float(alpha)


def _factors(directory: Path, base: GGUFHeader) -> dict[str, NDArray[float32]]:
    """Both factors of each matrix, under llama.cpp's names."""
    from gguf import MODEL_ARCH, get_tensor_name_map

    blocks = int(base.metadata[f"{base.architecture}.block_count"])
    names = get_tensor_name_map(MODEL_ARCH[base.architecture.upper()], blocks)
    heads: Any = base.metadata.get(f"{base.architecture}.attention.head_count")
    groups: Any = base.metadata.get(f"{base.architecture}.attention.head_count_kv", heads)
    found, experts = dict[str, Any](), dict[tuple[str, str, str], dict[int, Any]]()
    for tensor in read_checkpoint(directory, WEIGHTS).values():
        match = FACTOR.fullmatch(tensor.name)
        if match is None:
            hint = "only LoRA's own matrices convert; merge the adapter in training, and convert the whole model"
            raise LeapModelLoadingError(f"{tensor.path} has a tensor {tensor.name[:80]!r}, which is no LoRA", hint=hint)
        module, side = match[1].replace("language_model.", ""), match[2].lower()
        values = whole(tensor)
        if expert := EXPERT.fullmatch(module):
            experts.setdefault((expert[1], expert[3], side), {})[int(expert[2])] = values
            continue
        name = names.get_name(f"{module}.weight", (".weight",))
        if name is None or values.ndim != 2:
            raise LeapModelLoadingError(f"{tensor.path} changes {module[:80]!r}, which {base.path.name} has not so")
        if base.architecture == LLAMA and side == "b" and name.endswith(("attn_q.weight", "attn_k.weight")):
            values = _in_pairs(values, heads if name.endswith("attn_q.weight") else groups)
        found[f"{name}.lora_{side}"] = values.T if name == "token_embd.weight" and side == "a" else values
    for (block, matrix, side), parts in experts.items():
        name = names.get_name(f"layers.{block}.feed_forward.experts.{matrix}.weight", (".weight",))
        import numpy as np

        found[f"{name}.lora_{side}"] = np.stack([parts[number] for number in range(len(parts))])
    if not found:
        raise LeapModelLoadingError(f"{directory / WEIGHTS} has no tensors")
    return found


def whole(tensor: StoredTensor) -> NDArray[float32]:
    """A tensor's values as float32."""
    import numpy as np

    values = tensor.read()
    result: NDArray[float32]
    result = (values.astype(np.uint32) << 16).view(np.float32) if tensor.dtype == "BF16" else values.astype(np.float32)
    return result


def _in_pairs(values: NDArray[float32], heads: int) -> NDArray[float32]:
    rows: NDArray[float32] = values.reshape(heads, 2, values.shape[0] // heads // 2, -1).swapaxes(1, 2)
    return rows.reshape(values.shape)


def _write(
    directory: Path, settings: Mapping[str, Any], factors: Mapping[str, Any], base: GGUFHeader, target: Path
) -> None:
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(target, base.architecture)
    try:
        for name, values in factors.items():
            writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", alpha_of(settings, directory / CONFIG))
        writer.add_name(directory.resolve().name)
        model = settings.get("base_model_name_or_path")
        if isinstance(model, str) and model:
            writer.add_base_model_count(1)
            writer.add_base_model_name(0, model.rstrip("/").rpartition("/")[2])
        writer.add_quantization_version(2)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
