"""The GPUs that a model may use, and which of its parts go where.

The meanings are llama.cpp's: without a list of devices a model uses every GPU, and those that share the processor's
memory only where there is no other. A card that two backends show (CUDA and Vulkan, say) counts once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ...errors import LeapOptionsError
from ...system.dataclass import dataclass
from .library import has_gpu_support, library, memory_of

CPU, GPU, INTEGRATED = 0, 1, 2
"""ggml_backend_dev_type; ggml-backend.h is the source."""
NONE = "none"
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""The tensors of experts, as llama.cpp's own options match them."""
MOST_DEVICES = 128
"""More than llama.cpp reads of a split."""
MOST_LAYERS = 512
"""Of any model, by llama.cpp's LLAMA_MAX_LAYERS."""


@dataclass(frozen=True)
class Device:
    """A GPU. ``free`` and ``total``: bytes of its memory."""

    pointer: int
    name: str
    description: str
    is_integrated: bool
    free: int
    total: int


def all_gpus() -> list[Device]:
    """Every GPU that the engine's backends show, a card as often as they do."""
    if not has_gpu_support():
        return []
    llama = library()
    found = []
    for index in range(llama.ggml_backend_dev_count()):
        pointer = llama.ggml_backend_dev_get(index)
        kind = llama.ggml_backend_dev_type(pointer)
        if kind in (GPU, INTEGRATED):
            name, description = (
                text.decode("utf-8", "replace").strip()
                for text in (llama.ggml_backend_dev_name(pointer), llama.ggml_backend_dev_description(pointer))
            )
            found.append(Device(pointer, name, description, kind == INTEGRATED, *memory_of(llama, pointer)))
    return found


def usable_gpus(names: Sequence[str] = ()) -> list[Device]:
    """The GPUs of these names, else those that llama.cpp uses by itself. Raises LeapOptionsError for a name that no
    device has."""
    if list(names) == [NONE]:
        return []
    devices = all_gpus()
    if names:
        by_name = {device.name.lower(): device for device in devices}
        if unknown := [name for name in names if name.lower() not in by_name]:
            known = ", ".join(device.name for device in devices) or "no GPU"
            raise LeapOptionsError("devices", f"there is no device {unknown[0]}; the engine sees {known}")
        return [by_name[name.lower()] for name in names]
    chosen: list[Device] = []
    for device in [each for each in devices if not each.is_integrated] or devices:
        backend = device.name.rstrip("0123456789")
        shown = [each.name.rstrip("0123456789") for each in chosen if each.description == device.description]
        if not shown or backend in shown:  # two equal cards have one backend
            chosen.append(device)
    return chosen


@dataclass(frozen=True)
class Placement:
    """Where a model's parts go: fields of ``ModelLoadingOptions`` by these names. ``cpu_moe``: the first layers whose
    experts stay on the processor, -1 for all."""

    n_gpu_layers: int = 0
    devices: Sequence[str] = ()
    tensor_split: Sequence[float] = ()
    cpu_moe: int = 0

    def fill(self, params: Any) -> list[Any]:
        """Write it into llama.cpp's parameters; returns what must live until the model is loaded. Raises
        LeapOptionsError for a device that is not there."""
        params.n_gpu_layers = self.n_gpu_layers
        kept: list[Any] = []
        if self.n_gpu_layers == 0 or self.devices:  # an empty list: otherwise long prompts go to a GPU all the same
            pointers = [] if self.n_gpu_layers == 0 else [each.pointer for each in usable_gpus(self.devices)]
            kept.append((ctypes.c_void_p * (len(pointers) + 1))(*pointers))
            params.devices = ctypes.addressof(kept[-1])
        if self.tensor_split:
            kept.append((ctypes.c_float * MOST_DEVICES)(*self.tensor_split[:MOST_DEVICES]))
            params.tensor_split = ctypes.addressof(kept[-1])
        if self.cpu_moe:
            kept.append(_experts_on_processor(self.cpu_moe))
            params.tensor_buft_overrides = ctypes.addressof(kept[-1])
        return kept


class _Override(ctypes.Structure):
    """``llama_model_tensor_buft_override`` of llama.h."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p)]


def _experts_on_processor(layers: int) -> Any:
    llama = library()
    memory = llama.ggml_backend_dev_buffer_type(llama.ggml_backend_dev_by_type(CPU))
    patterns = [EXPERTS] if layers < 0 else [rf"blk\.{layer}{EXPERTS}" for layer in range(min(layers, MOST_LAYERS))]
    overrides = (_Override * (len(patterns) + 1))()  # an empty one ends the list
    for override, pattern in zip(overrides, patterns, strict=False):
        override.pattern, override.buffer_type = pattern.encode(), memory
    return overrides
