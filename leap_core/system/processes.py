"""Processes that leap starts: their environment, their group, their identity, and how they outlive a command.

The working directory of such a process is not on its ``sys.path``: files that lie there are never imported.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .directories import absolute_home, packages_directory, private_directory

if TYPE_CHECKING:
    import subprocess


def child_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables (this process's when None) for a process of leap's in another directory: ``LEAP_HOME`` is absolute,
    and ``PYTHONPATH`` leads to these packages where they are not installed."""
    child = dict(os.environ if variables is None else variables)
    home = absolute_home(child)
    if home is not None:
        child["LEAP_HOME"] = home
    root, paths = str(packages_directory()), child.get("PYTHONPATH", "")
    if root not in paths.split(os.pathsep):
        child["PYTHONPATH"] = os.pathsep.join(part for part in (root, paths) if part)
    return child


OF_A_SESSION = sys.platform != "win32"
"""``start_new_session`` of ``subprocess.Popen``: the process leads a group of its own."""
NO_WINDOW = 0x0800_0000
CREATION_FLAGS = 0x200 | NO_WINDOW if sys.platform == "win32" else 0
"""``creationflags`` of it: a new group, and a console that nobody sees; without one the process and each of its
children would open a window."""


def kill_group(pid: int) -> None:
    """End the process and whatever it started, at once. Nothing is raised for one that has ended."""
    if sys.platform == "win32":
        import subprocess

        with suppress(OSError):
            command = ["taskkill", "/F", "/T", "/PID", str(pid)]
            subprocess.run(command, capture_output=True, check=False, creationflags=NO_WINDOW)
    else:
        with suppress(OSError):
            if os.getpgid(pid) == pid:  # it leads a group of its own, unless it runs in a terminal
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)


LONGEST_LOG = 4 * 1024 * 1024
"""Bytes of a log file beyond which the next process begins a new one; the old one stays as ``NAME.log.1``."""
RUN_MODULE = "import sys; sys.path = [place for place in sys.path if place]; import runpy; "
RUN_MODULE += "runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
"""What ``python -m`` does, without the working directory on ``sys.path``; ``-P`` needs Python 3.11."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of leap's, whatever files the working directory holds."""
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", module, *arguments]
    return [sys.executable, "-c", RUN_MODULE.format(module=module), *arguments]


def start_detached(
    module: str,
    *arguments: str,
    log: IO[bytes],
    directory: Path,
    variables: Mapping[str, str] | None = None,
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` in a session of its own, in ``directory``, with the environment ``variables`` (this
    process's when None). Its messages go to ``log``; its standard output too, unless ``stdout`` is subprocess.PIPE.
    A thread waits for its end, so that it does not stay in the process table."""
    import subprocess

    process = subprocess.Popen(
        module_command(module, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=log if stdout is None else stdout,
        stderr=log,
        cwd=directory,
        env=child_environment(variables),
        start_new_session=OF_A_SESSION,
        creationflags=CREATION_FLAGS,
    )
    threading.Thread(target=process.wait, name=f"leap-end-of-{module}", daemon=True).start()
    return process


def open_log(path: Path) -> IO[bytes]:
    """Open a log file for appending, readable by its owner only; one above LONGEST_LOG is moved to ``NAME.log.1``."""
    private_directory(path.parent)
    with suppress(OSError):
        if path.stat().st_size > LONGEST_LOG:
            os.replace(path, path.with_suffix(".log.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")


def start_time(pid: int) -> str | None:
    """When the process began, as the system writes it; None when it has ended, or there is no way to know."""
    if sys.platform.startswith("linux"):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        if fields[0] in ("Z", "X"):  # ended, and its parent has not taken note yet
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {fields[19]}"  # proc(5): field 22, clock ticks since boot
    if sys.platform == "win32":
        return creation_time(pid)
    import subprocess

    variables = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}  # the same words for every reader
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    return done.stdout.strip() or None


def terminate(pid: int, started: str | None, *, kill: bool = False) -> bool:
    """Ask the process to end (or, with ``kill``, end it), if it is still the one that began then."""
    if started is None or start_time(pid) != started:
        return False
    number = signal.SIGTERM
    if sys.platform != "win32" and kill:
        number = signal.SIGKILL
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def resident_bytes() -> int | None:
    """Memory that this process occupies now, or None where that is not cheap to find out."""
    if sys.platform == "win32":
        return None
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return int(pages * os.sysconf("SC_PAGE_SIZE"))
    return None


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
        """Reported on Windows alone."""
        raise NotImplementedError
