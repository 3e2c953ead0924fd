"""The endpoints that describe models: health, what is loaded, what it can do, its tokens, and measurements."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...conversation.runner import ModelRunner
from ...errors import LeapSerializationError, LeapUnavailableError
from ...models.resolving import LocalModel
from ...protocols.host.served_models import STATUS_PATH
from ...schemas.json_values import list_at, text_at
from ..answers import reserved
from ..http import AsciiJSON, Refused, check_countable, finish, read_json
from ..metrics import Metrics
from ..models.abilities import abilities_of, header_of, kind_of
from ..models.loaded_model import LoadedModel, size_of
from ..models.loaded_models import LoadedModels

PRIVATE = ("key", "path", "wish")
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/audio/transcriptions",
    "/v1/audio/speech",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/decisions",
    "/v1/systemone",
    "/v1/models",
    "/tokenize",
    "/detokenize",
    "/tokenizer_info",
    "/metrics",
    "/props",
    "/health",
)


class ModelEndpoints:
    """What can be asked of the models beside answers."""

    def __init__(self, models: LoadedModels, metrics: Metrics, more_paths: Sequence[str] = ()) -> None:
        self._models, self._metrics, self._more_paths = models, metrics, more_paths

    async def list(self, _request: Request) -> Response:
        """The loaded models, and each with each of its adapters; then those that can be loaded on demand. In OpenAI's
        form, and beside it in System One's, whose clients read ``models``."""
        names = [(model, name) for model in self._models for name in ("", *model.adapters)]
        ids = [f"{model.name}+{name}" if name else model.name for model, name in names]
        listed = await asyncio.to_thread(lambda: [_described(each[0], id) for each, id in zip(names, ids, strict=True)])
        away = await offered_models(self._models)
        listed += await asyncio.to_thread(lambda: [_to_be_loaded(id, local) for id, local in away.items()])
        ids = [each["id"] for each in listed]
        page = {"has_more": False, "first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
        return AsciiJSON(
            {"object": "list", "data": listed, "models": [_of_system_one(each) for each in listed], **page}
        )

    async def one(self, request: Request) -> Response:
        """One model."""
        name = request.path_params["model"]
        model = await self._models.described(name)
        if model in list(self._models):
            name = name if model.named_adapters(name) else model.name
            return AsciiJSON(await asyncio.to_thread(_described, model, name))
        away = {local.path: id for id, local in (await offered_models(self._models)).items()}
        id = away.get(model.local.path, model.name)
        return AsciiJSON(await asyncio.to_thread(_to_be_loaded, id, model.local))

    async def health(self, _request: Request) -> Response:
        """Whether requests are answered, and what the engine of each model does."""
        served = self._models.served
        loading = any(model.state == "loading" for model in served)
        loading = loading or not (served or self._models.offer)
        doing = {model.name: each for model in self._models if (each := model.activity) is not None}
        stalled = any(each.is_stalled for each in doing.values())
        status = "loading" if loading else "stalled" if stalled else "ok"
        activity = {name: asdict(each) for name, each in doing.items()}
        state = {"status": status, "models": [model.name for model in self._models], "activity": activity}
        return AsciiJSON(state, 503 if loading or stalled else 200)

    async def metrics(self, _request: Request) -> Response:
        """Measurements in Prometheus' format."""
        return Response(await asyncio.to_thread(self._metrics.text), media_type=PROMETHEUS)

    async def props(self, request: Request) -> Response:
        """What the loaded models can do, or with ``?model=`` that one, also before it is loaded."""
        paths = [*ENDPOINTS, *dict.fromkeys(self._more_paths)]
        name = request.query_params.get("model")
        models = list(self._models) if name is None else [await self._models.described(name)]
        abilities = await asyncio.to_thread(lambda: [_abilities(model) for model in models])
        value = {"models": abilities, "endpoints": paths, "jobs": "/leap/jobs" in paths}
        return AsciiJSON({**value, **(_of_llama_server(abilities[0]) if len(abilities) == 1 else {})})

    async def tokenize(self, request: Request) -> Response:
        """``{"content": text, "parse_special": bool}`` as llama.cpp's server has it, or vLLM's ``{"prompt": text,
        "add_special_tokens": bool}``, in which special tokens are read -> ``{"tokens": [...], "count": n}``."""
        body = await _object(request)
        vllm = "prompt" in body
        text = text_at(body.get("prompt"), "prompt") if vllm else text_at(body.get("content"), "content")
        check_countable(text)
        special = vllm or body.get("parse_special", False) is True
        opened = body.get("add_special_tokens", vllm) is True

        def tokens_of(runner: ModelRunner) -> dict[str, Any]:
            tokens = runner.tokenize(text, parse_special=special)
            info = runner.tokenizer_info() if opened else None
            if info is not None and info.adds_bos:
                bos = runner.tokenize(info.bos_token, parse_special=True)
                tokens = tokens if tokens[:1] == bos else [*bos, *tokens]
            return {"tokens": tokens, "count": len(tokens), "max_model_len": runner.context_size}

        async with self._runner(request, _model_of(body)) as runner:
            return await finish(request, lambda _: AsciiJSON(tokens_of(runner)))

    async def detokenize(self, request: Request) -> Response:
        """``{"tokens": [...]}`` -> ``{"content": text, "prompt": text}``: llama.cpp's name and vLLM's."""
        body = await _object(request)
        tokens = list_at(body.get("tokens"), "tokens")
        for n, token in enumerate(tokens):
            if not isinstance(token, int) or isinstance(token, bool):
                raise LeapSerializationError("expected a token id", path=f"tokens[{n}]")
        async with self._runner(request, _model_of(body)) as runner:
            text = await finish(request, lambda _: runner.detokenize(tokens))
        return AsciiJSON({"content": text, "prompt": text})

    async def tokenizer_info(self, request: Request) -> Response:
        """The tokens that open and close a text, and the chat template, as vLLM gives them; ``?model=`` of several."""
        async with self._runner(request, request.query_params.get("model")) as runner:
            info = await asyncio.to_thread(runner.tokenizer_info)
        return AsciiJSON(
            {
                "tokenizer_class": "leap",
                "bos_token": info.bos_token or None,
                "eos_token": info.eos_token or None,
                "pad_token": None,
                "add_bos_token": info.adds_bos,
                "model_max_length": runner.context_size,
                "chat_template": info.chat_template,
            }
        )

    @asynccontextmanager
    async def _runner(self, request: Request, name: str | None) -> AsyncIterator[ModelRunner]:
        with ExitStack() as using:
            model = await reserved(self._models, name, request, using)
            yield using.enter_context(model.in_use(answers=False))


async def offered_models(models: LoadedModels) -> dict[str, LocalModel]:
    """The models that are not loaded and would be for a request, by the ids that ask for them: their names, or where
    another one has that already, their references."""
    if models.offer is None:
        return {}
    loaded, taken = {model.local.path for model in models}, {model.name.lower() for model in models}
    found: dict[str, LocalModel] = {}
    for reference, local in (await asyncio.to_thread(models.offer.models)).items():
        id = next((each for each in (local.model_id, reference) if each.lower() not in taken), None)
        if id is not None and local.path not in loaded:
            taken.add(id.lower())
            found[id] = local
    return found


def status_route(models: LoadedModels, metrics: Metrics, token: str) -> Route:
    """What ``leap ps``, and with ``?requests`` ``leap why``, ask a server in the foreground; ``token`` is known to the
    server's own user."""

    async def status(request: Request) -> Response:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), token.encode()):
            error = LeapUnavailableError("only leap ps of the server's own user asks this")
            raise Refused(403, "permission_denied", error, kind="permission_error")
        recent = {"requests": list(metrics.recent)} if "requests" in request.query_params else {}
        return AsciiJSON({"models": [model.to_json() for model in models], **recent})

    return Route(STATUS_PATH, status)


def _described(model: LoadedModel, name: str) -> dict[str, Any]:
    details = {key: value for key, value in model.to_json().items() if key not in PRIVATE}
    return _entry(name, model.created, model.state == "ready", {**details, **_kind(model.local)})


def _to_be_loaded(id: str, local: LocalModel) -> dict[str, Any]:
    details = {"model": local.model_id, "state": "unloaded", "size": size_of(local.path), **_kind(local)}
    try:
        changed = int(local.path.stat().st_mtime)
    except OSError:
        changed = 0
    return _entry(id, changed, False, details)


def _kind(local: LocalModel) -> dict[str, Any]:
    if local.owner is not None:  # see header_to_list
        able = ["completion", *(["vision"] if local.kind == "vision" else [])]
        return {"kind": local.kind, "capabilities": able, "owner": local.owner, "trained_context": None}
    header = header_of(local.path)
    trained = None if header is None else header.context_length
    return {"kind": kind_of(local), "capabilities": abilities_of(local), "trained_context": trained}


def _entry(name: str, created: int, loaded: bool, details: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "type": "model",  # the list is Anthropic's too
        "display_name": name,
        "created": created,
        "created_at": datetime.fromtimestamp(created, timezone.utc).isoformat().replace("+00:00", "Z"),
        "owned_by": "leap",
        "loaded": loaded,
        **_context(details.get("context_size"), details.get("trained_context")),
        **_modalities(details["capabilities"]),
        "leap": details,
    }


def _context(size: int | None, trained: int | None) -> dict[str, Any]:
    """The tokens of a context by the names that clients of OpenRouter, vLLM and llama.cpp look for: of one that is
    loaded, else those that the model was trained for."""
    meta = {name: value for name, value in (("n_ctx", size), ("n_ctx_train", trained)) if value is not None}
    tokens = size or trained
    return {"meta": meta} | ({} if tokens is None else {"context_length": tokens, "max_model_len": tokens})


def _modalities(abilities: Sequence[str]) -> dict[str, Any]:
    """What goes in and comes out by OpenRouter's names, and whether the model reasons."""
    inputs = [{"vision": "image"}.get(name, name) for name in ("vision", "audio") if name in abilities]
    outputs = ["text", *(["audio"] if "speech" in abilities else [])]
    able = {"input_modalities": ["text", *inputs], "output_modalities": outputs}
    return {"architecture": able, "reasoning": "thinking" in abilities}


def _of_system_one(entry: dict[str, Any]) -> dict[str, str]:
    """A model as typesafe-sdk 0.7.5 reads it. leap knows no release: the day is that of ``created``."""
    details = entry["leap"]
    able = ", ".join(map(str, details.get("capabilities") or ()))
    description = f"{details.get('kind')} model on this machine" + (f": {able}" if able else "")
    return {"name": entry["id"], "description": description, "release_date": entry["created_at"][:10]}


def _of_llama_server(about: dict[str, Any]) -> dict[str, Any]:
    """A model's context and senses where clients of llama.cpp's server look for them."""
    able = about["capabilities"]
    return {
        "model_alias": about["model"],
        "default_generation_settings": {"n_ctx": about["context_size"] or about["trained_context"]},
        "modalities": {"vision": "vision" in able, "audio": "audio" in able},
        "total_slots": about["slots"],
    }


def _abilities(model: LoadedModel) -> dict[str, Any]:
    details = _described(model, model.name)["leap"]
    return {
        **details,
        "constraints": ["json_schema", "regex", "grammar", "choices"],
        "function_call_parser": model.local.parser_name,
        "sampling": {name: value for name, value in vars(model.local.sampling).items() if value is not None},
        "queue": model.queue,
        "tokens_generated": model.throughput.total,
    }


def _model_of(body: dict[str, Any]) -> str | None:
    model = body.get("model")
    return None if model is None else text_at(model, "model")


async def _object(request: Request) -> dict[str, Any]:
    body = await read_json(request)
    if not isinstance(body, dict):
        raise LeapSerializationError("expected a JSON object", path="body")
    return body
