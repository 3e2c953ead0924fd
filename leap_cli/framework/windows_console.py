"""Windows' classic console, which prints escape codes as they stand until it is asked to obey them."""

from __future__ import annotations

import sys
from functools import lru_cache


@lru_cache(maxsize=1)
def obeys_escape_codes() -> bool:
    """Ask the consoles of this process to obey escape codes; whether they do. True on other systems."""
    if sys.platform != "win32":
        return True
    import ctypes

    output, error, processed, virtual_terminal = -11, -12, 0x1, 0x4
    kernel = ctypes.WinDLL("kernel32")
    kernel.GetStdHandle.restype = ctypes.c_void_p
    obeyed = False
    for which in (output, error):
        handle, mode = ctypes.c_void_p(kernel.GetStdHandle(which)), ctypes.c_ulong()
        if kernel.GetConsoleMode(handle, ctypes.byref(mode)):  # else it is a file or a pipe
            obeyed = bool(kernel.SetConsoleMode(handle, mode.value | processed | virtual_terminal))
    return obeyed
