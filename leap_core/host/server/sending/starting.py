"""Waiting for a model, and for the start of a generation, for as long as the client stays."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from starlette.requests import Request
from starlette.types import Receive

from ....errors import LeapError, LeapGenerationError
from ..models.loaded_model import LoadedModel
from ..models.loaded_models import LoadedModels
from .client_watch import client_watch
from .event_loop_bridge import GenerationBridge
from .http_errors import unacceptable


async def reserved(
    models: LoadedModels,
    name: str | None,
    request: Request,
    using: ExitStack,
    *,
    embeds: bool = False,
    keep_alive: float | None = None,
) -> LoadedModel:
    """The model that a request names, loaded where it is offered, and kept until ``using`` is closed; see
    ``LoadedModels.reserve``. The body of the request must have been read before."""
    reserving = asyncio.ensure_future(models.reserve(name, embeds=embeds, keep_alive=keep_alive))
    with client_watch(request.receive, reserving.cancel) as watching:
        try:
            model = await reserving
        except asyncio.CancelledError:
            if reserving.done() and not reserving.cancelled() and reserving.exception() is None:
                reserving.result().release()
            if watching.done():
                raise LeapGenerationError("the client left") from None
            raise
    using.callback(model.release)
    return model


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
