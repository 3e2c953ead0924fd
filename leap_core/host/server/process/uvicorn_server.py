"""uvicorn around the application, in the main thread of a process that does nothing else."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from .slow_clients import BoundedProtocol

SHUTDOWN_SECONDS = 5
BACKLOG = 512
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
        """Take no more requests, and return from ``serve`` when those that run are answered."""
        self.should_exit = True


def connections_allowed() -> int:
    """Connections that the limit on open files leaves room for."""
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


def on_signals(loop: asyncio.AbstractEventLoop, act: Callable[[], object]) -> None:
    """Let SIGTERM and SIGINT call ``act`` on the loop, where SIGINT is not ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            continue
        try:
            loop.add_signal_handler(number, act)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(act))
