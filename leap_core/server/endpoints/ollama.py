"""Ollama's /api: what programs that know only that protocol send, answered over the same models and readers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ...conversation.embedding import EmbeddingRunner
from ...conversation.media.fetching import UrlAccess
from ...errors import LeapError, LeapModelLoadingError, LeapModelNotFoundError
from ...inference.gguf.header import GGUFHeader
from ...models.download.downloading import Event, Finished, Notice, Planned, Progress, download_model
from ...models.resolving import LocalModel
from ...protocols.ollama import (
    OllamaEmbedding,
    OllamaReply,
    OllamaRequest,
    error_text,
    model_of,
    read_ollama_chat,
    read_ollama_embedding,
    read_ollama_generate,
)
from ...protocols.openai.fields import AT_ONCE
from ...protocols.openai.requests import GenerationRequest
from ...schemas.json_values import JsonObject
from ..answers import reserved
from ..http import PULLING, AsciiJSON, Refused, check_countable, client_watch, finish, read_body, read_json
from ..models.abilities import abilities_of, check_name, header_of, header_to_list
from ..models.loaded_models import LoadedModels
from .generation import GenerationEndpoints
from .models import offered_models

VERSION = "0.12.6"
"""Of the protocol: clients ask for features by it."""
FOR_EVER = timedelta(days=36500)


class OllamaEndpoints:
    """The endpoints over ``models``, whose answers ``generation`` makes."""

    def __init__(
        self, models: LoadedModels, generation: GenerationEndpoints, *, urls: UrlAccess = UrlAccess.DATA
    ) -> None:
        self._models, self._generation, self._urls = models, generation, urls

    def routes(self) -> list[Route]:
        return [
            Route("/api/chat", self.chat, methods=["POST"]),
            Route("/api/generate", self.generate, methods=["POST"]),
            Route("/api/embed", self.embed, methods=["POST"]),
            Route("/api/embeddings", self.embeddings, methods=["POST"]),
            Route("/api/tags", self.tags),
            Route("/api/ps", self.running),
            Route("/api/show", self.show, methods=["POST"]),
            Route("/api/pull", self.pull, methods=["POST"]),
            Route("/api/version", self.version),
        ]

    async def chat(self, request: Request) -> Response:
        """A conversation's next message."""
        return await self._answer(
            request, await read_body(request, lambda body: read_ollama_chat(body, urls=self._urls))
        )

    async def generate(self, request: Request) -> Response:
        """An answer to one prompt."""
        return await self._answer(
            request, await read_body(request, lambda body: read_ollama_generate(body, urls=self._urls))
        )

    async def _answer(self, request: Request, ollama: OllamaRequest) -> Response:
        reply = OllamaReply(ollama.generation or GenerationRequest(), ollama.model, chat=ollama.chat)
        if ollama.generation is not None:
            return await self._generation.answer(request, [ollama.generation], lambda name, *_: reply.begun(name))
        goes = ollama.keep_alive == AT_ONCE
        with ExitStack() as using:
            if not goes or any(model.answers_to(ollama.model or model.name) for model in self._models):
                wish = ollama.keep_alive
                model = await reserved(self._models, ollama.model, request, using, keep_alive=wish, any_kind=True)
                reply.begun(ollama.model or model.name)
        return AsciiJSON(reply.without_answer("unload" if goes else "load"))

    async def embed(self, request: Request) -> Response:
        """A vector of unit length for each text."""
        return await self._embed(request, await read_body(request, read_ollama_embedding))

    async def embeddings(self, request: Request) -> Response:
        """The older form, for one text."""
        return await self._embed(
            request, await read_body(request, lambda body: read_ollama_embedding(body, single=True))
        )

    async def _embed(self, request: Request, asked: OllamaEmbedding) -> Response:
        begun = time.monotonic()

        def work(runner: EmbeddingRunner, stop: threading.Event) -> tuple[list[list[float]], int]:
            check_countable(*asked.texts)
            if not asked.texts:
                return [], 0
            too_long = "cut" if asked.cut else "refuse"
            rows = runner.embed(asked.texts, dimensions=asked.dimensions, too_long=too_long, cancelled=stop)
            counts = runner.count_tokens(asked.texts)
            return rows.tolist(), sum(min(count, runner.most_tokens) for count in counts)

        with ExitStack() as using:
            model = await reserved(self._models, asked.model, request, using, embeds=True, keep_alive=asked.keep_alive)
            runner = using.enter_context(model.embedder_in_use())
            rows, count = await finish(request, lambda stop: work(runner, stop))
        if asked.single:
            return AsciiJSON({"embedding": rows[0]})
        duration = int((time.monotonic() - begun) * 1e9)
        body = {"model": asked.model, "embeddings": rows, "total_duration": duration}
        return AsciiJSON({**body, "load_duration": 0, "prompt_eval_count": count})

    async def tags(self, _request: Request) -> Response:
        """All models, loaded or not."""
        named = {model.name: model.local for model in self._models} | await offered_models(self._models)
        listed = await asyncio.to_thread(lambda: [_listed(local, name) for name, local in named.items()])
        return AsciiJSON({"models": listed})

    async def running(self, _request: Request) -> Response:
        """The loaded models."""
        listed = []
        for model in self._models:
            if model.state == "ready":
                seconds = model.expires_in
                expires = datetime.now(timezone.utc) + (FOR_EVER if seconds is None else timedelta(seconds=seconds))
                entry = await asyncio.to_thread(_listed, model.local, model.name)
                status = model.to_json()
                entry |= {"expires_at": _written(expires)}
                entry |= {"size": model.takes or status["size"], "size_vram": status["gpu_memory"]}
                entry |= {"context_length": status["context_size"]}
                listed.append(entry)
        return AsciiJSON({"models": listed})

    async def show(self, request: Request) -> Response:
        """What a model is."""

        def read(body: Any) -> str:
            fields = body if isinstance(body, dict) else {}
            return model_of(fields.get("model") or fields.get("name"))

        name = await read_body(request, read)
        local = (await self._models.described(name)).local
        return AsciiJSON(await asyncio.to_thread(_shown, local))

    async def version(self, _request: Request) -> Response:
        """The protocol's version."""
        return AsciiJSON({"version": VERSION})

    async def pull(self, request: Request) -> Response:
        """Fetch a model into the store, with its progress."""
        body = await read_json(request)
        fields = body if isinstance(body, dict) else {}
        name = model_of(fields.get("model") or fields.get("name"))
        check_name(name)
        lines = _pulled(name)
        if fields.get("stream", True) is not False:
            return StreamingResponse(_following(request, lines), media_type=OllamaReply.media_type)
        last: JsonObject = {}
        async for last in lines:
            if "error" in last:
                raise Refused(500, "download_failed", LeapModelLoadingError(last["error"]), kind="server_error")
        return AsciiJSON(last)


def alive_route() -> Route:
    """What clients ask for first, to see whether anybody is there."""

    async def alive(request: Request) -> Response:
        said = "Ollama is running"  # the words that programs look for
        if "text/html" in request.headers.get("accept", ""):
            said += (
                "\n\nThis is leap serve. The API is at /v1, /health says its state; leap serve --web-ui has a page.\n"
            )
        return PlainTextResponse(said)

    return Route("/", alive)


async def _pulled(name: str) -> AsyncIterator[JsonObject]:
    """Ollama's lines about a download. It is stopped when nobody reads on, and resumes there the next time."""
    loop, heard, stop = asyncio.get_running_loop(), asyncio.Queue[JsonObject | None](), threading.Event()

    def tell(event: Event) -> None:
        line: JsonObject | None = None
        if isinstance(event, Planned):
            line = {"status": "pulling manifest"}
        elif isinstance(event, Progress):
            line = {"status": f"pulling {event.file}", "digest": event.file, "total": event.total}
            line["completed"] = event.bytes
        elif isinstance(event, Notice):
            line = {"status": event.message}
        elif isinstance(event, Finished):
            line = {"status": "verifying sha256 digest"}
        if line is not None:
            loop.call_soon_threadsafe(heard.put_nowait, line)

    work = asyncio.ensure_future(PULLING.run(download_model, name, on_event=tell, stop=stop))
    work.add_done_callback(lambda _: heard.put_nowait(None))
    try:
        while (line := await heard.get()) is not None:
            yield line
        work.result()
        yield {"status": "success"}
    except LeapError as error:
        yield error_text(error)
    finally:
        stop.set()


async def _following(request: Request, lines: AsyncIterator[JsonObject]) -> AsyncIterator[bytes]:
    left = asyncio.Event()
    with client_watch(request.receive, left.set):
        async for line in lines:
            if left.is_set():
                return
            yield json.dumps(line).encode("ascii") + b"\n"


def _listed(local: LocalModel, name: str) -> JsonObject:
    try:
        status = local.path.stat()
        size, changed = status.st_size, datetime.fromtimestamp(status.st_mtime, timezone.utc)
    except OSError:
        size, changed = 0, datetime.fromtimestamp(0, timezone.utc)
    entry: JsonObject = {"name": name, "model": name, "modified_at": _written(changed)}
    return {**entry, "size": size, "digest": "", "details": _details(header_to_list(local))}


def _details(header: GGUFHeader | None) -> JsonObject:
    family = header.architecture if header else ""
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": _rounded(header.parameter_count) if header else "",
        "quantization_level": header.quantization if header else "",
    }


def _shown(local: LocalModel) -> JsonObject:
    header = header_of(local.path)
    if header is None:
        raise LeapModelNotFoundError(f"{local.model_id} cannot be read")
    template = local.chat_template or header.chat_template or ""
    sampling = {name: value for name, value in vars(local.sampling).items() if value is not None}
    info = {key: value for key, value in header.metadata.items() if isinstance(value, (str, int, float))}
    info |= {"general.parameter_count": header.parameter_count}
    return {
        "modelfile": "",
        "parameters": "\n".join(f"{name} {value}" for name, value in sampling.items()),
        "template": template,
        "license": str(header.metadata.get("general.license") or ""),
        "details": _details(header),
        "model_info": info,
        "capabilities": abilities_of(local),
        "modified_at": _listed(local, local.model_id)["modified_at"],
    }


def _rounded(count: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def _written(time_: datetime) -> str:
    return time_.isoformat().replace("+00:00", "Z")
