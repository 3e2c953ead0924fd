"""One loaded model: how clients call it, who uses it, and how it was loaded."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

from ...conversation.embedding import EmbeddingRunner
from ...conversation.generator import Activity, OnGpu
from ...conversation.loading_options import LoraAdapter
from ...conversation.options import CacheOptions, ModelLoadingOptions
from ...conversation.priority import BACKGROUND, INTERACTIVE
from ...conversation.runner import ModelRunner
from ...conversation.wrapping import wrapped
from ...errors import LeapModelNotFoundError, LeapOptionsError
from ...inference.llama.library import other_engine
from ...models.resolving import LocalModel
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from ...tools.deferred_tools import FoldingRunner
from ..http import Refused, queue_full, still_loading

DEFAULT_SLOTS = 8


@dataclass(frozen=True)
class LoadRequest:
    """How a model is wanted. None means: however it is. ``keep_alive`` in seconds, 0 until unloaded.

    ``tool_search``: above so many tokens of declarations, requests' tools are folded.

    ``details``: further fields of ModelLoadingOptions, the details of a host. ``prompt_cache``: the directory for
    snapshots of prompts, ``path``, and the most ``bytes`` in it (None: the default). ``embeds``: a request for vectors
    asks, whatever the model was made for.
    """

    reference: str
    cwd: Path | None = None
    context_size: int | None = None
    cpu_threads: int | None = None
    n_gpu_layers: int | None = None
    slots: int | None = None
    queue: int | None = None
    tool_search: int | None = None
    keep_alive: float | None = None
    chat_template: str | None = None
    details: JsonObject | None = None
    prompt_cache: JsonObject | None = None
    embeds: bool = False

    def options(self) -> ModelLoadingOptions:
        """For loading: prompt snapshots stay in memory across requests, and on disk where that was asked for. Raises
        LeapOptionsError."""
        return ModelLoadingOptions(
            context_size=self.context_size,
            cpu_threads=self.cpu_threads,
            n_gpu_layers="auto" if self.n_gpu_layers is None else self.n_gpu_layers,
            slots=self.slots or DEFAULT_SLOTS,
            chat_template=self.chat_template,
            cache_options=self._cache_options(),
            **(self.details or {}),
        )

    def _cache_options(self) -> CacheOptions:
        if self.prompt_cache is None:
            return CacheOptions.in_memory()
        path, size = Path(self.prompt_cache["path"]), self.prompt_cache.get("bytes")
        return CacheOptions.on_disk(path) if size is None else CacheOptions.on_disk(path, size)


LATELY_SECONDS = 60.0


class Throughput:
    """Tokens of all answers, over the time in which at least one was being generated. Used from one thread."""

    def __init__(self) -> None:
        self.total = 0
        """Tokens of all answers so far."""
        self._answers = 0
        self._busy_since = 0.0
        self._tokens = 0
        self._past: deque[tuple[float, float, int]] = deque()

    def begin(self) -> None:
        """An answer began to come."""
        if self._answers == 0:
            self._busy_since, self._tokens = time.monotonic(), 0
        self._answers += 1

    def add(self, tokens: int) -> None:
        """Some tokens came."""
        self._tokens += tokens
        self.total += tokens

    def end(self) -> None:
        """An answer ended."""
        self._answers -= 1
        if self._answers == 0:
            now = time.monotonic()
            self._past.append((now, now - self._busy_since, self._tokens))
            self._forget(now)

    def tokens_per_second(self) -> float | None:
        """Over the last minute; over the last answers where that was quiet, and None before the first."""
        now = time.monotonic()
        self._forget(now)
        seconds = sum(length for _, length, _ in self._past)
        tokens = sum(count for _, _, count in self._past)
        if self._answers:
            seconds, tokens = seconds + now - self._busy_since, tokens + self._tokens
        return tokens / seconds if tokens and seconds > 0 else None

    def _forget(self, now: float) -> None:
        while len(self._past) > 1 and self._past[0][0] < now - LATELY_SECONDS:
            self._past.popleft()


Runner = ModelRunner | EmbeddingRunner

DEFAULT_KEEP_ALIVE = 600.0
DEFAULT_QUEUE = 256


class LoadedModel:
    """One model. ``name`` is what clients call it; ``key`` is its own for this life of the host. ``on_demand``: a
    request had it loaded, and it may be let go of for another one."""

    def __init__(self, name: str, local: LocalModel, load_request: LoadRequest, *, on_demand: bool = False) -> None:
        self.key = secrets.token_hex(8)
        self.name = name
        self.local = local
        self.load_request = load_request
        self.references: set[str] = set()
        self.options = load_request.options()
        self.version = self._version()
        self.queue = DEFAULT_QUEUE if load_request.queue is None else load_request.queue
        self.tool_search = load_request.tool_search
        self.keep_alive = DEFAULT_KEEP_ALIVE if load_request.keep_alive is None else load_request.keep_alive
        self.runner: Runner | None = None
        self.is_stalled = False
        self.loading: asyncio.Task[None] | None = None
        self.unloading: asyncio.Task[None] | None = None
        self.throughput = Throughput()
        self.on_demand = on_demand
        self.leaving: asyncio.Task[None] | None = None
        """It makes space: those who use it finish, and who comes waits for it to be loaded anew."""
        self.active = 0
        self.reserved = 0
        """Requests that wait until it is loaded, or are about to use it."""
        self.last_used = time.monotonic()
        self.created = int(time.time())
        self.memory: int | None = None
        self.on_gpu = OnGpu()
        self.held = ExitStack()
        self.on_idle: Callable[[], object] = lambda: None
        """It is called when nobody uses it any more, or is about to."""

    @property
    def takes(self) -> int:
        """Bytes of memory and of GPUs together."""
        return (self.memory or 0) + self.on_gpu.memory

    @property
    def in_demand(self) -> bool:
        """Whether somebody uses it, or is about to."""
        return bool(self.active or self.reserved)

    @property
    def state(self) -> str:
        """loading, ready, or unloading."""
        if self.runner is not None and self.unloading is None:
            return "ready"
        return "loading" if self.loading is not None and not self.loading.done() else "unloading"

    @property
    def activity(self) -> Activity | None:
        """What its engine does; None where there is none."""
        return self.runner.activity() if isinstance(self.runner, ModelRunner) else None

    @property
    def expires_in(self) -> float | None:
        """Seconds until it is unloaded, None while it is in use or stays until it is unloaded."""
        if self.keep_alive == 0 or self.in_demand or self.runner is None:
            return None
        return max(0.0, self.last_used + self.keep_alive - time.monotonic())

    def differs(self, load_request: LoadRequest) -> str | None:
        """In what this model differs from the request, if in anything."""
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

    def answers_to(self, name: str) -> bool:
        """Whether a request that names this means the model: its name, key or a reference, adapters behind it or
        not."""
        known = name == self.key or name.lower() == self.name.lower() or name in self.references
        return known or self.named_adapters(name) is not None

    def release(self) -> None:
        """End a reservation."""
        self.reserved -= 1
        if not self.in_demand:
            self.on_idle()

    @contextmanager
    def in_use(self, *, answers: bool = True, priority: int | None = None) -> Iterator[ModelRunner]:
        """Have the runner for one request, which ``answers`` or only asks something of the model. One of a lower level
        leaves half of the queue to others. Raises Refused while it cannot be had, LeapOptionsError for a model that
        makes vectors."""
        queue = self.queue // 2 if (priority or INTERACTIVE) <= BACKGROUND else self.queue
        with self._in_use(answers, queue) as runner:
            if isinstance(runner, EmbeddingRunner):
                raise LeapOptionsError("model", f"{self.name} makes embeddings and cannot answer a prompt")
            yield wrapped(runner, fold=partial(FoldingRunner, most_tokens=self.tool_search))

    @property
    def embeds(self) -> bool:
        """Whether it is loaded, and makes vectors."""
        return isinstance(self.runner, EmbeddingRunner)

    @contextmanager
    def embedder_in_use(self) -> Iterator[EmbeddingRunner]:
        """``in_use`` for a request of vectors. Raises LeapOptionsError for a model that writes."""
        with self._in_use(False, self.queue) as runner:
            if not isinstance(runner, EmbeddingRunner):
                raise LeapOptionsError("model", f"{self.name} is loaded to answer prompts, not for embeddings")
            yield runner

    @contextmanager
    def _in_use(self, answers: bool, queue: int) -> Iterator[Runner]:
        if self.runner is None or self.unloading is not None:
            raise still_loading(self.name) if self.state == "loading" else self._gone()
        if self.active >= self.options.slots + queue:
            raise queue_full(self.name, self.active - self.options.slots)
        self.active += 1
        self.last_used = time.monotonic()
        if answers:
            self.throughput.begin()
        try:
            yield self.runner
        finally:
            self.active -= 1
            if answers:
                self.throughput.end()
            self.last_used = time.monotonic()
            if not self.in_demand:
                self.on_idle()

    def touch(self, keep_alive: float | None) -> None:
        """Begin its time anew, with another keep-alive where one is given."""
        self.last_used = time.monotonic()
        if keep_alive is not None:
            self.keep_alive = keep_alive

    def to_json(self) -> JsonObject:
        """What ``leap ps`` shows, and for clients ``key`` and ``load_request``. Times in seconds, sizes in bytes."""
        speed, activity = self.throughput.tokens_per_second(), self.activity
        return {
            "key": self.key,
            "model": self.name,
            **({"engine": engine} if (engine := other_engine()) else {}),
            "state": self.state,
            "path": str(self.local.path),
            "size": size_of(self.local.path),
            "memory": self.memory,
            "gpu_layers": self.on_gpu.layers,
            "gpu_memory": self.on_gpu.memory,
            "context_size": _size_of_context(self.runner) if self.runner else None,
            "speaks": self.runner.speaks if isinstance(self.runner, ModelRunner) else None,
            "header_names": self.runner.header_names if isinstance(self.runner, ModelRunner) else (),
            "decisions": asdict(self.runner.decision_model) if isinstance(self.runner, ModelRunner) else None,
            "embedding": _of_embedder(self.runner) if isinstance(self.runner, EmbeddingRunner) else None,
            "slots": self.options.slots,
            "slots_in_use": min(self.active, self.options.slots),
            "waiting": max(0, self.active - self.options.slots),
            "waiting_by_level": {} if activity is None else dict(activity.waiting_by_level),
            "reading": [] if activity is None else [each.to_json() for each in activity.reading],
            "tokens_per_second": None if speed is None else round(speed, 1),
            "on_demand": self.on_demand,
            "keep_alive": self.keep_alive,
            "expires_in": None if self.expires_in is None else round(self.expires_in, 1),
            "wish": self._to_load_again(),
        }

    def _to_load_again(self) -> JsonObject:
        """How to have this model loaded once more."""
        request = self.load_request
        return {**asdict(request), "cwd": str(request.cwd or ""), "keep_alive": self.keep_alive}

    def _gone(self) -> Refused:
        return Refused(
            404, "model_not_found", LeapModelNotFoundError(f"{self.name} was unloaded", hint="load it again")
        )


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


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """Distinguishes a file from one that was put in its place later."""
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


def size_of_files(local: LocalModel, options: ModelLoadingOptions) -> int:
    """Bytes of all files that are loaded for a model: the least that it takes."""
    adapters = options.adapters or local.adapters
    projector, decoder = options.mm_proj_path or local.mm_proj_path, local.audio_decoder_path
    companions = [projector, decoder, local.audio_tokenizer_path, *(adapter.path for adapter in adapters)]
    return sum(size_of(path) for path in (local.path, *companions) if path is not None)


def size_of(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
