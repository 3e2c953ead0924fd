"""What llama.cpp's build can do on this machine."""

from __future__ import annotations

import ctypes
from typing import Any

from .library import library


def describe() -> dict[str, Any]:
    """``version`` of llama-cpp-python, the CPU ``features`` that are in use, the ``devices`` it computes on, and
    whether layers can be offloaded to a GPU."""
    import llama_cpp

    llama = library()
    words = llama.llama_print_system_info().decode("utf-8", "replace")
    switches = [word.split("=") for word in words.partition(":")[2].split("|") if "=" in word]
    return {
        "version": llama_cpp.__version__,
        "features": [name.strip() for name, value in switches if value.strip() not in ("", "0")],
        "devices": _devices(llama),
        "gpu_offload": bool(llama.llama_supports_gpu_offload()),
    }


def _devices(llama: Any) -> list[dict[str, Any]]:
    """ggml's devices; ggml-backend.h is the source of these signatures."""
    ggml = llama._lib
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    for function in (ggml.ggml_backend_dev_name, ggml.ggml_backend_dev_description):
        function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    ggml.ggml_backend_dev_memory.restype = None
    ggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2]
    devices = []
    for index in range(ggml.ggml_backend_dev_count()):
        device = ggml.ggml_backend_dev_get(index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        devices.append(
            {
                "name": ggml.ggml_backend_dev_name(device).decode("utf-8", "replace"),
                "description": ggml.ggml_backend_dev_description(device).decode("utf-8", "replace").strip(),
                "memory": total.value,
            }
        )
    return devices
