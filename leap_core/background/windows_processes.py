"""What Windows says about a process, by its own calls."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    QUERY_LIMITED_INFORMATION, SYNCHRONIZE, STILL_RUNNING = 0x1000, 0x100000, 0x102

    def creation_time(pid: int) -> str | None:
        """When the process began, in steps of 100 ns; None when it has ended or belongs to another user."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.OpenProcess.restype = wintypes.HANDLE
        handle = kernel.OpenProcess(QUERY_LIMITED_INFORMATION | SYNCHRONIZE, False, pid)
        if not handle:
            return None
        handle = wintypes.HANDLE(handle)
        try:
            times = [wintypes.FILETIME() for _ in range(4)]
            told = kernel.GetProcessTimes(handle, *(ctypes.byref(time) for time in times))
            if not told or kernel.WaitForSingleObject(handle, 0) != STILL_RUNNING:
                return None
            return str((times[0].dwHighDateTime << 32) + times[0].dwLowDateTime)
        finally:
            kernel.CloseHandle(handle)

else:

    def creation_time(pid: int) -> str | None:
        """Told on Windows alone."""
        raise NotImplementedError
