"""The models that a host holds: loading, finding, sharing and letting go of them. All on the event loop; what takes
long happens in threads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...background.process_identity import resident_bytes
from ...errors import LeapError, LeapModelLoadingError, LeapModelNotFoundError, LeapOptionsError, LeapUnavailableError
from ...models.references.resolving import LocalModel, resolve_local
from ...models.store import hold
from ...options import ModelLoadingOptions
from ...options.adapters import LoraAdapter
from ...runner.contract import ModelRunner
from ...runner.embedding import EmbeddingRunner
from .http_errors import Refused, queue_full, still_loading
from .load_request import LoadRequest
from .throughput import Throughput

JsonObject = dict[str, Any]
Runner = ModelRunner | EmbeddingRunner
Loader = Callable[[LocalModel, ModelLoadingOptions], Runner]
Trial = Callable[[LocalModel, ModelLoadingOptions], object]
"""Finds out, without loading, whether a model can be loaded; raises LeapModelLoadingError."""
log = logging.getLogger("leap.host")

DEFAULT_KEEP_ALIVE = 600.0
DEFAULT_QUEUE = 256


class LoadedModel:
    """One model. ``name`` is what clients call it; ``key`` is its own for this life of the host."""

    def __init__(self, name: str, local: LocalModel, load_request: LoadRequest) -> None:
        self.key = secrets.token_hex(8)
        self.name = name
        self.local = local
        self.load_request = load_request
        self.references: set[str] = set()
        self.options = load_request.options()
        self.version = self._version()
        self.queue = DEFAULT_QUEUE if load_request.queue is None else load_request.queue
        self.keep_alive = DEFAULT_KEEP_ALIVE if load_request.keep_alive is None else load_request.keep_alive
        self.runner: Runner | None = None
        self.loading: asyncio.Task[None] | None = None
        self.unloading: asyncio.Task[None] | None = None
        self.throughput = Throughput()
        self.active = 0
        self.last_used = time.monotonic()
        self.created = int(time.time())
        self.memory: int | None = None
        self.held = ExitStack()

    @property
    def state(self) -> str:
        """loading, ready, or unloading."""
        if self.runner is not None:
            return "ready"
        return "loading" if self.loading is not None and not self.loading.done() else "unloading"

    @property
    def expires_in(self) -> float | None:
        """Seconds until it is unloaded, None while it is in use or stays until it is told to go."""
        if self.keep_alive == 0 or self.active or self.runner is None:
            return None
        return max(0.0, self.last_used + self.keep_alive - time.monotonic())

    def differs(self, load_request: LoadRequest) -> str | None:
        """In what this model is not as wished, if in anything."""
        if self._version() != self.version:
            return "an older version of its file"
        context = _size_of_context(self.runner) if self.runner else self.options.context_size
        if load_request.context_size is not None and context is not None and load_request.context_size != context:
            return f"a context of {context} tokens, not {load_request.context_size}"
        for name, label in (("cpu_threads", "threads"), ("n_gpu_layers", "GPU layers"), ("slots", "slots")):
            requested, present = getattr(load_request, name), getattr(self.options, name)
            if requested is not None and requested != present:
                return f"{'its own choice of' if present is None else present} {label}, not {requested}"
        if load_request.chat_template is not None and load_request.chat_template != self.options.chat_template:
            return "another chat template"
        wished = load_request.options()
        for name in load_request.details or ():
            if getattr(wished, name) != getattr(self.options, name):
                return f"another {name}" if name != "adapters" else "other adapters"
        return None

    def _version(self) -> list[object]:
        adapters = self.options.adapters or self.local.adapters
        return [_version_of(path) for path in (self.local.path, *(adapter.path for adapter in adapters))]

    @property
    def adapters(self) -> dict[str, LoraAdapter]:
        """What the model was loaded with, by the names that a request puts behind a plus: the files' names."""
        chosen = self.options.adapters or self.local.adapters
        named: dict[str, LoraAdapter] = {}
        for adapter in chosen:
            stem = adapter.path.stem
            names = (stem, *(f"{stem}-{number}" for number in range(2, len(chosen) + 1)))
            # One that was loaded at scale 0 waits to be named.
            scaled = adapter if adapter.scale else LoraAdapter(adapter.path)
            named[next(name for name in names if name not in named)] = scaled
        return named

    def named_adapters(self, name: str | None) -> list[LoraAdapter] | None:
        """The adapters in ``MODEL+ADAPTER``, as many as there are pluses; None where the model alone is named."""
        if name is None or not name.lower().startswith(f"{self.name.lower()}+"):
            return None
        known = self.adapters
        chosen = []
        for part in name[len(self.name) + 1 :].split("+"):
            if part not in known:
                listed = ", ".join(known) or "none"
                raise LeapModelNotFoundError(f"{self.name} was loaded without the adapter {part!r}; it has: {listed}")
            chosen.append(known[part])
        return chosen

    @contextmanager
    def in_use(self, *, answers: bool = True) -> Iterator[ModelRunner]:
        """Have the runner for one request, which ``answers`` or only asks something of the model. Raises Refused while
        it cannot be had, LeapOptionsError for a model that makes vectors."""
        with self._in_use(answers) as runner:
            if isinstance(runner, EmbeddingRunner):
                raise LeapOptionsError("model", f"{self.name} makes embeddings and cannot answer a prompt")
            yield runner

    @property
    def embeds(self) -> bool:
        """Whether it is loaded, and makes vectors."""
        return isinstance(self.runner, EmbeddingRunner)

    @contextmanager
    def embedder_in_use(self) -> Iterator[EmbeddingRunner]:
        """``in_use`` for a request of vectors. Raises LeapOptionsError for a model that writes."""
        with self._in_use(answers=False) as runner:
            if not isinstance(runner, EmbeddingRunner):
                raise LeapOptionsError("model", f"{self.name} is loaded to answer prompts, not for embeddings")
            yield runner

    @contextmanager
    def _in_use(self, answers: bool) -> Iterator[Runner]:
        if self.runner is None:
            raise still_loading(self.name) if self.state == "loading" else self._gone()
        if self.active >= self.options.slots + self.queue:
            raise queue_full(self.name, self.active - self.options.slots)
        self.active += 1
        if answers:
            self.throughput.begin()
        try:
            yield self.runner
        finally:
            self.active -= 1
            if answers:
                self.throughput.end()
            self.last_used = time.monotonic()

    def touch(self, keep_alive: float | None) -> None:
        """Begin its time anew, with another keep-alive where one is given."""
        self.last_used = time.monotonic()
        if keep_alive is not None:
            self.keep_alive = keep_alive

    def to_json(self) -> JsonObject:
        """What ``leap ps`` shows, and for clients ``key`` and ``load_request``. Times in seconds, sizes in bytes."""
        speed = self.throughput.tokens_per_second()
        return {
            "key": self.key,
            "model": self.name,
            "state": self.state,
            "path": str(self.local.path),
            "size": _size_of(self.local.path),
            "memory": self.memory,
            "context_size": _size_of_context(self.runner) if self.runner else None,
            "speaks": self.runner.speaks if isinstance(self.runner, ModelRunner) else None,
            "embedding": _of_embedder(self.runner) if isinstance(self.runner, EmbeddingRunner) else None,
            "slots": self.options.slots,
            "slots_in_use": min(self.active, self.options.slots),
            "waiting": max(0, self.active - self.options.slots),
            "tokens_per_second": None if speed is None else round(speed, 1),
            "keep_alive": self.keep_alive,
            "expires_in": None if self.expires_in is None else round(self.expires_in, 1),
            "wish": self._to_load_again(),
        }

    def _to_load_again(self) -> JsonObject:
        """How to have this model loaded once more. Clients of earlier revisions know it as a wish."""
        request = self.load_request
        return {**asdict(request), "cwd": str(request.cwd or ""), "keep_alive": self.keep_alive}

    def _gone(self) -> Refused:
        return Refused(
            404, "model_not_found", LeapModelNotFoundError(f"{self.name} was unloaded", hint="load it again")
        )


class LoadedModels:
    """All models of a host. ``loader`` makes a runner of files."""

    def __init__(self, loader: Loader, trial: Trial | None = None) -> None:
        self._loader = loader
        self._trial = trial
        self._all: dict[str, LoadedModel] = {}
        self._one_at_a_time = asyncio.Lock()
        self._closing = False
        self._arriving = 0
        self.last_change = time.monotonic()

    def __iter__(self) -> Iterator[LoadedModel]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    async def load(self, load_request: LoadRequest) -> LoadedModel:
        """The model, loaded now or before. Raises LeapModelLoadingError, also when it is loaded in another way."""
        self._arriving += 1
        try:
            return await self._load_or_share(load_request)
        finally:
            self._arriving -= 1

    async def _load_or_share(self, load_request: LoadRequest) -> LoadedModel:
        local = await asyncio.to_thread(resolve_local, load_request.reference, cwd=load_request.cwd)
        path = str(local.path.resolve())
        while True:
            if self._closing:
                raise LeapUnavailableError("the model host is ending", hint="try again")
            model = self._all.get(path)
            if model is None:
                model = LoadedModel(self._free_name(local.model_id), local, load_request)
                self._all[path] = model
                model.loading = asyncio.create_task(self._load(path, model))
            assert model.loading is not None
            await asyncio.shield(model.loading)
            if model.unloading is None:
                break
            await asyncio.wait({model.unloading})
        different = model.differs(load_request)
        if different:
            raise LeapModelLoadingError(
                f"{model.name} is loaded already, with {different}", hint=f"leap unload {model.name} first"
            )
        model.references |= {load_request.reference, _in_full(load_request)}
        if load_request.queue is not None:
            model.queue = load_request.queue
        model.touch(load_request.keep_alive)
        return model

    async def find(self, load_request: LoadRequest) -> LoadedModel:
        """The model, if it is held. Raises LeapModelNotFoundError."""
        try:
            local = await asyncio.to_thread(resolve_local, load_request.reference, cwd=load_request.cwd)
        except LeapError:  # a name that it has here, or a file that is there no more
            is_path = load_request.reference.startswith((".", "~", os.sep)) or load_request.reference.endswith(".gguf")
            return self.named(_in_full(load_request) if is_path else load_request.reference)
        model = self._all.get(str(local.path.resolve()))
        if model is None:
            raise LeapModelNotFoundError(f"the model {load_request.reference!r} is not loaded")
        return model

    def named(self, name: str | None) -> LoadedModel:
        """The model of this name or key; without a name the only one. ``NAME+ADAPTER`` is the model NAME. Raises
        LeapModelNotFoundError."""
        held = list(self._all.values())
        if name is None and len(held) == 1:
            return held[0]
        for model in held:
            if name == model.key or (name or "").lower() == model.name.lower():
                return model
        for model in held:
            if name in model.references or model.named_adapters(name) is not None:
                return model
        listed = ", ".join(model.name for model in held) or "none"
        problem = "no model was named" if name is None else f"the model {name!r} is not loaded"
        raise LeapModelNotFoundError(f"{problem}; loaded: {listed}")

    def to_answer(self, name: str | None) -> LoadedModel:
        """``named``, for a request that may have come before its model: Refused says so while any is on its way."""
        try:
            return self.named(name)
        except LeapModelNotFoundError:
            if self._arriving:
                raise still_loading(name or "the model") from None
            raise

    async def unload(self, model: LoadedModel) -> None:
        """Let go of a model; what runs on it ends with an error. Returns when its memory is free."""
        if model.unloading is None:
            model.unloading = asyncio.create_task(self._unload(model))
        await asyncio.shield(model.unloading)

    async def _unload(self, model: LoadedModel) -> None:
        if model.loading is not None:
            await asyncio.wait({model.loading})
        runner, model.runner = model.runner, None
        if runner is not None:
            await asyncio.to_thread(runner.unload)
            log.info("unloaded %s", model.name)
        model.held.close()
        self._forget(model)

    async def expire(self) -> None:
        """Let go of the models whose time is over."""
        for model in self:
            if model.expires_in == 0.0:
                log.info("%s was not used for %g s", model.name, model.keep_alive)
                await self.unload(model)

    async def close(self) -> None:
        """Let go of all, and take no more."""
        self._closing = True
        await asyncio.gather(*(self.unload(model) for model in self))

    async def _load(self, path: str, model: LoadedModel) -> None:
        try:
            if self._trial is not None:  # before the turn to load: a file that hangs delays no other
                await asyncio.to_thread(self._trial, model.local, model.options)
            async with self._one_at_a_time:
                log.info("loading %s from %s", model.name, model.local.path)
                before, start = resident_bytes(), time.monotonic()
                model.held.enter_context(hold(model.local.path))
                runner = await asyncio.to_thread(self._loader, model.local, model.options)
                after = resident_bytes()
                if before is not None and after is not None:
                    model.memory = max(after - before, _size_of(model.local.path))
                log.info("loaded %s in %.2f s", model.name, time.monotonic() - start)
        except BaseException as error:
            log.info("cannot load %s: %s", model.name, error)
            model.held.close()
            self._forget(model)
            raise
        model.runner = runner
        model.touch(None)
        self.last_change = time.monotonic()

    def _forget(self, model: LoadedModel) -> None:
        self._all = {path: other for path, other in self._all.items() if other is not model}
        self.last_change = time.monotonic()

    def _free_name(self, name: str) -> str:
        names_in_use = {model.name.lower() for model in self}
        names = [name, *(f"{name}-{number}" for number in range(2, len(names_in_use) + 3))]
        return next(each for each in names if each.lower() not in names_in_use)


def _size_of_context(runner: Runner) -> int:
    """Tokens of prompt and answer together, or of a text that becomes a vector."""
    return runner.most_tokens if isinstance(runner, EmbeddingRunner) else runner.context_size


def _of_embedder(runner: EmbeddingRunner) -> JsonObject:
    """What a client's runner must know of a model for vectors."""
    return {
        "fingerprint": runner.fingerprint.hex(),
        "dimensions": runner.dimensions,
        "most_tokens": runner.most_tokens,
        "pools": runner.pools,
        "is_late": runner.is_late,
    }


def _in_full(load_request: LoadRequest) -> str:
    """The reference as a path that means the same in any directory."""
    return os.path.abspath((load_request.cwd or Path.cwd()) / load_request.reference)


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """Tells a file from one that was put in its place later."""
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


def _size_of(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
