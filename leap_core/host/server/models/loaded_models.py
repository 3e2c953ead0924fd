"""The models that a server holds: the one place where models for answers and for vectors are loaded, found, shared
and let go of. All on the event loop; what takes long happens in threads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ....background.process_identity import resident_bytes
from ....errors import LeapError, LeapModelLoadingError, LeapModelNotFoundError, LeapUnavailableError
from ....models.installed.holding import hold
from ....models.references.resolving import LocalModel, resolve_local
from ....options import ModelLoadingOptions
from ..sending.http_errors import still_loading
from .load_request import LoadRequest
from .loaded_model import LoadedModel, Runner, size_of

Loader = Callable[[LocalModel, ModelLoadingOptions], Runner]
Trial = Callable[[LocalModel, ModelLoadingOptions], object]
"""Finds out, without loading, whether a model can be loaded; raises LeapModelLoadingError."""
log = logging.getLogger("leap.host")

MOST_ON_DEMAND = 2
"""Models that requests had loaded stay, as many as these; those in use are never taken away."""
NAME = re.compile(r"[\w][\w.+-]*(:[\w.+-]+)?(/[\w][\w.+-]*(:[\w.+-]+)?)?")
FILE_ENDINGS = (".gguf", ".json", ".bundle")


def check_name(name: str) -> None:
    """Raises LeapModelNotFoundError for what could be a path: a request cannot reach files."""
    if not NAME.fullmatch(name) or name.lower().endswith(FILE_ENDINGS):
        raise LeapModelNotFoundError(f"there is no model {name[:80]!r}", hint="name an installed model")


class LoadedModels:
    """All models of a host. ``loader`` makes a runner of files; ``embedder`` makes one for vectors of any model."""

    def __init__(self, loader: Loader, trial: Trial | None = None, embedder: Loader | None = None) -> None:
        self._loader, self._embedder = loader, embedder or loader
        self._trial = trial
        self._all: dict[tuple[str, bool], LoadedModel] = {}
        """By path, and whether the file was loaded for vectors on demand."""
        self._one_at_a_time = asyncio.Lock()
        self._closing = False
        self._arriving = 0
        self.last_change = time.monotonic()

    def __iter__(self) -> Iterator[LoadedModel]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    @property
    def served(self) -> list[LoadedModel]:
        """Those that were asked for by whom the server belongs to; the others come and go with requests."""
        return [model for model in self if not model.load_request.embeds]

    async def load(self, load_request: LoadRequest) -> LoadedModel:
        """The model, loaded now or before. Raises LeapModelLoadingError, also when it is loaded in another way."""
        self._arriving += 1
        try:
            return await self._load_or_share(load_request)
        finally:
            self._arriving -= 1

    async def _load_or_share(self, load_request: LoadRequest) -> LoadedModel:
        local = await asyncio.to_thread(resolve_local, load_request.reference, cwd=load_request.cwd)
        key = str(local.path.resolve()), load_request.embeds
        while True:
            if self._closing:
                raise LeapUnavailableError("the model host is ending", hint="try again")
            model = self._all.get(key)
            if model is None:
                model = LoadedModel(self._free_name(local.model_id), local, load_request)
                model.on_idle = self._make_room
                self._all[key] = model
                model.loading = asyncio.create_task(self._load(model))
            assert model.loading is not None
            model.awaited += 1
            try:
                await asyncio.shield(model.loading)
            finally:
                model.awaited -= 1
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

    async def embedder(self, name: str) -> LoadedModel:
        """The model of this name for vectors: one that the server holds, or one that is loaded for the request. Raises
        LeapModelNotFoundError, also for a path. Use it before anything else is awaited."""
        for model in self:
            if model.embeds and model.answers_to(name) and model.unloading is None:
                return model
        check_name(name)
        return await self._load_or_share(LoadRequest(name, embeds=True))

    def _make_room(self) -> None:
        """Let go of models that were loaded on demand, those that were used longest ago first."""
        loaded = [model for model in self if model.load_request.embeds and model.state == "ready"]
        idle = [model for model in loaded if not model.active and not model.awaited]
        idle.sort(key=lambda model: model.last_used)
        for model in idle[: max(0, len(loaded) - MOST_ON_DEMAND)]:
            self._begin_to_unload(model)

    async def find(self, load_request: LoadRequest) -> LoadedModel:
        """The model, if it is held. Raises LeapModelNotFoundError."""
        try:
            local = await asyncio.to_thread(resolve_local, load_request.reference, cwd=load_request.cwd)
        except LeapError:  # a name that it has here, or a file that is there no more
            is_path = load_request.reference.startswith((".", "~", os.sep)) or load_request.reference.endswith(".gguf")
            return self.named(_in_full(load_request) if is_path else load_request.reference)
        path = str(local.path.resolve())
        model = self._all.get((path, False)) or self._all.get((path, True))
        if model is None:
            raise LeapModelNotFoundError(f"the model {load_request.reference!r} is not loaded")
        return model

    def named(self, name: str | None) -> LoadedModel:
        """The model of this name or key; without a name the only one. ``NAME+ADAPTER`` is the model NAME. Raises
        LeapModelNotFoundError."""
        held, served = list(self._all.values()), self.served
        if name is None and len(served) == 1:
            return served[0]
        for model in held:
            if name == model.key or (name or "").lower() == model.name.lower():
                return model
        for model in held:
            if name is not None and model.answers_to(name):
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
        await asyncio.shield(self._begin_to_unload(model))

    def _begin_to_unload(self, model: LoadedModel) -> asyncio.Task[None]:
        if model.unloading is None:
            model.unloading = asyncio.create_task(self._unload(model))
        return model.unloading

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

    async def _load(self, model: LoadedModel) -> None:
        loader = self._embedder if model.load_request.embeds else self._loader
        try:
            # before the turn to load: a file that hangs delays no other
            if self._trial is not None and loader is self._loader:
                await asyncio.to_thread(self._trial, model.local, model.options)
            async with self._one_at_a_time:
                log.info("loading %s from %s", model.name, model.local.path)
                before, start = resident_bytes(), time.monotonic()
                model.held.enter_context(hold(model.local.path))
                runner = await asyncio.to_thread(loader, model.local, model.options)
                after = resident_bytes()
                if before is not None and after is not None:
                    model.memory = max(after - before, size_of(model.local.path))
                log.info("loaded %s in %.2f s", model.name, time.monotonic() - start)
        except BaseException as error:
            log.info("cannot load %s: %s", model.name, error)
            model.held.close()
            self._forget(model)
            raise
        model.runner = runner
        model.touch(None)
        self.last_change = time.monotonic()
        self._make_room()

    def _forget(self, model: LoadedModel) -> None:
        self._all = {key: other for key, other in self._all.items() if other is not model}
        self.last_change = time.monotonic()

    def _free_name(self, name: str) -> str:
        names_in_use = {model.name.lower() for model in self}
        names = [name, *(f"{name}-{number}" for number in range(2, len(names_in_use) + 3))]
        return next(each for each in names if each.lower() not in names_in_use)


def _in_full(load_request: LoadRequest) -> str:
    """The reference as a path that means the same in any directory."""
    return os.path.abspath((load_request.cwd or Path.cwd()) / load_request.reference)
