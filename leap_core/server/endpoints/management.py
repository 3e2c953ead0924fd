"""The private host's own endpoints: load, find, unload, count, render, stop, end."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ...conversation.loading_options import LOADING
from ...conversation.option_rows import Host, Whole
from ...errors import LeapError, LeapModelLoadingError, LeapSerializationError
from ...inference.llama.library import current_engine
from ...protocols.openai.requests import read_chat, read_completion
from ...schemas.json_values import error_to_json, number_at
from ...system.processes import resident_bytes
from ..http import AsciiJSON, check_countable, finish, read_json
from ..models.loaded_model import LoadRequest
from ..models.loaded_models import LoadedModels
from .generation import GenerationEndpoints

PROGRESS_SECONDS = 0.5
OF_QUEUE = {"queue": Whole(0), "tool_search": Whole(1)}
"""Fields of a request to load that are no options of a model."""
DETAILS = [name for name, row in LOADING.items() if row.host is Host.DETAIL]


class ManagementEndpoints:
    """What ``leap load``, ``ps``, ``unload`` and the remote runner ask for. ``end`` ends the host."""

    def __init__(self, models: LoadedModels, answering: GenerationEndpoints, end: Callable[[], object]) -> None:
        self._models = models
        self._answering = answering
        self._end = end
        self.requests = 0

    def routes(self) -> list[Route]:
        return [
            Route("/leap/status", self.status),
            Route("/leap/load", self.load, methods=["POST"]),
            Route("/leap/find", self.find, methods=["POST"]),
            Route("/leap/unload", self.unload, methods=["POST"]),
            Route("/leap/tokens", self.tokens, methods=["POST"]),
            Route("/leap/prompt", self.prompt, methods=["POST"]),
            Route("/leap/stop/{generation}", self.stop, methods=["POST"]),
            Route("/leap/end", self.end, methods=["POST"]),
        ]

    async def status(self, _request: Request) -> Response:
        models = [model.to_json() for model in self._models]
        engine = await asyncio.to_thread(current_engine)
        return AsciiJSON({"pid": os.getpid(), "engine": engine.name, "memory": resident_bytes(), "models": models})

    async def load(self, request: Request) -> Response:
        """Lines of JSON: ``{"loading": seconds}`` now and then, at the end ``{"model": …}`` or ``{"error": …}``."""
        load_request = _load_request(await read_json(request))
        return StreamingResponse(self._load(load_request), media_type="application/x-ndjson")

    async def _load(self, load_request: LoadRequest) -> AsyncIterator[bytes]:
        self.requests += 1
        start = time.monotonic()
        loading = asyncio.ensure_future(self._models.load(load_request))
        try:
            while not (await asyncio.wait({loading}, timeout=PROGRESS_SECONDS))[0]:
                yield _line({"loading": round(time.monotonic() - start, 1)})
            yield _line({"model": loading.result().to_json()})
        except LeapError as error:
            yield _line({"error": error_to_json(error)})
        except Exception as error:
            failure = LeapModelLoadingError(f"{load_request.reference}: {type(error).__name__}: {error}")
            yield _line({"error": error_to_json(failure)})
        finally:
            self.requests -= 1

    async def find(self, request: Request) -> Response:
        """The model, and in what it differs from how it is wanted, if in anything."""
        load_request = _load_request(await read_json(request))
        model = await self._models.find(load_request)
        return AsciiJSON({"model": model.to_json(), "differs": model.differs(load_request)})

    async def unload(self, request: Request) -> Response:
        """Let go of one model, or of all with ``{"all": true}``: then none is loaded any more, and the host ends. The
        answer has their names, and whether the host now ends."""
        body = await read_json(request)
        if isinstance(body, dict) and body.get("all") is True:
            models = list(self._models)
            await self._models.close()
        else:
            models = [await self._models.find(_load_request(body))]
            await self._models.unload(models[0])
        ends = not len(self._models)
        if ends:
            self._end()
        return AsciiJSON({"unloaded": [model.name for model in models], "ends": ends})

    async def tokens(self, request: Request) -> Response:
        """How many tokens the prompt of a chat request has."""
        body = await read_json(request)
        add_bos = body.pop("add_bos_token", True) is True if isinstance(body, dict) else True
        chat_request = read_chat(body)
        messages, functions = chat_request.messages, chat_request.functions
        check_countable(*(message.text for message in messages))
        with self._models.named(chat_request.model).in_use(answers=False) as runner:
            count = await finish(
                request, lambda _: runner.get_prompt_tokens_size(messages, add_bos, functions, chat_request.options)
            )
        return AsciiJSON({"tokens": count})

    async def prompt(self, request: Request) -> Response:
        """The prompt that the model would get for a chat or a completion request, and how many tokens it has."""
        body = await read_json(request)
        generation_request = read_completion(body) if isinstance(body, dict) and "prompt" in body else read_chat(body)
        source = generation_request.messages if generation_request.prompt is None else generation_request.prompt
        functions, options = generation_request.functions, generation_request.options
        check_countable(*([source] if isinstance(source, str) else [message.text for message in source]))
        with self._models.named(generation_request.model).in_use(answers=False) as runner:
            rendered = await finish(request, lambda _: runner.render(source, functions, options))
        return AsciiJSON({"text": rendered.text, "tokens": rendered.tokens})

    async def stop(self, request: Request) -> Response:
        """End the answers to a request within a token; their stream continues to its end."""
        running = self._answering.running.get(request.path_params["generation"])
        if running is not None:
            running.stop()
        return AsciiJSON({"running": running is not None})

    async def end(self, _request: Request) -> Response:
        """End the host, if it holds no model and none is being loaded."""
        ends = not len(self._models) and not self.requests
        if ends:
            self._end()
        return AsciiJSON({"ends": ends})


def _load_request(value: object) -> LoadRequest:
    if not isinstance(value, dict) or not isinstance(value.get("reference"), str):
        raise LeapSerializationError("expected a reference to a model", path="reference")
    names = {field.name for field in fields(LoadRequest)}
    request = {name: item for name, item in value.items() if name in names}
    if not isinstance(request.get("cwd"), (str, type(None))):
        raise LeapSerializationError("expected a string", path="cwd")
    if not isinstance(request.get("embeds", False), bool):
        raise LeapSerializationError("expected true or false", path="embeds")
    for name, given in request.items():
        kind = OF_QUEUE.get(name) or (LOADING[name].kind if name in LOADING else None)
        if kind is not None and given is not None:
            kind.read(name, given)
    keep_alive = request.get("keep_alive")
    if keep_alive is not None and not (number_at(keep_alive, "keep_alive") >= 0 and math.isfinite(keep_alive)):
        raise LeapSerializationError("must be 0 seconds or more", path="keep_alive")
    if request.get("cwd") is not None:
        request["cwd"] = Path(request["cwd"])
    _check_details(request.get("details"))
    _check_prompt_cache(request.get("prompt_cache"))
    load_request = LoadRequest(**request)
    load_request.options()
    return load_request


def _check_details(details: object) -> None:
    if details is None:
        return
    if not isinstance(details, dict) or not all(name in DETAILS for name in details):
        raise LeapSerializationError(f"expected an object with any of {', '.join(DETAILS)}", path="details")


def _check_prompt_cache(cache: object) -> None:
    if cache is None:
        return
    if not isinstance(cache, dict) or not isinstance(cache.get("path"), str):
        raise LeapSerializationError("expected an object with the path of a directory", path="prompt_cache")
    if cache.get("bytes") is not None:
        Whole(0).read("prompt_cache.bytes", cache["bytes"])


def _line(value: object) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"
