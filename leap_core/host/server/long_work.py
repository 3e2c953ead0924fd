"""Work of a request that takes long: in a thread of its own kind, given up when the client leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

Value = TypeVar("Value")

MOST_AT_ONCE = 8
LOOK_SECONDS = 0.1

_threads = ThreadPoolExecutor(MOST_AT_ONCE, "leap-embedding")
"""Not those of the event loop, which answer everybody else."""


async def finish(request: Request, work: Callable[[threading.Event], Value]) -> Value:
    """What ``work`` returns; its event is set when the client is gone."""
    cancelled = threading.Event()
    running = asyncio.get_running_loop().run_in_executor(_threads, work, cancelled)
    try:
        while not (await asyncio.wait({running}, timeout=LOOK_SECONDS))[0]:
            if await request.is_disconnected():
                cancelled.set()
        return running.result()
    finally:
        cancelled.set()
