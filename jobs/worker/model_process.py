"""The process in which llama.cpp runs for jobs: ``python -m jobs.worker.model_process OWNER``.

Only the worker starts it.

It reads one JSON line an attempt from its standard input, and writes one when that has ended. Where it has no table
of its own (see ``remote_table``), calls and their replies go the same ways. When its standard input
ends, the worker has let it go or is dead, and it ends at once: what it was doing is fenced off and done again by the
next worker. So its first thread does nothing but read; what takes time, imports and connections included, is done in
others.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from .remote_table import WorkerCalls

if TYPE_CHECKING:
    from .model_work import ModelWork

LIFE_SECONDS = 1.0


def main(owner: str) -> None:
    """Serve until standard input ends."""
    for number in (signal.SIGINT, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGINT,):
        signal.signal(number, signal.SIG_IGN)  # the worker decides when this ends
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what llama.cpp prints must not look like an answer
    guard, starting = threading.Lock(), threading.Lock()
    started: list[ModelWork] = []

    def answer(value: Mapping[str, object]) -> None:
        with guard:
            answers.write(json.dumps(value) + "\n")

    calls = WorkerCalls(answer)

    def work(id: str, number: int, model: str | None, is_remote: bool) -> None:
        with starting:
            if not started:
                started.append(_start(owner, calls if is_remote else None))
        try:
            started[0].do(id, number, model)
        finally:  # whatever happened: the worker waits for it
            answer({"id": id, "attempt": number})

    threading.Thread(target=_show_life, args=(answer,), name="leap-life", daemon=True).start()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if calls.take(request):
            continue
        arguments = (request["id"], request["attempt"], request.get("model"), bool(request.get("remote")))
        threading.Thread(target=work, args=arguments, daemon=True).start()
    os._exit(0)


def _start(owner: str, calls: WorkerCalls | None) -> ModelWork:
    """Ends the process where it cannot work: the worker sees that."""
    from ..worker_log import log_traceback

    try:
        from .model_work import ModelWork

        return ModelWork(owner, calls)
    except BaseException:
        log_traceback()
        os._exit(1)


def _show_life(answer: Callable[[Mapping[str, object]], None]) -> None:
    """Report to the worker each second that this process is not stuck."""
    while True:
        with suppress(OSError, ValueError):
            answer({"alive": True})
        time.sleep(LIFE_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
