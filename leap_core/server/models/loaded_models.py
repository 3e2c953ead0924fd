"""The models that a server holds: the one place where models for answers and for vectors are loaded, found, shared
and let go of. All on the event loop; what takes long happens in threads."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...conversation.options import ModelLoadingOptions
from ...errors import LeapError, LeapModelLoadingError, LeapModelNotFoundError, LeapUnavailableError
from ...models.resolving import LocalModel, resolve_local
from ...models.store import hold
from ...system.dataclass import dataclass
from ...system.processes import resident_bytes
from ..http import LOADING, still_loading, too_many_wait
from .abilities import Offer, check_kind, check_length, check_name, fits_on_gpus, foreseen_memory
from .loaded_model import DEFAULT_QUEUE, LoadedModel, LoadRequest, Runner, size_of, size_of_files

MOST_ON_DEMAND = 2
"""Models that requests had loaded stay, as many as these, where no bound is given."""
FAILURE_SECONDS = 30.0
"""A file that could not be loaded is not tried again for so long, unless it changes."""


@dataclass(frozen=True)
class Bounds:
    """The most models, and bytes of memory (that of GPUs included), at once; with neither, MOST_ON_DEMAND beside those
    that stay."""

    models: int | None = None
    memory: int | None = None

    def __bool__(self) -> bool:
        return self.models is not None or self.memory is not None

    def allow(self, present: Sequence[LoadedModel], coming: int | None = None) -> bool:
        """Whether these models may be loaded together, and one more that takes ``coming`` bytes."""
        more = coming is not None
        if not self:
            return sum(model.on_demand for model in present) + more <= MOST_ON_DEMAND
        if self.models is not None and len(present) + more > self.models:
            return False
        return self.memory is None or sum(model.takes for model in present) + (coming or 0) <= self.memory

    def check(self, staying: Sequence[LoadedModel], model: LoadedModel, size: int) -> None:
        """Raises LeapModelLoadingError for a model that does not fit beside those that stay."""
        if not self or self.allow(staying, size):
            return
        if self.memory is not None and size > self.memory:
            raise LeapModelLoadingError(
                f"{model.name} takes {size / 1e6:.0f} MB, and the server may use {self.memory / 1e6:.0f} MB",
                hint="start it with a larger --max-memory",
            )
        raise LeapModelLoadingError(
            f"{model.name} does not fit beside {', '.join(each.name for each in staying)}",
            hint="start the server with fewer pinned models, or with larger bounds",
        )


class RecentFailures:
    """Models that could not be loaded, so that nobody's model is let go of for another attempt."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[object, float, LeapError]] = {}

    def check(self, model: LoadedModel) -> None:
        """Raises the error with which this file failed a moment ago."""
        version, until, error = self._failed.get(str(model.local.path), (None, 0.0, None))
        if error is not None and version == model.version and time.monotonic() < until:
            raise error.with_traceback(None)

    def note(self, model: LoadedModel, error: BaseException) -> None:
        """Remember why a model could not be loaded."""
        if isinstance(error, LeapModelLoadingError):
            self._failed[str(model.local.path)] = model.version, time.monotonic() + FAILURE_SECONDS, error


Loader = Callable[[LocalModel, ModelLoadingOptions], Runner]
Trial = Callable[[LocalModel, ModelLoadingOptions], object]
"""Finds out, without loading, whether a model can be loaded; raises LeapModelLoadingError."""
log = logging.getLogger("leap.host")


class LoadedModels:
    """All models of a host. ``loader`` makes a runner of files; ``embedder`` makes one for vectors of any model.
    ``offer``: what requests may have loaded (None: models for vectors alone). ``bounds``: how much is loaded at once;
    at most ``queue`` requests wait for a model."""

    def __init__(
        self,
        loader: Loader,
        trial: Trial | None = None,
        embedder: Loader | None = None,
        *,
        offer: Offer | None = None,
        bounds: Bounds | None = None,
        queue: int | None = None,
    ) -> None:
        self._loader, self._embedder = loader, embedder or loader
        self._trial = trial
        self.offer, self._bounds = offer, bounds or Bounds()
        self._queue = DEFAULT_QUEUE if queue is None else queue
        self._waiting = 0
        self._failures = RecentFailures()
        self._measured: dict[str, int] = {}
        """What models took when they were loaded before, by path."""
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
        return [model for model in self if not model.on_demand]

    async def load(self, load_request: LoadRequest) -> LoadedModel:
        """The model, loaded now or before. Raises LeapModelLoadingError, also when it is loaded in another way."""
        self._arriving += 1
        try:
            model = await self._load_or_share(load_request)
        finally:
            self._arriving -= 1
        model.on_demand = False
        model.release()
        return self._agree(model, load_request)

    async def _load_or_share(self, load_request: LoadRequest, *, on_demand: bool = False) -> LoadedModel:
        """The model, which counts as reserved once more; see ``load``."""
        local = await asyncio.to_thread(resolve_local, load_request.reference, cwd=load_request.cwd)
        key = str(local.path.resolve()), load_request.embeds
        while True:
            if self._closing:
                raise LeapUnavailableError("the model host is ending", hint="try again")
            model = self._all.get(key)
            if model is not None and model.leaving is not None:
                await asyncio.wait({model.leaving})
                continue
            if model is None:
                model = LoadedModel(self._free_name(local.model_id), local, load_request, on_demand=on_demand)
                if on_demand:
                    self._failures.check(model)
                model.on_idle = self._trim
                self._all[key] = model
                model.loading = asyncio.create_task(self._load(model))
                model.loading.add_done_callback(lambda task: task.cancelled() or task.exception())
            assert model.loading is not None
            model.reserved += 1
            try:
                await asyncio.shield(model.loading)
            except BaseException:
                model.release()
                raise
            if model.leaving is None:
                return model
            model.release()

    def _agree(self, model: LoadedModel, load_request: LoadRequest) -> LoadedModel:
        """The model, to be called by another name and kept as long as asked. Raises LeapModelLoadingError where it is
        loaded in another way."""
        different = model.differs(load_request)
        if different:
            raise LeapModelLoadingError(
                f"{model.name} is loaded already, with {different}", hint=f"leap unload {model.name} first"
            )
        model.references |= {load_request.reference, _in_full(load_request)}
        if load_request.queue is not None:
            model.queue = load_request.queue
        if load_request.tool_search is not None:
            model.tool_search = load_request.tool_search
        model.touch(load_request.keep_alive)
        return model

    async def reserve(
        self, name: str | None, *, embeds: bool = False, keep_alive: float | None = None, any_kind: bool = False
    ) -> LoadedModel:
        """The model that a request names, which is not let go of until its ``release``; it is loaded where it is
        offered and not there. ``embeds``: for vectors, whatever it was made for. ``keep_alive``: seconds without use
        after which it may go, 0 never; a model that was loaded to stay does. ``any_kind``: load it also where it was
        made for something else.

        Raises LeapModelNotFoundError, LeapOptionsError for a model of the other kind, Refused while models that stay
        are being loaded or too many wait, and what loading raises."""
        name = await self._held_as(name)
        model = self._at_hand(name, embeds)
        if model is not None:
            model.reserved += 1
        else:
            if self._waiting >= self._queue:
                raise too_many_wait(self._waiting)
            self._waiting += 1
            try:
                model = await self._on_demand(name, embeds, any_kind)
            finally:
                self._waiting -= 1
        if model.on_demand:
            model.touch(keep_alive)
        return model

    async def _held_as(self, name: str | None) -> str | None:
        """How a model is called here that is loaded and that a name of the command line leads to, with its adapters;
        any other name as it is."""
        check_length(name)
        if name is None or not len(self) or any(model.answers_to(name) for model in self):
            return name
        for part in (name, name.partition("+")[0]):  # behind a plus comes an adapter
            with suppress(LeapError):
                check_name(part)
                path = (await asyncio.to_thread(resolve_local, part)).path
                for model in self:
                    if model.local.path == path:
                        return model.name + name[len(part) :]
        return name

    def _at_hand(self, name: str | None, embeds: bool) -> LoadedModel | None:
        """A loaded model that answers to this name; None for one that must be loaded first. Raises Refused while one
        that stays is on its way."""
        if embeds:
            for model in self:
                if name is not None and model.embeds and model.answers_to(name) and model.leaving is None:
                    return model
            return None
        try:
            model = self.named(name)
        except LeapModelNotFoundError:
            if self.offer is None:
                return self.to_answer(name)
            return None
        return None if model.on_demand and (model.runner is None or model.leaving is not None) else model

    async def _on_demand(self, name: str | None, embeds: bool, any_kind: bool) -> LoadedModel:
        if self.offer is not None:
            load_request = replace(await asyncio.to_thread(self.offer.load_request, name), embeds=embeds)
        else:
            check_name(name or "")
            load_request = LoadRequest(name or "", embeds=embeds)
        if not any_kind:
            await asyncio.to_thread(check_kind, load_request)
        model = await self._load_or_share(load_request, on_demand=True)
        model.references |= {load_request.reference, *([name] if name is not None else [])}
        return model

    def _trim(self) -> None:
        """Let go of what is more than the bounds allow, those models that were used longest ago first."""
        ready = [model for model in self if model.state == "ready" and model.leaving is None]
        while not self._bounds.allow(ready):
            idle = [model for model in ready if model.on_demand and not model.in_demand]
            if not idle:
                return
            victim = min(idle, key=lambda model: model.last_used)
            ready.remove(victim)
            self._begin_to_unload(victim)

    async def _make_room(self, model: LoadedModel, need: int) -> None:
        """Wait until ``need`` bytes for a model are within the bounds: let go of others, those that nobody uses first,
        and then those that were used longest ago; who comes for one that leaves waits until it is loaded anew."""
        if not (model.on_demand or self._bounds):
            return
        staying = [other for other in self if other is not model and not other.on_demand]
        self._bounds.check(staying, model, max(need, size_of_files(model.local, model.options)))
        while True:
            present = [other for other in self if other is not model and other.state != "loading"]
            victims = [other for other in present if other.on_demand]
            if not victims or self._bounds.allow(present, need):
                return
            victim = min(victims, key=lambda other: (other.leaving is None, other.in_demand, other.last_used))
            await self._let_go(victim)

    async def _make_room_on_gpus(self, model: LoadedModel) -> None:
        """Let go of models on GPUs, as ``_make_room`` does, until this one has room there or none is left."""
        while victims := [other for other in self if other.on_gpu.memory and other.on_demand and other is not model]:
            if await asyncio.to_thread(fits_on_gpus, model.local, model.options):
                return
            victim = min(victims, key=lambda other: (other.leaving is None, other.in_demand, other.last_used))
            await self._let_go(victim)

    async def _let_go(self, victim: LoadedModel) -> None:
        if victim.leaving is None:
            victim.leaving = asyncio.create_task(self._leave(victim))
        await asyncio.wait({victim.leaving})

    async def _leave(self, model: LoadedModel) -> None:
        """Let go of a model when those who use it are answered."""
        idle = asyncio.Event()
        model.on_idle = idle.set
        while model.in_demand and model.unloading is None:
            idle.clear()
            await idle.wait()
        await self.unload(model)

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
        check_length(name)
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

    async def described(self, name: str | None) -> LoadedModel:
        """``to_answer``, or how a model would be loaded that is offered. Raises as both do."""
        name = await self._held_as(name)
        if self.offer is None:
            return self.to_answer(name)
        try:
            return self.named(name)
        except LeapModelNotFoundError:
            load_request = await asyncio.to_thread(self.offer.load_request, name)
        local = await asyncio.to_thread(resolve_local, load_request.reference, cwd=load_request.cwd)
        model = LoadedModel(local.model_id, local, load_request, on_demand=True)
        model.references |= {load_request.reference, *([name] if name is not None else [])}
        return model

    async def unload(self, model: LoadedModel) -> None:
        """Let go of a model; what runs on it ends with an error. Returns when its memory is free."""
        await asyncio.shield(self._begin_to_unload(model))

    def _begin_to_unload(self, model: LoadedModel) -> asyncio.Task[None]:
        if model.unloading is None:
            model.unloading = asyncio.create_task(self._unload(model))
            model.leaving = model.leaving or model.unloading
            model.on_idle()  # who waits for that waits no longer
        return model.unloading

    async def _unload(self, model: LoadedModel) -> None:
        if model.loading is not None:
            await asyncio.wait({model.loading})
        runner, model.runner = model.runner, None
        if runner is not None:
            await LOADING.run(runner.unload)
            log.info("unloaded %s", model.name)
        model.held.close()
        self._forget(model)

    async def expire(self) -> None:
        """Let go of the models whose time is over, and note in the log which make no progress."""
        for model in self:
            stalled = model.activity is not None and model.activity.is_stalled
            if stalled and not model.is_stalled:
                log.warning("%s makes no progress: %s", model.name, model.activity)
            model.is_stalled = stalled
            if model.expires_in == 0.0 and model.leaving is None:
                log.info("%s was not used for %g s", model.name, model.keep_alive)
                await self.unload(model)

    @property
    def is_closing(self) -> bool:
        """Whether the server ends."""
        return self._closing

    async def close(self) -> None:
        """Let go of all, and take no more."""
        self._closing = True
        await asyncio.gather(*(self.unload(model) for model in self))

    async def _load(self, model: LoadedModel) -> None:
        loader = self._embedder if model.load_request.embeds else self._loader
        try:
            # before the turn to load: a file that hangs delays no other
            if self._trial is not None and loader is self._loader:
                await LOADING.run(self._trial, model.local, model.options)
            async with self._one_at_a_time:
                runner = await self._load_in_turn(model, loader)
        except BaseException as error:
            log.info("cannot load %s: %s", model.name, error)
            self._failures.note(model, error)
            model.held.close()
            self._forget(model)
            raise
        model.runner = runner
        model.touch(None)
        self.last_change = time.monotonic()
        self._trim()

    async def _load_in_turn(self, model: LoadedModel, loader: Loader) -> Runner:
        """Load a model, when there is space for it."""
        path = str(model.local.path)
        need = self._measured.get(path)
        if need is None:
            need = await asyncio.to_thread(foreseen_memory, model.local, model.options)
        await self._make_room(model, need)
        await self._make_room_on_gpus(model)
        if model.on_demand and not model.reserved:
            raise LeapUnavailableError(f"nobody waits for {model.name} any more")
        log.info("loading %s from %s", model.name, path)
        before, start = resident_bytes(), time.monotonic()
        model.held.enter_context(hold(model.local.path))
        runner = await LOADING.run(loader, model.local, model.options)
        after = resident_bytes()
        model.on_gpu = runner.on_gpu or model.on_gpu
        if before is not None and after is not None:
            least = max(need, size_of(model.local.path))
            if model.on_gpu.layers:
                least = await asyncio.to_thread(foreseen_memory, model.local, model.options, model.on_gpu)
            # what others freed before is used again, and then the process grows by less than the model takes
            model.memory = max(after - before, least)
            self._measured[path] = model.takes
            try:
                await self._make_room(model, model.takes)  # it may have taken more than was foreseen
            except LeapModelLoadingError:
                await LOADING.run(runner.unload)
                raise
        log.info("loaded %s in %.2f s", model.name, time.monotonic() - start)
        return runner

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
