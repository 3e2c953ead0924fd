"""The GPUs that a model may use, and which of its parts go where.

The meanings are llama.cpp's: without a list of devices a model uses every GPU, and those that share the processor's
memory only where there is no other. A card that two backends show (CUDA and Vulkan, say) counts once.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import LeapModelLoadingError, LeapOptionsError
from ...system.child import answers_of
from ...system.dataclass import dataclass
from ..gguf.offloading import EXPERTS
from .library import (
    CPU,
    GPU,
    INTEGRATED,
    current_engine,
    gpu_backends,
    has_gpu_support,
    library,
    memory_of,
    names_of,
    unseen_gpu,
)

NONE = "none"
MOST_DEVICES = 128
"""More than llama.cpp reads of a split."""
MOST_LAYERS = 512
"""Of any model, by llama.cpp's LLAMA_MAX_LAYERS."""
CROWDED = 1024**3
"""CUDA and ROCm take some hundred MB of a card before they say how much of it is free, and end the process where it has
not so much left."""
NVML = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
TASK = "leap_core.inference.llama.devices:answer_memory"
TASK_SECONDS = 60
SPAWN = "start processes with spawn, as multiprocessing.get_context('spawn') does, and load models there"
_user: int | None = None
"""The process that used a GPU first, as far as this one has its memory."""


@dataclass(frozen=True)
class Device:
    """A GPU. ``free`` and ``total``: bytes of its memory, 0 until it is ``measured``."""

    pointer: int
    name: str
    description: str
    is_integrated: bool
    free: int = 0
    total: int = 0


def all_gpus() -> list[Device]:
    """Every GPU that the engine's backends show, a card as often as they do."""
    llama = library()
    found = []
    for index in range(llama.ggml_backend_dev_count()):
        pointer = llama.ggml_backend_dev_get(index)
        kind = llama.ggml_backend_dev_type(pointer)
        if kind in (GPU, INTEGRATED):
            found.append(Device(pointer, *names_of(llama, pointer), kind == INTEGRATED))
    return found


def measured(devices: Sequence[Device]) -> list[Device]:
    """The devices with their memory. Where a card of the machine is almost full a child process asks, which may die of
    it; a device of which it dies has no free memory. Raises LeapModelLoadingError in a forked child of a process that
    used a GPU: the driver would end it."""
    global _user
    if not devices:
        return []
    _user = _user or os.getpid()
    if _user != os.getpid():
        raise LeapModelLoadingError("a process that was forked from one that used a GPU cannot use it", hint=SPAWN)
    least = _least_free(devices)
    if least is None or least >= CROWDED:
        return [replace(each, free=free, total=total) for each in devices for free, total in [_memory(each.pointer)]]
    found: list[tuple[int, int]] = []
    while left := [each.name for each in devices[len(found) :]]:
        answers: list[Any] = []
        with suppress(OSError):
            answers, _, _ = answers_of({"task": TASK, "names": left}, TASK_SECONDS)
        found += [tuple(answer["memory"]) for answer in answers if "memory" in answer]
        if len(found) < len(devices):
            found.append((0, 0))
    return [replace(each, free=free, total=total) for each, (free, total) in zip(devices, found, strict=True)]


def _memory(pointer: int) -> tuple[int, int]:
    return memory_of(library(), pointer)


def answer_memory(request: dict[str, Any], answer: Callable[[dict[str, Any]], None]) -> None:
    """In a child: the memory of the devices of these names, one answer each."""
    pointers = {each.name: each.pointer for each in all_gpus()}
    for name in request["names"]:
        answer({"memory": _memory(pointers[name])})


def _least_free(devices: Sequence[Device]) -> int | None:
    """The free bytes of the machine's fullest card of these makes, as the driver says without using any of them; None
    where no driver says it."""
    makes = (("CUDA", _free_of_nvidia), ("ROCm", _free_of_amd))  # others answer without using memory
    used = [free for make, free in makes if any(each.name.startswith(make) for each in devices)]
    return min((amount for free in used for amount in free()), default=None)


def _free_of_nvidia() -> Iterator[int]:
    with suppress(OSError, AttributeError):
        nvml = ctypes.CDLL(NVML)
        count, handle, memory = ctypes.c_uint(), ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()  # total, free, used
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return
        for index in range(count.value):
            failed = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            if not failed and not nvml.nvmlDeviceGetMemoryInfo(handle, memory):
                yield int(memory[1])
        nvml.nvmlShutdown()


def _free_of_amd(root: Path = Path("/sys/class/drm")) -> Iterator[int]:
    for total in root.glob("card[0-9]*/device/mem_info_vram_total"):
        with suppress(OSError, ValueError):
            yield int(total.read_text()) - int(total.with_name("mem_info_vram_used").read_text())


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
        return [by_name[name] for name in dict.fromkeys(name.lower() for name in names)]
    chosen: list[Device] = []
    for device in [each for each in devices if not each.is_integrated] or devices:
        backend = device.name.rstrip("0123456789")
        shown = [each.name.rstrip("0123456789") for each in chosen if each.description == device.description]
        if not shown or backend in shown:  # two equal cards have one backend
            chosen.append(device)
    return chosen


@dataclass(frozen=True)
class Placement:
    """Where a model's parts go. ``devices``: the GPUs for its layers, none for llama.cpp's own choice; ``tensor_split``
    among them; ``cpu_moe``: the first layers whose experts stay on the processor, -1 for all. ``needs``: about so many
    bytes of each device."""

    n_gpu_layers: int = 0
    devices: Sequence[Device] = ()
    tensor_split: Sequence[float] = ()
    cpu_moe: int = 0
    needs: Sequence[int] = ()

    def fill(self, params: Any) -> list[Any]:
        """Write it into llama.cpp's parameters; returns what must live until the model is loaded."""
        params.n_gpu_layers = self.n_gpu_layers
        kept: list[Any] = []
        if self.n_gpu_layers == 0 or self.devices:  # an empty list: otherwise long prompts go to a GPU all the same
            pointers = [] if self.n_gpu_layers == 0 else [each.pointer for each in self.devices]
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


def describe() -> dict[str, Any]:
    """The ``engine`` by its name, its ``version`` and ``folder``, the CPU ``features`` that are in use, the ``devices``
    it computes on, whether layers can be offloaded to a GPU, and whether it reads images and audio."""
    llama = library()
    engine = current_engine()
    words = llama.llama_print_system_info().decode("utf-8", "replace")
    switches = [word.split("=") for word in words.partition(":")[2].split("|") if "=" in word]
    return {
        "engine": engine.name,
        "version": engine.version.removeprefix("llama-cpp-python ") or _version_of(llama),
        "folder": str(engine.folder),
        "features": [name.strip() for name, value in switches if value.strip() not in ("", "0")],
        "backends": [
            llama.ggml_backend_reg_name(llama.ggml_backend_reg_get(index)).decode("utf-8", "replace")
            for index in range(llama.ggml_backend_reg_count())
        ],
        "devices": _devices(llama),
        "gpu_offload": has_gpu_support(),
        "gpu_backends": gpu_backends(),
        "unseen_gpu": None if has_gpu_support() else unseen_gpu(),
        "projectors": llama.has_projectors,
    }


def _version_of(llama: Any) -> str:
    """What the build says of itself."""
    return str(llama.llama_version().decode("utf-8", "replace")) if llama.has("llama_version") else "unknown"


def _devices(llama: Any) -> list[dict[str, Any]]:
    gpus = {each.name: each for each in measured(all_gpus())}
    found = []
    for index in range(llama.ggml_backend_dev_count()):
        device = llama.ggml_backend_dev_get(index)
        name, description = names_of(llama, device)
        gpu = gpus.get(name)
        free, total = (gpu.free, gpu.total) if gpu is not None else memory_of(llama, device)
        found.append({"name": name, "description": description, "memory": total})
        found[-1] |= {"free": free} if gpu is not None else {}
    return found
