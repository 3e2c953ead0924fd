"""The same server in the foreground, for other programs: OpenAI's endpoints without the host's own."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import LeapOptionsError, LeapUnavailableError
from ...loading import load_local
from ...media.fetching import UrlAccess
from .access import LOOPBACK_NAMES, AccessCheck, for_local_pages
from .application import build_app
from .generation_endpoints import GenerationEndpoints
from .loaded_models import LoadedModels, LoadRequest
from .request_log import RequestLog
from .uvicorn_server import Server, listen, on_signals

OPEN_PATHS = frozenset({"/health"})


def serve(
    references: Sequence[str],
    address: str,
    port: int,
    *,
    api_key: str | None,
    cwd: Path,
    on_listening: Callable[[str], object],
    on_ready: Callable[[list[str]], object],
    most_connections: int | None = None,
    urls: UrlAccess = UrlAccess.DATA,
    **loading: Any,
) -> None:
    """Listen, load the models, and answer until SIGINT or SIGTERM.

    ``urls``: what the URLs of pictures in requests may reach. ``loading``: see ``LoadRequest``. Raises
    LeapUnavailableError when it cannot listen there, and what loading raises.
    """
    is_local = address in LOOPBACK_NAMES
    if not is_local and api_key is None:
        raise LeapOptionsError("address", f"{address} can be reached from other machines, so there must be an API key")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="leap: %(message)s")
    load_requests = [LoadRequest(reference, cwd=cwd, keep_alive=0, **loading) for reference in references]
    with suppress(KeyboardInterrupt):
        asyncio.run(
            _serve(load_requests, address, port, api_key, is_local, on_listening, on_ready, most_connections, urls)
        )


async def _serve(
    load_requests: list[LoadRequest],
    address: str,
    port: int,
    api_key: str | None,
    is_local: bool,
    on_listening: Callable[[str], object],
    on_ready: Callable[[list[str]], object],
    most_connections: int | None,
    urls: UrlAccess,
) -> None:
    try:
        listener = listen(address, port)
    except OSError as error:
        raise LeapUnavailableError(
            f"cannot listen on {address} port {port}: {error.strerror or error}", hint="choose another --port"
        ) from None
    models = LoadedModels(load_local)
    generation = GenerationEndpoints(models, urls=urls)
    app = build_app(models, generation)
    guard = AccessCheck(app, token=api_key, any_name=not is_local, open_paths=OPEN_PATHS, pages=True)
    server = Server.of(RequestLog(for_local_pages(guard), generation.metrics), most_connections=most_connections)
    ending = asyncio.Event()
    on_signals(asyncio.get_running_loop(), ending.set)
    serving = asyncio.create_task(server.serve([listener]))
    shown = f"[{address}]" if ":" in address else address
    try:
        on_listening(f"http://{shown}:{listener.getsockname()[1]}/v1")
        loading = asyncio.ensure_future(_load(models, load_requests))
        waiting = asyncio.ensure_future(_wait(ending))
        await asyncio.wait([loading, waiting], return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            on_ready(loading.result())
            await waiting
        loading.cancel()
    finally:
        await models.close()
        server.end()
        await serving


async def _load(models: LoadedModels, load_requests: list[LoadRequest]) -> list[str]:
    return [(await models.load(load_request)).name for load_request in load_requests]


async def _wait(event: asyncio.Event) -> list[str]:
    await event.wait()
    return []
