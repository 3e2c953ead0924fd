"""Starting a generation, and waiting for its end, for as long as its client stays."""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from ....errors import LeapError
from .client_watch import client_watch
from .event_loop_bridge import GenerationBridge
from .http_errors import unacceptable


async def start_bridge(bridge: GenerationBridge, receive: Receive) -> bool:
    """Start a generation; whether its client stayed until it was accepted. Raises the error with which it was refused.

    What has to be done before (a schema to compile, a template to render) may take a while, and ends with its client.
    """
    starting = asyncio.ensure_future(bridge.start())
    try:
        with client_watch(receive, bridge.abandon) as watching:
            await asyncio.wait({starting, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            await bridge.close()
            starting.cancel()
            return False
        starting.result()
        return True
    except LeapError as error:
        raise unacceptable(error) from None
    except asyncio.CancelledError:
        bridge.abandon()
        raise
