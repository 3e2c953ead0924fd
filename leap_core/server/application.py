"""The HTTP application, its routes and errors, and uvicorn around it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..errors import LeapError, LeapGenerationError, LeapUnavailableError, of_system_limit
from ..system.features import own_parts
from .access import BoundedProtocol
from .endpoints.audio import SpeechEndpoint, transcriptions
from .endpoints.embeddings import EmbeddingEndpoints
from .endpoints.generation import GenerationEndpoints
from .endpoints.models import ModelEndpoints
from .http import Refused, answer, body_of, stopping
from .models.loaded_models import LoadedModels

log = logging.getLogger("leap.host")
FEATURES = {"decisions": "leap_core.server.endpoints.decisions:routes"}
"""Functions of the models and the endpoints of generation that return routes."""


def build_app(
    models: LoadedModels, generation: GenerationEndpoints, more_routes: list[Route] | None = None
) -> Starlette:
    """The endpoints of OpenAI's and Anthropic's protocols over these models, and further routes."""
    about = ModelEndpoints(models, generation.metrics, [route.path for route in more_routes or ()])
    routes = [
        Route("/health", about.health),
        Route("/props", about.props),
        Route("/metrics", about.metrics),
        Route("/tokenize", about.tokenize, methods=["POST"]),
        Route("/detokenize", about.detokenize, methods=["POST"]),
        Route("/tokenizer_info", about.tokenizer_info),
        Route("/v1/models", about.list),
        Route("/v1/models/{model:path}", about.one),
        Route("/v1/chat/completions", generation.chat, methods=["POST"]),
        Route("/v1/completions", generation.completion, methods=["POST"]),
        Route("/v1/audio/speech", SpeechEndpoint(models).speech, methods=["POST"]),
        Route("/v1/responses", generation.responses, methods=["POST"]),
        Route("/v1/responses/compact", generation.compact, methods=["POST"]),
        Route("/v1/responses/input_tokens", generation.input_tokens, methods=["POST"]),
        Route("/v1/messages", generation.messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", generation.count_tokens, methods=["POST"]),
        Route("/v1/audio/transcriptions", transcriptions(models), methods=["POST"]),
        *(route for make in own_parts(FEATURES).values() for route in make(models, generation)),
        *EmbeddingEndpoints(models).routes(),
        *(more_routes or ()),
    ]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.state.models = models
    return app


async def _failed(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, (LeapError, Refused))
    models = getattr(request.app.state, "models", None)
    if models is not None and models.is_closing and body_of(failure)[0] == 500:  # its model was unloaded
        failure = stopping()
    return answer(failure, request.url.path)


async def _no_such_thing(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    if failure.status_code == 405:
        message, code = f"{request.url.path} does not take {request.method}", "method_not_allowed"
    else:
        message, code = f"there is no {request.url.path}{_beside(request)}", "not_found"
    error = LeapUnavailableError(message, hint="see docs/openai-compatible-api.md for the endpoints")
    return answer(Refused(failure.status_code, code, error), request.url.path)


def _beside(request: Request) -> str:
    """The endpoints beside a path that does not exist, for the message about it."""
    place, _, name = request.url.path.rpartition("/")
    paths = [route.path for route in request.app.routes if isinstance(route, Route)]
    beside = [path for path in paths if name and path.rpartition("/")[0] == place and "{" not in path]
    return f"; there are {', '.join(beside)}" if place.count("/") > 1 and beside else ""


async def _broken(request: Request, failure: Exception) -> Response:
    if (refused := of_system_limit(failure)) is not None:
        return answer(refused, request.url.path)
    log.error("%s %s failed", request.method, request.url.path, exc_info=failure)
    error = LeapGenerationError(f"{type(failure).__name__}: {failure}", hint="this is a bug in leap")
    return answer(error, request.url.path)


HANDLERS: dict[Any, Any] = {LeapError: _failed, Refused: _failed, HTTPException: _no_such_thing, Exception: _broken}
"""What becomes of an exception in an endpoint."""


SHUTDOWN_SECONDS = 5
REFUSAL_SECONDS = 0.5
"""For the requests that are refused then."""
BACKLOG = 512
TICK_SECONDS = 1.0
MOST_CONNECTIONS = 1000
OTHER_FILES = 128
"""Open files that are no connections: models, logs, locks, libraries."""


class Server(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @staticmethod
    def of(app: ASGIApp, *, most_connections: int | None = None, **seconds: float) -> Server:
        """``most_connections``: as many as open files allow when None. ``seconds``: other timeouts than the usual."""
        limit = most_connections or connections_allowed()
        return Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=BoundedProtocol.with_limit(limit, **seconds),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
        )

    def end(self) -> None:
        """Take no more requests, and return from ``serve`` when those that run are answered. In the server's loop."""
        self.should_exit = True
        if self._ends is not None:
            self._ends.set()

    _ends: asyncio.Event | None = None

    async def main_loop(self) -> None:
        """uvicorn's, woken by ``end`` and not ten times a second."""
        self._ends = asyncio.Event()
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 10  # every tenth renews the header with the date
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ends.wait(), TICK_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, without its pause of a tenth of a second; there is no lifespan to end."""
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0.001)  # those that are idle are closed by then
        try:
            await asyncio.wait_for(self._wait_tasks_to_complete(), self.config.timeout_graceful_shutdown)
        except asyncio.TimeoutError:
            tasks = set(self.server_state.tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=REFUSAL_SECONDS)


def connections_allowed() -> int:
    """Connections that the limit on open files leaves space for."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(8, min(MOST_CONNECTIONS, files - OTHER_FILES))


def listen(address: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio lets small writes go at once (TCP_NODELAY) only where a socket names its protocol
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if hasattr(socket, "SO_REUSEADDR") and not hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


END_SECONDS = 8.0
"""From the signal to the end of the process, whatever still runs in it."""


def on_signals(loop: asyncio.AbstractEventLoop, act: Callable[[], object]) -> None:
    """Let SIGTERM, SIGINT, and SIGHUP of a terminal that is closed call ``act`` on the loop, where they are not ignored
    (nohup). The process ends within END_SECONDS then: threads that load a model or compute cannot be stopped
    otherwise."""

    def end() -> None:
        timer = threading.Timer(END_SECONDS, os._exit, [0])
        timer.daemon = True
        timer.start()
        act()

    numbers = [signal.SIGTERM, signal.SIGINT]
    if sys.platform != "win32":
        numbers.append(signal.SIGHUP)
    for number in numbers:
        if signal.getsignal(number) is signal.SIG_IGN:
            continue
        try:
            loop.add_signal_handler(number, end)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(end))
