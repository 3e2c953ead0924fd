"""Starts a Python module as a detached process: it outlives the command, and the terminal, that starts it.

The working directory of such a process is not on its ``sys.path``: files that lie there are never imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from .child_environment import child_environment
from .process_groups import CREATION_FLAGS, OF_A_SESSION

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
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        if path.stat().st_size > LONGEST_LOG:
            os.replace(path, path.with_suffix(".log.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
