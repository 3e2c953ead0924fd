"""One runner a process: whatever another engine calls in it, the model is loaded once."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

from ..runner.contract import ModelRunner

_GUARD = threading.Lock()
_RUNNERS: dict[tuple[int, str], ModelRunner] = {}
"""By process, because a fork has none of its parent's threads, and by what was asked for."""


def runner_of_process(name: str, load: Callable[[], ModelRunner]) -> ModelRunner:
    """The runner of this name, loaded by the first caller; the others wait. It stays until the process ends."""
    key = (os.getpid(), name)
    with _GUARD:
        if key not in _RUNNERS:
            if not any(pid == key[0] for pid, _ in _RUNNERS):
                atexit.register(unload_all)
            _RUNNERS[key] = load()
        return _RUNNERS[key]


def unload_all() -> None:
    """Free the models of this process. The next call loads again."""
    with _GUARD:
        for key in [key for key in _RUNNERS if key[0] == os.getpid()]:
            _RUNNERS.pop(key).unload()
