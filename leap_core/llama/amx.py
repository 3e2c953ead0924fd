"""Keeping ggml's AMX kernels off on processors that have that unit.

Compiled by GCC 12 (Debian 12's compiler), ``ggml_backend_amx_mul_mat`` loads a tile configuration of which the compiler
removed all stores but the first eight bytes, because that GCC's ``_tile_loadconfig`` names no more as its input. The
processor answers with a general protection fault at the first matrix product of every model. Nothing in llama.cpp
switches AMX off alone, so its request for the unit is made to fail: Linux grants it only when every signal stack of the
process is large enough for the tiles (arch/x86/kernel/fpu/xstate.c), and a small one is in place while ggml asks.
ggml then computes with its AVX-512 kernels.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SMALL_STACK = 8192
"""Bytes: more than a signal frame with AVX-512's registers (about 3.5 kB), less than one with AMX's tiles (11 kB)."""
EXTRA_BUFFER_TYPES = b"ggml_backend_dev_get_extra_bufts"
"""ggml's name for the function whose first call asks for AMX."""


class _SignalStack(ctypes.Structure):
    """``stack_t`` of ``sigaltstack(2)``."""

    _fields_ = [("ss_sp", ctypes.c_void_p), ("ss_flags", ctypes.c_int), ("ss_size", ctypes.c_size_t)]


def decline_amx(llama: ctypes.CDLL) -> None:
    """Let ggml find out now that it does not get AMX. ``llama``: the loaded library, through which ggml's functions are
    found. Without effect on other systems, and once ggml has asked."""
    if not _has_amx():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    memory = ctypes.create_string_buffer(SMALL_STACK)
    small, before = _SignalStack(ctypes.addressof(memory), 0, SMALL_STACK), _SignalStack()
    if libc.sigaltstack(ctypes.byref(small), ctypes.byref(before)) != 0:
        return
    try:
        with _silent_stderr():
            _ask_for_buffer_types(llama)
    finally:
        libc.sigaltstack(ctypes.byref(before), None)


def _has_amx() -> bool:
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    try:
        with open("/proc/cpuinfo", "rb") as processors:
            return b" amx_tile" in processors.read(8192)  # the first processor's flags
    except OSError:
        return False


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """ggml writes its complaint straight to the descriptor, past the log callback."""
    try:
        kept = os.dup(2)
    except OSError:  # closed: nothing can be written
        yield
        return
    try:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _ask_for_buffer_types(llama: ctypes.CDLL) -> None:
    try:
        registry_of_cpu = llama.ggml_backend_cpu_reg
        address_of = llama.ggml_backend_reg_get_proc_address
        device_of = llama.ggml_backend_reg_dev_get
    except AttributeError:  # linked in another way: nothing is known about it
        return
    registry_of_cpu.restype = ctypes.c_void_p
    address_of.restype, address_of.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
    device_of.restype, device_of.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
    registry = registry_of_cpu()
    address = address_of(registry, EXTRA_BUFFER_TYPES)
    if address:
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)(device_of(registry, 0))
