"""A model in memory: its weights, its context and what computes with them, freed together once nothing uses them."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import LeapGenerationError, LeapModelLoadingError
from ..llama.library import set_variables, state_version
from ..options import ModelLoadingOptions
from .gpu_layers import gpu_layers_for

if TYPE_CHECKING:
    from ..engine.scheduler import Scheduler
    from ..llama.context import LlamaContext
    from ..llama.model import LlamaModel

LARGEST_DEFAULT_CONTEXT = 8192
CELLS_PER_SLOT = 2048
"""Slots share their positions: by default each brings this many, and one may use all of them."""


class Closing(Protocol):
    """Something that is over after ``close``."""

    def close(self) -> None: ...


class ModelParts:
    """Owns ``parts`` (what computes, then what it computes with) and closes them in this order, once.

    ``in_use`` keeps them alive meanwhile. All methods are for any thread.
    """

    def __init__(self, *parts: Closing) -> None:
        self._parts = parts
        self._changed = threading.Condition()
        self._open = True
        self._users = 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within, the memory is not freed: a long prompt takes a while to be cut into tokens.

        Raises LeapGenerationError after ``unload``.
        """
        with self._changed:
            if not self._open:
                raise LeapGenerationError("the model is unloaded", hint="load it again")
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def add(self, part: Closing) -> None:
        """Own one more part, which uses the others. Call it while they are in use."""
        with self._changed:
            self._parts = (self._parts[0], part, *self._parts[1:])

    def unload(self) -> None:
        """Close the first part, wait for the users, close the rest. Harmless when repeated."""
        with self._changed:
            if not self._open:
                return
            self._open = False
        self._parts[0].close()  # ends what computes, so that users do not wait for it
        with self._changed:
            self._changed.wait_for(lambda: not self._users)
        for part in self._parts[1:]:
            part.close()

    def unload_with(self, owner: object) -> None:
        """Unload once ``owner``, which refers to this model, is garbage."""
        weakref.finalize(owner, _unload_in_thread, self).atexit = False  # then the memory goes with the process


_unloading: set[threading.Thread] = set()
_exiting = False


def _unload_in_thread(loaded: ModelParts) -> None:
    """A thread of its own, because the finalizer may run in the compute thread, which ``unload`` waits for."""
    if _exiting:
        return

    def unload() -> None:
        try:
            loaded.unload()
        finally:
            _unloading.discard(threading.current_thread())

    thread = threading.Thread(target=unload, name="leap-unload")
    _unloading.add(thread)
    with suppress(RuntimeError):  # Python 3.12 starts no thread while the interpreter ends
        thread.start()


@atexit.register
def _finish_unloading() -> None:
    """A thread inside llama.cpp's C++ when the interpreter ends would end the process with std::terminate."""
    global _exiting
    _exiting = True
    for thread in list(_unloading):
        if thread.ident is not None:
            thread.join()


def open_context(model: LlamaModel, options: ModelLoadingOptions, context_size: int) -> LlamaContext:
    """A context for generation as the options describe it. Raises LeapModelLoadingError."""
    from ..engine.sampling.lookup_drafts import LONG_DRAFT
    from ..engine.threads import usable_cores
    from ..llama.context import LlamaContext

    keys, values = options.kv_types(model.n_gpu_layers)
    return LlamaContext(
        model,
        cells=max(context_size, options.slots * min(CELLS_PER_SLOT, context_size)),
        slots=options.slots,
        batch_size=options.batch_size,
        threads=options.cpu_threads or usable_cores(),
        flash_attention=options.flash_attention,
        kv_type_k=keys,
        kv_type_v=values,
        rollback=LONG_DRAFT if options.lookup else 0,
    )


def open_scheduler(context: LlamaContext, options: ModelLoadingOptions, context_size: int) -> Scheduler:
    """A scheduler over ``context``, with the snapshots that the options allow."""
    from ..engine.reuse.snapshots import SnapshotStore
    from ..engine.scheduler import Scheduler
    from ..engine.threads import usable_cores

    scope = _snapshot_scope(context.model, options) if options.cache_options.enabled else b""
    store = SnapshotStore(options.cache_options, scope)
    return Scheduler(context, store, context_size=context_size, threads=options.cpu_threads or usable_cores())


def _snapshot_scope(model: LlamaModel, options: ModelLoadingOptions) -> bytes:
    """What a saved state depends on besides the prompt: the model file, the memory's layout, llama.cpp's build."""
    keys, values = options.kv_types(model.n_gpu_layers)
    layout = f"{keys} {values} {options.flash_attention} {model.n_gpu_layers} unified"
    layout += " rollback" if options.lookup else ""
    parts = b"\0".join([model.fingerprint, state_version().encode(), layout.encode()])
    return blake2b(parts, digest_size=16).digest()


def open_model(path: Path, options: ModelLoadingOptions) -> LlamaModel:
    """The weights of a checked GGUF. Raises LeapModelLoadingError."""
    from ..llama.model import LlamaModel

    return LlamaModel(path, n_gpu_layers=gpu_layers_for(path, options), use_mmap=options.use_mmap)


class EarlyOpening:
    """Begins at once to open the checked GGUF at ``path`` and a context of it, in a thread of its own: llama.cpp holds
    no lock of Python's meanwhile, so what uses the model is imported beside it, which saves a third of the time to the
    first token. Who begins it takes both or closes the opening, before the model that was taken."""

    def __init__(self, path: Path, options: ModelLoadingOptions) -> None:
        set_variables()  # before anything imports numpy
        self._path, self._options = path, options
        self._model: LlamaModel | None = None
        self._taken: LlamaModel | None = None
        self._context: LlamaContext | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._open, name="leap-open")
        self._thread.start()

    def _open(self) -> None:
        options = self._options.with_extras()
        try:
            self._model = model = open_model(self._path, options)
        except BaseException as error:
            self._error = error
            return
        with suppress(Exception):  # ``take_context`` tries again and says why not
            if model.can_generate:
                self._context = open_context(model, options, context_size_for(model, "", options.context_size))

    def take(self) -> LlamaModel:
        """The model, which is then the caller's to close. Raises what opening it raised."""
        import jinja2.sandbox  # noqa: F401  the model's users import both, and here they cost nothing
        import numpy  # noqa: F401

        self._thread.join()
        model, self._model = self._model, None
        if model is None:
            assert self._error is not None, "a model is taken once"
            raise self._error
        self._taken = model
        return model

    def take_context(self, context_size: int) -> LlamaContext:
        """A context of the model that was taken, then the caller's. Raises LeapModelLoadingError."""
        context, self._context = self._context, None
        if context is None:
            assert self._taken is not None, "the model is taken first"
            context = open_context(self._taken, self._options.with_extras(), context_size)
        return context

    def close(self) -> None:
        """Free what was not taken."""
        self._thread.join()
        context, self._context = self._context, None
        if context is not None:
            context.close()
        model, self._model = self._model, None
        if model is not None:
            model.close()


def context_size_for(model: LlamaModel, name: str, size: int | None) -> int:
    """The context size to load with: ``size``, or the model's own up to 8,192.

    Raises LeapModelLoadingError for more than the model was trained for.
    """
    trained = model.trained_context
    if size is None:
        return min(trained, LARGEST_DEFAULT_CONTEXT) if trained > 0 else LARGEST_DEFAULT_CONTEXT
    if trained > 0 and size > trained:
        raise LeapModelLoadingError(
            f"a context of {size} tokens is more than the {trained} that {name} was trained for",
            hint=f"use {trained} or less",
        )
    return size
