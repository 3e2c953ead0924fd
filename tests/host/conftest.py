"""A server in this process, over real sockets, whose models are scripted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from leap_core import ModelLoadingOptions, ModelRunner
from leap_core.host.server.access import AccessCheck, for_local_pages
from leap_core.host.server.application import build_app
from leap_core.host.server.generation_endpoints import GenerationEndpoints
from leap_core.host.server.loaded_models import LoadedModels, LoadRequest
from leap_core.host.server.uvicorn_server import Server, listen
from leap_core.models.references.resolving import LocalModel
from leap_core.testing import ScriptedModelRunner

PROMPTLY = 20.0


@dataclass
class Scripted:
    """A running server. ``runner`` is its one model, named ``builtin``."""

    port: int
    runner: ScriptedModelRunner
    models: LoadedModels
    token: str | None
    open: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def client(self, **given: Any) -> openai.OpenAI:
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

        def start(*scripts: Any, token: str | None = "secret", pages: bool = False, **wish: Any) -> Scripted:
            return running.enter_context(_Running(scripts, token, pages, wish))

        yield start


class _Running:
    def __init__(self, scripts: Any, token: str | None, pages: bool, wish: dict[str, Any]) -> None:
        self._runner = ScriptedModelRunner(*scripts, model_id="builtin", context_size=wish.pop("context_size", 4096))
        self._token, self._pages, self._wish = token, pages, wish
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
        app = build_app(models, GenerationEndpoints(models))
        guard = AccessCheck(app, token=self._token, pages=self._pages)
        server = Server.of(for_local_pages(guard) if self._pages else guard)
        serving = asyncio.create_task(server.serve([listener]))
        await models.load(LoadRequest("builtin", **self._wish))
        self._made = Scripted(listener.getsockname()[1], self._runner, models, self._token)
        self._ready.set()
        await self._ending.wait()
        await models.close()
        server.end()
        await serving
