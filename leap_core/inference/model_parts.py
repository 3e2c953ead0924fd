"""A model in memory: its weights, context and adapters, the layers that go to a GPU, freed together once."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..conversation.loading_options import LoraAdapter
from ..conversation.options import ModelLoadingOptions
from ..errors import LeapGenerationError, LeapModelLoadingError, LeapModelNotFoundError
from .engine.request import Adapters
from .gguf.header import COARSE_FILE_TYPES, read_gguf_header
from .gguf.memory import CELLS_PER_SLOT, shape_of
from .gguf.offloading import ALL, AUTO, LARGEST_DEFAULT_CONTEXT, offload_of, offload_that_fits
from .llama.library import set_variables, state_version
from .llama.model import LlamaAdapter, LlamaModel, content_id
from .trial.trial_child import ADAPTER, MODEL, Subject
from .trial.verdicts import require_sound

if TYPE_CHECKING:
    from .engine.scheduler import Scheduler
    from .llama.context import LlamaContext
    from .llama.devices import Placement


def placement_for(path: Path, options: ModelLoadingOptions, layers: int | None = None) -> Placement:
    """Where a model's layers go: so many ``layers`` on GPUs, else as many as the options say; with ``auto`` as many as
    fit into the free memory of the GPUs with enough of it, none where there is none."""
    from .llama.devices import NONE, Placement, measured, usable_gpus

    wanted = options.n_gpu_layers if layers is None else layers
    is_off = wanted == 0 or options.devices == (NONE,)
    devices = [] if is_off else measured(usable_gpus(options.devices))
    if not options.tensor_split:
        roomy = [each for each in devices if each.free > LEAST_FREE]
        is_free = options.n_gpu_layers == AUTO or (roomy and not options.devices)
        devices = roomy if is_free else devices
    if not devices:
        return Placement(cpu_moe=options.cpu_moe)
    header, free = read_gguf_header(path), [each.free for each in devices]
    if wanted == AUTO:
        offload = offload_that_fits(header, options, free)
        wanted = offload.layers
    else:
        offload = offload_of(header, options, int(wanted), free)
    if not wanted:
        return Placement(cpu_moe=options.cpu_moe)
    split = options.tensor_split if any(options.tensor_split) or len(free) == 1 else offload.shares
    return Placement(int(wanted), devices, split, options.cpu_moe, offload.by_gpu)


LEAST_FREE = 1024**3
"""Of a GPU that is used without being named: each program takes some hundred MB beside what it computes with."""


BATCH_ON_GPU = 2048
"""Positions of a step on a GPU, as llama.cpp's own programs take them."""


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
    from .engine.repetition import LONG_DRAFT
    from .engine.threads import usable_cores
    from .llama.context import AttentionSettings, LlamaContext

    return LlamaContext(
        model,
        cells=max(context_size, options.slots * min(CELLS_PER_SLOT, context_size)),
        slots=options.slots,
        batch_size=max(options.batch_size, BATCH_ON_GPU) if model.on_gpu else options.batch_size,
        threads=options.cpu_threads or usable_cores(),
        attention=AttentionSettings(options.flash_attention, *_kv_types(model, options)),
        rollback=LONG_DRAFT if options.prompt_lookup else 0,
        exact=options.deterministic,
    )


def _kv_types(model: LlamaModel, options: ModelLoadingOptions) -> tuple[str, str]:
    file_type = model.metadata("general.file_type")  # to read the types of all weights would delay the start
    return options.kv_types(model.n_gpu_layers, is_coarse=file_type in COARSE_FILE_TYPES)


def open_scheduler(context: LlamaContext, options: ModelLoadingOptions, context_size: int) -> Scheduler:
    """A scheduler over ``context``, with the snapshots that the options allow."""
    from .engine.scheduler import Scheduler
    from .engine.snapshots import SnapshotStore
    from .engine.threads import usable_cores

    scope = _snapshot_scope(context.model, options) if options.cache_options.enabled else b""
    store = SnapshotStore(options.cache_options, scope)
    return Scheduler(context, store, context_size=context_size, threads=options.cpu_threads or usable_cores())


def _snapshot_scope(model: LlamaModel, options: ModelLoadingOptions) -> bytes:
    """What a saved state depends on besides the prompt: the model file, the memory's layout, llama.cpp's build."""
    keys, values = _kv_types(model, options)
    layout = f"{keys} {values} {options.flash_attention} {model.n_gpu_layers} unified"
    layout += " rollback" if options.prompt_lookup else ""
    layout += " exact" if options.deterministic else ""
    parts = b"\0".join([model.fingerprint, state_version().encode(), layout.encode()])
    return blake2b(parts, digest_size=16).digest()


def open_model(path: Path, options: ModelLoadingOptions, layers: int | None = None) -> LlamaModel:
    """The weights of a checked GGUF, with so many ``layers`` on a GPU, else as many as the options say. Raises
    LeapModelLoadingError."""
    return _open_placed(path, options, placement_for(path, options, layers))


def _open_placed(path: Path, options: ModelLoadingOptions, placement: Placement) -> LlamaModel:
    from .llama.model import LlamaModel

    return LlamaModel(path, placement=placement, use_mmap=options.use_mmap)


def open_with_fewer_layers(
    path: Path, options: ModelLoadingOptions, *, generates: bool = True
) -> tuple[LlamaModel, LlamaContext | None]:
    """The weights and, for a model that ``generates``, a context. What is tight on a GPU is tried in a child process
    before. Where ``auto`` put more layers on a GPU than there is memory for, with fewer. Raises
    LeapModelLoadingError."""
    from .trial.layers import require_room

    placement = placement_for(path, options)
    while True:
        try:
            require_room(path, options, placement)
            return _open_with_context(path, options, placement, generates)
        except LeapModelLoadingError:
            layers = placement.n_gpu_layers
            if not layers or options.n_gpu_layers != AUTO:
                raise
            all_layers = len(shape_of(read_gguf_header(path)).kept) + 1
            placement = placement_for(path, options, (all_layers if layers == ALL else layers) * 3 // 4)


def _open_with_context(
    path: Path, options: ModelLoadingOptions, placement: Placement, generates: bool
) -> tuple[LlamaModel, LlamaContext | None]:
    model = _open_placed(path, options, placement)
    try:
        if not placement.n_gpu_layers or not generates or not model.can_generate:
            return model, None  # a context is opened beside other work
        try:
            size = context_size_for(model, "", options.context_size)
        except LeapModelLoadingError:  # fewer layers do not help; ``take_context`` reports it with the model's name
            return model, None
        return model, open_context(model, options, size)
    except BaseException:
        model.close()
        raise


class EarlyOpening:
    """Begins at once to open the checked GGUF at ``path`` and a context of it, in a thread of its own: llama.cpp holds
    no lock of Python's meanwhile, so what uses the model is imported beside it, which saves a third of the time to the
    first token, and its chat template is compiled while the context gets its memory. Who begins it takes both or
    closes the opening, before the model that was taken."""

    def __init__(self, path: Path, options: ModelLoadingOptions) -> None:
        set_variables()  # before anything imports numpy
        self._path, self._options = path, options
        self._model: LlamaModel | None = None
        self._taken: LlamaModel | None = None
        self._context: LlamaContext | None = None
        self._error: BaseException | None = None
        self._model_is_there = threading.Event()
        self._thread = threading.Thread(target=self._open, name="leap-open")
        self._thread.start()

    def _open(self) -> None:
        options = self._options.with_extras()
        try:
            self._model, self._context = open_with_fewer_layers(self._path, options)
            model = self._model
        except BaseException as error:
            self._error = error
            return
        finally:
            self._model_is_there.set()
        with suppress(Exception):  # ``take_context`` tries again and says why not
            if model.can_generate and self._context is None:
                self._context = open_context(model, options, context_size_for(model, "", options.context_size))

    def take(self) -> LlamaModel:
        """The model, which is then the caller's to close. Raises what opening it raised."""
        import jinja2.sandbox  # noqa: F401  the model's users import all three, and here they cost nothing
        import numpy  # noqa: F401
        import numpy.random  # noqa: F401

        self._model_is_there.wait()
        model, self._model = self._model, None
        if model is None:
            assert self._error is not None, "a model is taken once"
            raise self._error
        self._taken = model
        return model

    def take_context(self, context_size: int) -> LlamaContext:
        """A context of the model that was taken, then the caller's. Raises LeapModelLoadingError."""
        self._thread.join()
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


def require_sound_adapter(path: Path, model: Path) -> None:
    """Make sure that llama.cpp survives an adapter of a model: by its header, then by a trial in a child process
    unless it was tried before. Raises LeapModelNotFoundError and LeapModelLoadingError."""
    from .gguf.checks import check_adapter

    if not path.exists():
        raise LeapModelNotFoundError(f"there is no adapter {path}")
    check_adapter(read_gguf_header(path), read_gguf_header(model))
    require_sound(Subject(path, ADAPTER, {MODEL: model}))


class ModelAdapters:
    """Loads adapters for ``model``, with which they are freed. Any thread may call."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        self._guard = threading.Lock()
        self._by_id: dict[bytes, LlamaAdapter] = {}
        self._by_place: dict[tuple[Path, int, int, int], LlamaAdapter] = {}

    def load(self, adapters: Sequence[LoraAdapter]) -> Adapters:
        """The adapters in memory, with their scales; those with the scale 0 are left out, as they change nothing. One
        that is new here is tried in a child process before.

        Raises LeapModelNotFoundError and LeapModelLoadingError.
        """
        return tuple((self._load(each.path), float(each.scale)) for each in adapters if each.scale != 0)

    def _load(self, path: Path) -> LlamaAdapter:
        try:
            status = path.stat()
            place = (path.absolute(), status.st_ino, status.st_size, status.st_mtime_ns)
            if place not in self._by_place:
                require_sound_adapter(path, self._model.path)
            with self._guard:
                adapter = self._by_place.get(place)
                if adapter is None:
                    adapter = self._by_id.get(content_id(path)) or LlamaAdapter(path, self._model)
                    self._by_place[place] = self._by_id[adapter.id] = adapter
                return adapter
        except FileNotFoundError:
            raise LeapModelNotFoundError(f"there is no adapter {path}") from None
        except OSError as error:
            raise LeapModelLoadingError(f"cannot read the adapter {path}: {error.strerror or error}") from None
