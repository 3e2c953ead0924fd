"""A server in this process, over real sockets, whose models are scripted."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from leap_core import ModelLoadingOptions, ModelRunner
from leap_core.models.resolving import LocalModel
from leap_core.protocols.host.host_runner import RemoteModelRunner
from leap_core.protocols.host.host_state import HostFiles, HostState
from leap_core.protocols.host.lookup import runner_of
from leap_core.protocols.host.model_host import ModelHost
from leap_core.server.access import AccessCheck, for_local_pages
from leap_core.server.application import Server, build_app, listen
from leap_core.server.endpoints.generation import GenerationEndpoints
from leap_core.server.endpoints.management import ManagementEndpoints
from leap_core.server.endpoints.responses import KeptResponses
from leap_core.server.metrics import RequestLog
from leap_core.server.models.loaded_model import LoadRequest
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.server.page.page_sessions import PageServices
from leap_core.server.page.routes import page_routes
from leap_core.system.directories import Directories
from leap_core.testing import ScriptedModelRunner

from ..end_to_end.browser import open_browser

if TYPE_CHECKING:
    import openai

PROMPTLY = 100.0
INSTANCE = "this-server"


def settled(is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so promptly."""
    deadline = time.monotonic() + PROMPTLY
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@dataclass
class Scripted:
    """A running server. ``runner`` is its one model, named ``builtin``."""

    port: int
    runner: ScriptedModelRunner
    models: LoadedModels
    token: str | None
    instance: str = ""
    open: ExitStack = field(default_factory=ExitStack)

    @property
    def host(self) -> ModelHost:
        """The server as leap's own client sees it."""
        files = HostFiles.of(Directories.from_environment())
        return ModelHost(files, HostState(os.getpid(), None, self.port, self.instance), self.token or "")

    @property
    def warm(self) -> RemoteModelRunner:
        """Its model as a runner."""
        return runner_of(self.host, next(iter(self.models)).to_json())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def client(self, **given: Any) -> openai.OpenAI:
        import openai  # takes 0.8 s

        settings: dict[str, Any] = {"base_url": self.url, "api_key": self.token or "none", "max_retries": 0} | given
        return self.open.enter_context(openai.OpenAI(**settings))

    def ask(self, text: str = "Hello?", **given: Any) -> Any:
        """One chat completion through the official client."""
        asked = {"model": "builtin", "messages": [{"role": "user", "content": text}]} | given
        return self.client().chat.completions.create(**asked)


@pytest.fixture
def serve() -> Iterator[Callable[..., Scripted]]:
    """Start a server whose model plays these scripts."""
    with ExitStack() as running:

        def start(
            *scripts: Any,
            token: str | None = "secret",
            pages: bool = False,
            bounds: dict[str, Any] | None = None,
            private: bool = False,
            kept: KeptResponses | None = None,
            page: PageServices | None = None,
            **loading: Any,
        ) -> Scripted:
            made = _Running(scripts, token, pages, loading, bounds or {}, private, kept)
            made.page = page
            return running.enter_context(made)

        yield start


class _Running:
    def __init__(
        self,
        scripts: Any,
        token: str | None,
        pages: bool,
        loading: dict[str, Any],
        bounds: dict[str, Any],
        private: bool,
        kept: KeptResponses | None,
    ) -> None:
        self._bounds, self._private, self._kept = bounds, private, kept
        self.page: PageServices | None = None
        self._runner = loading.pop("runner", None) or ScriptedModelRunner(
            *scripts,
            model_id="builtin",
            context_size=loading.pop("context_size", 4096),
            speaks=loading.pop("speaks", False),
        )
        self._token, self._pages, self._loading = token, pages, loading
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._ready = threading.Event()
        self._made: Scripted | None = None

    def __enter__(self) -> Scripted:
        self._thread.start()
        assert self._ready.wait(PROMPTLY) and self._made
        return self._made

    def __exit__(self, *_: object) -> None:
        assert self._made
        self._made.open.close()
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(PROMPTLY)
        assert not self._thread.is_alive()

    def _load(self, _model: LocalModel, _options: ModelLoadingOptions) -> ModelRunner:
        return self._runner

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        models = LoadedModels(self._load)
        listener = listen("127.0.0.1", 0)
        endpoints = GenerationEndpoints(models, kept=self._kept, own_clients=self._private)
        routes = ManagementEndpoints(models, endpoints, self._ending.set).routes() if self._private else []
        routes += page_routes(self.page, models) if self._pages else []
        app = build_app(models, endpoints, routes)
        guard = AccessCheck(app, token=self._token, pages=self._pages, stamp=INSTANCE)
        logged = RequestLog(for_local_pages(guard) if self._pages else guard, endpoints.metrics)
        server = Server.of(logged, **self._bounds)
        serving = asyncio.create_task(server.serve([listener]))
        await models.load(LoadRequest("builtin", **self._loading))
        self._made = Scripted(listener.getsockname()[1], self._runner, models, self._token, INSTANCE)
        self._ready.set()
        await self._ending.wait()
        await models.close()
        server.end()
        await serving


@pytest.fixture(scope="session")
def window():
    with open_browser() as opened:
        yield opened


@pytest.fixture
def page(window, serve):
    """The page of a server whose model plays these scripts; every test has an address, and so a storage, of its own."""

    def opened(*scripts, **given):
        server = serve(*scripts, token=None, pages=True, **given)
        window.open(f"http://127.0.0.1:{server.port}/")
        window.wait(lambda: window.text("#state") == "ready" and window.text("#model") == "builtin")
        return window, server

    yield opened
    window.open("about:blank")  # it asks no server that is gone
