"""The child process in which a file is tried. See ``trial_child`` for what goes in and out.

Each kind of file has a function that does with it what leap does with it later, and calls ``stage`` before each step.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from ...errors import LeapError

TRIALS = {
    "model": "leap_core.inference.trial.trials:try_model",
    "multimodal_projector": "leap_core.inference.trial.trials:try_projector",
    "adapter": "leap_core.inference.trial.trials:try_adapter",
    "audio_decoder": "leap_core.inference.trial.trials:try_voice",
}
"""By kind of file: the module and the function ``(path, beside, stage) -> facts`` that tries it."""


def main() -> None:
    """Try the one file of this process."""
    out = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # what a library prints is not taken for an answer
    request = json.loads(sys.stdin.buffer.readline())
    _limit(request["cpu_seconds"], request["memory_bytes"])
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    _answer(out, _tried(request, out))
    os._exit(0)  # llama.cpp's memory goes with the process


def _tried(request: dict[str, Any], out: IO[bytes]) -> dict[str, Any]:
    def stage(name: str, **facts: Any) -> None:
        _answer(out, {"stage": name, "facts": facts})

    module, _, name = TRIALS[request["kind"]].partition(":")
    beside = {kind: Path(path) for kind, path in request["beside"].items()}
    try:
        trial: Callable[[Path, Mapping[str, Path], Any], dict[str, Any]] = getattr(import_module(module), name)
        return {"facts": trial(Path(request["path"]), beside, stage), "finished": True}
    except LeapError as error:
        return {"error": {"message": error.message}}
    except MemoryError:
        return {"error": {"message": "it needs more memory than there is", "memory": True}}


def _answer(out: IO[bytes], value: dict[str, Any]) -> None:
    out.write(json.dumps(value).encode() + b"\n")


def _limit(cpu_seconds: int, memory_bytes: int) -> None:
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
        try:
            resource.setrlimit(kind, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
        except (OSError, ValueError):  # a system that does not know it
            continue


def _end_with_the_parent() -> None:
    sys.stdin.buffer.read()  # until it is closed, which the parent's end does too
    os._exit(1)


if __name__ == "__main__":
    main()
