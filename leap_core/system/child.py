"""Work that may end its process, in a process of its own: what goes in, and what comes out of it.

The child runs ``main``. It gets one line of JSON on standard input, ``{"task": "module:function", …}``, and calls
``function(request, answer)``. Each answer is a line of JSON; the last is ``{"result": …}``, or ``{"error": {"message",
"hint", "memory"}}`` for what the function refuses. ``data_bytes`` of the request says how many bytes follow it, which
the function finds as ``data``. It ends when its standard input closes, so it does not outlive the process that waits
for it. ``cpu_seconds`` and ``memory_bytes`` of the request hold it within limits.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from ..errors import LeapError
from .directories import packages_directory
from .processes import CREATION_FLAGS, OF_A_SESSION, child_environment, module_command

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

MODULE = "leap_core.system.child"
LOOK_SECONDS = 0.1
LAST_WORDS = 4096
"""Bytes of a child's last words on standard error that are looked at."""


@contextmanager
def child_for(
    request: Mapping[str, Any],
    *,
    stdout: IO[bytes] | int,
    stderr: IO[bytes],
    variables: Mapping[str, str] | None = None,
    data: bytes | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child with its request; it is killed and waited for at the end of the block, if it still runs.

    ``data``: bytes that the task finds as ``data`` in its request. ``stdout``: a file, or subprocess.PIPE.
    ``variables``: its environment, by default this process's. Raises OSError when no process can start.
    """
    import subprocess

    process = subprocess.Popen(
        module_command(MODULE),
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        cwd=packages_directory(),  # not where a stranger's modules may lie
        env=child_environment(variables),
        start_new_session=OF_A_SESSION,
        creationflags=CREATION_FLAGS,
    )
    assert process.stdin is not None
    try:
        with suppress(OSError):  # it may have ended before
            sized = request if data is None else {**request, "data_bytes": len(data)}
            process.stdin.write(json.dumps(sized).encode() + b"\n")
            process.stdin.write(data or b"")
            process.stdin.flush()
        yield process
    finally:
        kill(process)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the child at once."""
    with suppress(OSError):
        process.kill()


@contextmanager
def killed_when(
    is_stopped: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float | None = None
) -> Iterator[threading.Event]:
    """Within the block the child is killed as soon as ``is_stopped``, or after ``seconds``, which sets the event that
    the block gets."""
    ended, late = threading.Event(), threading.Event()
    end = None if seconds is None else time.monotonic() + seconds

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            if end is not None and time.monotonic() > end:
                late.set()
            if is_stopped() or late.is_set():
                return kill(process)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield late
    finally:
        ended.set()
        watcher.join()


def answers_of(
    request: Mapping[str, Any],
    seconds: float,
    variables: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> tuple[list[Any], int | None, str]:
    """What a child answers, its exit code (None where it was ended after ``seconds``, or because ``stop`` was set), and
    the end of what it wrote to standard error. Raises OSError when no process can start."""
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as words, tempfile.TemporaryFile() as answers:
        code, end, step = None, time.monotonic() + seconds, seconds if stop is None else LOOK_SECONDS
        with child_for(request, stdout=answers, stderr=words, variables=variables) as process:
            while code is None and time.monotonic() < end and not (stop is not None and stop.is_set()):
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(step)
        answers.seek(0)
        words.seek(max(0, words.seek(0, os.SEEK_END) - LAST_WORDS))
        found = []
        for line in answers:
            with suppress(ValueError):
                found.append(json.loads(line))
        return found, code, words.read().decode("utf-8", "replace")


def take_stdout() -> IO[bytes]:
    """This process's standard output, for answers; what a library prints goes to standard error from now on."""
    answers = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)
    return answers


def main() -> None:
    """Do the one task of this process."""
    out = take_stdout()
    request = json.loads(sys.stdin.buffer.readline())
    _limit(request.get("cpu_seconds"), request.get("memory_bytes"))
    if "data_bytes" in request:
        request["data"] = sys.stdin.buffer.read(request["data_bytes"])
    threading.Thread(target=_end_with_the_parent, daemon=True).start()

    def answer(value: Mapping[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False)
        out.write(text.encode("utf-8", "backslashreplace") + b"\n")  # of half a character: JSON's own escape

    module, _, name = request["task"].partition(":")
    try:
        task: Callable[[dict[str, Any], Callable[[Mapping[str, Any]], None]], Any]
        task = getattr(import_module(module), name)
        answer({"result": task(request, answer)})
    except LeapError as error:
        answer({"error": {"message": error.message, "hint": error.hint}})
    except OSError as error:
        answer({"error": {"message": str(error)}})
    except MemoryError:
        answer({"error": {"message": "it needs more memory than there is", "memory": True}})
    os._exit(0)  # llama.cpp's memory goes with the process


def _limit(cpu_seconds: int | None, memory_bytes: int | None) -> None:
    """Hold this process within limits, and let its end leave no core file behind."""
    if sys.platform == "win32":  # the parent's clock has to do
        return
    import resource

    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory_bytes),
    ):
        _, most = resource.getrlimit(kind)
        if limit is None:
            continue
        try:
            resource.setrlimit(kind, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
        except (OSError, ValueError):  # a system that does not know it
            continue


def _end_with_the_parent() -> None:
    sys.stdin.buffer.read()  # until it is closed, which the parent's end does too
    os._exit(1)


if __name__ == "__main__":
    main()
