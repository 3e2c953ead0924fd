"""The same server in the foreground, for other programs: OpenAI's endpoints without the host's own."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from starlette.routing import Route
from starlette.types import ASGIApp

from ..conversation.media.fetching import UrlAccess
from ..errors import LeapError, LeapOptionsError, LeapUnavailableError
from ..models.resolving import resolve_local
from ..opening import load_as_made, load_local_for_embedding, try_local
from ..protocols.host.host_http import LOOPBACK
from ..protocols.host.served_models import STATUS_PATH, ServerState, known_server
from ..system.dataclass import dataclass
from .access import LOOPBACK_NAMES, AccessCheck, PlainPaths, for_local_pages
from .application import Server, build_app, listen, on_signals
from .endpoints.batches import BatchEndpoints
from .endpoints.generation import GenerationEndpoints
from .endpoints.message_batches import MessageBatches
from .endpoints.models import status_route
from .endpoints.ollama import OllamaEndpoints, alive_route
from .endpoints.responses import KeptResponses, StoredResponses
from .job_queue import JobEndpoints, JobQueue
from .keep_alive import PING_SECONDS
from .metrics import Metrics, RequestLog, access_log
from .models.abilities import Offer
from .models.loaded_model import LoadRequest
from .models.loaded_models import Bounds, LoadedModels
from .records import owner_of

OPEN_PATHS = frozenset({"/health", STATUS_PATH})
TICK_SECONDS = 0.25


MakeRoutes = Callable[[LoadedModels], Sequence[Route]]


class Page(Protocol):
    """What is served to people at /. ``open_paths`` need no key."""

    open_paths: frozenset[str]

    def routes(self, models: LoadedModels) -> list[Route]: ...


@dataclass(frozen=True)
class ServerSettings:
    """How a server is reached, and what it offers beside answers.

    ``urls``: what the URLs of pictures in requests may reach. ``jobs`` does the work of /v1/batches, whose files lie in
    ``files``, and of responses of the background, which are kept in ``responses``; where one is None there are none.
    ``offer``: the models that requests may have loaded, within ``bounds``. ``run``: the run directory, where
    ``leap ps`` finds the server. ``log_requests``: a line on stderr for every request. ``page``: serve the page for
    people at /. ``more_routes``: functions that return the routes of plugins. ``all_jobs``: show and cancel all jobs
    of the user, not only those that the server has made. ``host_names``: names that clients of this machine call it by,
    besides its own.
    ``ping_interval``: seconds without data until a stream sends a keep-alive, 0 for never.
    """

    address: str = LOOPBACK
    port: int = 0
    api_key: str | None = None
    most_connections: int | None = None
    urls: UrlAccess = UrlAccess.DATA
    jobs: JobQueue | None = None
    files: Path | None = None
    responses: KeptResponses | None = None
    offer: Offer | None = None
    bounds: Bounds | None = None
    run: Path | None = None
    log_requests: bool = False
    page: Page | None = None
    more_routes: Sequence[MakeRoutes] = ()
    all_jobs: bool = False
    host_names: tuple[str, ...] = ()
    ping_interval: float = PING_SECONDS

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        return self.address in LOOPBACK_NAMES


def serve(
    references: Sequence[str],
    settings: ServerSettings,
    *,
    cwd: Path,
    on_listening: Callable[[str], object],
    on_ready: Callable[[list[str]], object],
    **loading: Any,
) -> None:
    """Listen, load the models, which then stay, and answer until SIGINT or SIGTERM.

    ``loading``: see ``LoadRequest``. Raises LeapUnavailableError when it cannot listen there, and what loading raises.
    """
    address = settings.address
    if not settings.is_local and settings.api_key is None:
        raise LeapOptionsError("address", f"{address} can be reached from other machines, so there must be an API key")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="leap: %(message)s")
    if settings.log_requests:
        access_log.setLevel(logging.INFO)
    for reference in references:
        resolve_local(reference, cwd=cwd)  # a name of nothing is reported before the URL
    if settings.offer is not None:
        settings.offer.check()
    load_requests = [LoadRequest(reference, cwd=cwd, keep_alive=0, **loading) for reference in references]
    models = LoadedModels(
        load_as_made,
        try_local,
        load_local_for_embedding,
        offer=settings.offer,
        bounds=settings.bounds,
        queue=loading.get("queue"),
    )
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(models, load_requests, settings, on_listening, on_ready))


def application(models: LoadedModels, settings: ServerSettings, state: ServerState | None = None) -> ASGIApp:
    """The whole application: who may ask, what is answered, and what is measured and logged. ``state``: how ``leap ps``
    asks."""
    counts = None if settings.jobs is None else settings.jobs.counts
    generation = GenerationEndpoints(
        models, Metrics(models, counts), settings.responses, urls=settings.urls, ping_interval=settings.ping_interval
    )
    routes: list[Route] = [] if state is None else [status_route(models, generation.metrics, state.token)]
    if settings.jobs is not None and settings.files is not None:
        made = [] if settings.responses is None or settings.responses.records is None else [settings.responses.records]
        for endpoints in (BatchEndpoints, MessageBatches):
            batches = endpoints(
                models, settings.jobs, settings.files, urls=settings.urls, owner=owner_of(settings.api_key)
            )
            routes += batches.routes()
            made.append(batches.records)
        routes += JobEndpoints(settings.jobs, None if settings.all_jobs else made).routes()
    if settings.jobs is not None and settings.responses is not None:
        generation.stored = StoredResponses(models, settings.responses, settings.jobs, settings.ping_interval)
        generation.conversations.settle = generation.stored.settle
        routes += generation.stored.routes() + generation.conversations.routes()
    routes += OllamaEndpoints(models, generation, urls=settings.urls).routes()
    open_paths = OPEN_PATHS
    if settings.page is not None:
        routes += settings.page.routes(models)
        open_paths |= settings.page.open_paths
    else:
        routes.append(alive_route())
        open_paths |= {"/"}
    for make in settings.more_routes:
        routes += _routes_of_plugin(make, models)
    app = build_app(models, generation, routes)
    guard = AccessCheck(
        app,
        token=settings.api_key,
        any_name=not settings.is_local,
        names=settings.host_names,
        open_paths=open_paths,
        pages=True,
    )
    paths = [route.path for route in app.routes if isinstance(route, Route)]
    return RequestLog(PlainPaths(for_local_pages(guard), paths), generation.metrics)


def _routes_of_plugin(make: MakeRoutes, models: LoadedModels) -> list[Route]:
    """Raises LeapError, whatever the plugin's function raises or returns."""
    try:
        made = list(make(models))
        wrong = [type(each).__name__ for each in made if not isinstance(each, Route)]
        problem = f"{wrong[0]} is not a starlette.routing.Route" if wrong else None
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is None:
        return made
    module = getattr(make, "__module__", type(make).__name__)
    raise LeapError(
        f"the routes of a plugin cannot be made ({module}): {problem}", hint="update or uninstall the plugin"
    )


async def _serve(
    models: LoadedModels,
    load_requests: list[LoadRequest],
    settings: ServerSettings,
    on_listening: Callable[[str], object],
    on_ready: Callable[[list[str]], object],
) -> None:
    address, port = settings.address, settings.port
    try:
        listener = listen(address, port)
    except OSError as error:
        raise LeapUnavailableError(
            f"cannot listen on {address} port {port}: {error.strerror or error}", hint="choose another --port"
        ) from None
    state = ServerState.here(address, listener.getsockname()[1])
    app = application(models, settings, state)
    server = Server.of(app, most_connections=settings.most_connections)
    ending = asyncio.Event()
    on_signals(asyncio.get_running_loop(), ending.set)
    serving = asyncio.create_task(server.serve([listener]))
    host = f"[{address}]" if ":" in address else address
    expiring = asyncio.create_task(_expire(models))
    known = None if settings.run is None else known_server(settings.run, state)
    try:
        on_listening(f"http://{host}:{listener.getsockname()[1]}/v1")
        loading = asyncio.ensure_future(_load(models, load_requests))
        waiting = asyncio.ensure_future(_wait(ending))
        await asyncio.wait([loading, waiting], return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            on_ready(loading.result())
            await waiting
        loading.cancel()
    finally:
        if known is not None:
            known.unlink(missing_ok=True)
        expiring.cancel()
        await models.close()
        server.end()
        await serving


async def _load(models: LoadedModels, load_requests: list[LoadRequest]) -> list[str]:
    return [(await models.load(load_request)).name for load_request in load_requests]


async def _expire(models: LoadedModels) -> None:
    """Let go of models that were not used for as long as they are kept."""
    while True:
        await asyncio.sleep(TICK_SECONDS)
        await models.expire()


async def _wait(event: asyncio.Event) -> list[str]:
    await event.wait()
    return []
