"""LoRA adapters as PEFT leaves them -> GGUF, or folded into their model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import LeapError, LeapModelLoadingError
from ...inference.gguf.checks import check_adapter
from ...inference.gguf.file_names import directory_name
from ...inference.gguf.header import GGUFHeader, TensorInfo, read_gguf_header
from ...system.files import place
from ..importing import files_of, record_files
from ..resolving import LocalModel
from ..store import Store
from .checkpoint import LLAMA, StoredTensor, read_checkpoint, read_json
from .conversion_child import Stopped
from .converting import require_running, understanding
from .quantizing import Making, Quantized, making_directory, require_space, settle

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


F16 = 1
EXTRA_BYTES = 64 * 1024**2


def merge_into_store(
    model: LocalModel,
    name: str,
    adapters: Sequence[tuple[Path, float]],
    store: Store,
    making: Making,
    *,
    replace: bool = False,
) -> Quantized:
    """Make ``name:F16`` of a model and adapters with their scales. Raises LeapModelLoadingError for adapters of another
    model, and Stopped; then nothing is left."""
    home = store.root / directory_name(name, "F16")
    if store.at(home) is not None and not replace:
        raise LeapError(f"there is a model {home.name} already", hint="choose another with --name, or use --replace")
    companions = [(role, path) for role, path in files_of(model) if role not in ("model", "part")]
    with making_directory(store, home, f"merge {home.name}") as unfinished:
        merge(model.path, adapters, unfinished / f"{home.name}.gguf", making)
        require_running(unfinished / f"{home.name}.gguf", making)
        path = settle(unfinished, home)[0]
        for _, source in companions:
            place(source.resolve(), home / source.name)
        record_files(home, name, "F16", model, [("model", path), *companions])
    return Quantized(path, home.name, model.path.stat().st_size, path.stat().st_size)


def merge(model: Path, adapters: Sequence[tuple[Path, float]], target: Path, making: Making) -> None:
    """Write the model with the adapters added, whole or not at all; see ``_merge``."""
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        _merge(model, adapters, unfinished, making)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _merge(model: Path, adapters: Sequence[tuple[Path, float]], target: Path, making: Making) -> None:
    """Write the model with the adapters added: changed matrices in F16 (F32 where they were), others as they are."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

    header = read_gguf_header(model)
    loaded = [(read_gguf_header(path), scale) for path, scale in adapters]
    for adapter, _ in loaded:
        check_adapter(adapter, header)
    require_space(target.parent, header.parameter_count * 2 + header.data_start + EXTRA_BYTES)
    with understanding(model):
        factors = [_Adapter(adapter.path, adapter.tensors, adapter.metadata, scale) for adapter, scale in loaded]
        reader = GGUFReader(model)
        writer = GGUFWriter(target, header.architecture)
        try:
            _copy_metadata(reader, writer)
            for tensor in reader.tensors:
                changed = any(tensor.name in each.names for each in factors)
                kind = tensor.tensor_type
                if changed:
                    is_whole = kind == GGMLQuantizationType.F32
                    kind = GGMLQuantizationType.F32 if is_whole else GGMLQuantizationType.F16
                writer.add_tensor_info(tensor.name, *_described(tensor, kind, changed))
            writer.write_header_to_file(path=target)
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for number, tensor in enumerate(reader.tensors):
                making.on_tensor(number + 1, len(reader.tensors), tensor.name)
                if making.stop is not None and making.stop.is_set():
                    raise Stopped("stopped")
                writer.write_tensor_data(_merged(tensor, factors))
        finally:
            writer.close()


class _Adapter:
    """The factors of one adapter, and what they are multiplied by."""

    def __init__(self, path: Path, tensors: Sequence[TensorInfo], metadata: Mapping[str, Any], scale: float) -> None:
        self.path, self.scale, self.alpha = path, scale, float(metadata["adapter.lora.alpha"])
        self.tensors = {tensor.name: tensor for tensor in tensors}
        self.names = {name.removesuffix(".lora_a") for name in self.tensors if name.endswith(".lora_a")}

    def delta(self, name: str) -> NDArray[float32]:
        """What is added to a matrix."""
        import numpy as np

        first, second = self._read(f"{name}.lora_a"), self._read(f"{name}.lora_b")
        rank = second.shape[-1]
        factor = np.float32(self.scale * self.alpha / rank if self.alpha else self.scale)
        if name == "token_embd.weight":
            embeddings: NDArray[float32] = (first @ second.T) * factor
            return embeddings
        change: NDArray[float32] = (second @ first) * factor
        return change

    def _read(self, name: str) -> NDArray[float32]:
        import numpy as np
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        tensor = self.tensors[name]
        data = np.fromfile(self.path, np.uint8, tensor.size_bytes, offset=tensor.offset)
        values: NDArray[float32] = dequantize(data, GGMLQuantizationType[tensor.type]).astype(np.float32)
        return values.reshape(tuple(reversed(tensor.shape)))


def _copy_metadata(reader: Any, writer: Any) -> None:
    from gguf import GGUFValueType

    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = F16 if name == "general.file_type" else field.contents()
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], inner)


def _described(tensor: Any, kind: Any, changed: bool) -> tuple[Any, ...]:
    """Shape, numpy type, bytes and type of a tensor to come, as gguf's writer takes them."""
    import numpy as np
    from gguf import GGMLQuantizationType

    shape = tuple(int(each) for each in reversed(tensor.shape))
    if not changed:
        return tensor.data.shape, tensor.data.dtype, tensor.data.nbytes, kind
    dtype = np.dtype(np.float32 if kind == GGMLQuantizationType.F32 else np.float16)
    return shape, dtype, int(np.prod(shape)) * dtype.itemsize, None


def _merged(tensor: Any, adapters: Sequence[_Adapter]) -> Any:
    import numpy as np
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    those = [each for each in adapters if tensor.name in each.names]
    if not those:
        return tensor.data
    shape = tuple(int(each) for each in reversed(tensor.shape))
    values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
    for each in those:
        values = values + each.delta(tensor.name)
    with np.errstate(over="ignore"):
        return values if tensor.tensor_type == GGMLQuantizationType.F32 else values.astype(np.float16)
