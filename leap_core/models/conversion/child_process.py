"""The child process of ``child``: quantizes a file, or measures what that cost."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ...errors import LeapError

TASKS = {
    "quantize": "leap_core.models.conversion.tasks:quantize_file",
    "measure": "leap_core.models.conversion.tasks:measure_cost",
}
"""By name: the module and the function ``(request, progress) -> result``."""


def main() -> None:
    """Do the one task of this process."""
    out = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # what a library prints is not taken for an answer
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()

    def answer(value: dict[str, Any]) -> None:
        out.write(json.dumps(value).encode() + b"\n")

    module, _, name = TASKS[request["task"]].partition(":")
    task: Callable[[dict[str, Any], Callable[[Any], None]], Any] = getattr(import_module(module), name)
    try:
        answer({"result": task(request, lambda progress: answer({"progress": progress}))})
    except LeapError as error:
        answer({"error": error.message, "hint": error.hint})
    except (MemoryError, OSError) as error:
        answer({"error": str(error) or "there is not enough memory"})
    os._exit(0)


def _end_with_the_parent() -> None:
    sys.stdin.buffer.read()  # until it is closed, which the parent's end does too
    os._exit(1)


if __name__ == "__main__":
    main()
