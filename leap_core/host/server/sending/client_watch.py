"""The one way to notice that a client has left, and to end what is computed for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import Receive


@contextmanager
def client_watch(receive: Receive, leave: Callable[[], object]) -> Iterator[asyncio.Task[None]]:
    """Call ``leave``, on the event loop, when the client leaves while the block runs; the task is done then. The body
    of the request must have been read before."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        leave()

    watching = asyncio.create_task(watch())
    try:
        yield watching
    finally:
        watching.cancel()
