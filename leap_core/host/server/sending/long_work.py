"""Work of a request that takes long: in a thread of its own kind, given up when the client leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from ....errors import LeapGenerationError
from .client_watch import client_watch

Value = TypeVar("Value")

MOST_AT_ONCE = 8

_threads = ThreadPoolExecutor(MOST_AT_ONCE, "leap-work")
"""Not those of the event loop, which answer everybody else."""


async def finish(request: Request, work: Callable[[threading.Event], Value]) -> Value:
    """What ``work`` returns; its event is set when the client is gone, and it does not begin where that is so."""
    cancelled = threading.Event()

    def begin() -> Value:
        if cancelled.is_set():
            raise LeapGenerationError("the client left")
        return work(cancelled)

    with client_watch(request.receive, cancelled.set):
        try:
            return await asyncio.get_running_loop().run_in_executor(_threads, begin)
        finally:
            cancelled.set()
