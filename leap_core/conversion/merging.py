"""LoRA adapters folded into their model: what llama.cpp's export-lora does, matrix by matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import LeapError
from ..models.gguf.adapter_checks import check_adapter
from ..models.gguf.header import TensorInfo, read_gguf_header
from ..models.installed.model_store import Store
from ..models.maintenance.importing import files_of, record_files
from ..models.names.safe_names import directory_name
from ..models.references.resolving import LocalModel
from ..storage.linking import place
from .child import Stopped
from .converting import understanding
from .quantizing import Making, Quantized, making_directory, require_space, settle
from .storing import require_running

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

F16 = 1
ROOM = 64 * 1024**2


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
    require_space(target.parent, header.parameter_count * 2 + header.data_start + ROOM)
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
