"""How a client wants a model to be loaded."""

from __future__ import annotations

from ....json_fields import JsonObject
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....options import CacheOptions, ModelLoadingOptions

DEFAULT_SLOTS = 8


@dataclass(frozen=True)
class LoadRequest:
    """How a model is wanted. None means: however it is. ``keep_alive`` in seconds, 0 until unloaded.

    ``details``: further fields of ModelLoadingOptions, those of ``DETAILS``. ``prompt_cache``: the directory for
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
