"""The GPUs that this build of llama.cpp computes on."""

from __future__ import annotations

import ctypes

from .library import library

GPU_KINDS = (1, 2)
"""ggml_backend_dev_type of a GPU, and of one that shares the processor's memory; ggml-backend.h is the source."""


def has_gpu_support() -> bool:
    """Whether layers can be offloaded to a GPU at all."""
    return bool(library().llama_supports_gpu_offload())


def free_gpu_memory() -> list[int]:
    """The free bytes of each GPU."""
    if not has_gpu_support():
        return []
    ggml = library()._lib
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    ggml.ggml_backend_dev_type.restype = ctypes.c_int
    ggml.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    ggml.ggml_backend_dev_memory.restype = None
    ggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2]
    sizes = []
    for index in range(ggml.ggml_backend_dev_count()):
        device = ggml.ggml_backend_dev_get(index)
        if ggml.ggml_backend_dev_type(device) in GPU_KINDS:
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
            sizes.append(free.value)
    return sizes
