"""How much memory this machine has."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

MOST_OF_MEMORY = 0.8
"""The part of it that a model may take."""


def machine_memory(files: Path = Path("/")) -> int | None:
    """Bytes of memory: those of the machine, or fewer where a control group allows fewer. ``files``: where ``sys`` and
    ``proc`` are."""
    amounts = [amount for amount in (_physical(), *_limits(files)) if amount]
    return min(amounts, default=None)


def _physical() -> int | None:
    if sys.platform == "win32":
        return _physical_on_windows()
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _limits(files: Path) -> list[int]:
    """What control groups of either version allow, on the way from this process' group to the root."""
    amounts = []
    group = ""
    with suppress(OSError):
        text = (files / "proc/self/cgroup").read_text()
        match = re.search(r"^0::/(.*)$", text, re.MULTILINE)
        group = match[1] if match else ""
    root = files / "sys/fs/cgroup"
    places = [root / group, *(root / group).parents]
    names = [place / "memory.max" for place in places if place.is_relative_to(root)]
    for name in (*names, root / "memory" / "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            amounts.append(int(name.read_text()))  # "max" is no limit
    return amounts


def _physical_on_windows() -> int | None:
    import ctypes

    class Status(ctypes.Structure):
        """MEMORYSTATUSEX of the Windows API."""

        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *((name, ctypes.c_ulonglong) for name in ("total", "free", "page", "page_free", "virtual", "virtual_free")),
            ("extended", ctypes.c_ulonglong),
        )

    status = Status(length=ctypes.sizeof(Status))
    library = getattr(ctypes, "windll").kernel32  # noqa: B009 (there is no such name elsewhere)
    return int(status.total) if library.GlobalMemoryStatusEx(ctypes.byref(status)) else None
