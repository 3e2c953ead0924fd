"""How many cores macOS and Windows have for computing: a Mac's fast ones, each once however many threads it has."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from functools import lru_cache

ENTRY = struct.Struct("@Nixxxx16x")
"""SYSTEM_LOGICAL_PROCESSOR_INFORMATION: a mask of processors, the relationship, 16 bytes of details."""
IS_CORE = 0


@lru_cache(maxsize=1)
def physical_cores() -> int:
    """At least 1. Where the system does not say, all its logical processors."""
    if sys.platform == "win32":
        found = cores_listed(_logical_processor_information())
    else:  # waiting for efficiency cores would slow the others down; those with Intel's processors have one kind
        found = _sysctl("hw.perflevel0.physicalcpu") or _sysctl("hw.physicalcpu")
    return found or os.cpu_count() or 1


def _sysctl(name: str) -> int:
    """A number of macOS, 0 where it has none of this name."""
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False, timeout=5)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def cores_listed(table: bytes) -> int:
    """The cores in what GetLogicalProcessorInformation fills in."""
    whole = len(table) - len(table) % ENTRY.size
    return sum(relationship == IS_CORE for _, relationship in ENTRY.iter_unpack(table[:whole]))


def _logical_processor_information() -> bytes:
    """Empty where Windows does not say."""
    if sys.platform != "win32":
        return b""
    import ctypes

    get = ctypes.WinDLL("kernel32").GetLogicalProcessorInformation
    length = ctypes.c_ulong(0)
    get(None, ctypes.byref(length))  # says how long the table is
    table = ctypes.create_string_buffer(length.value)
    return table.raw[: length.value] if get(table, ctypes.byref(length)) else b""
