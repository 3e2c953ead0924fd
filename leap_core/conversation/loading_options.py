"""Options of loading a model, of the cache of prompts that it keeps, and of LoRA adapters."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from ..errors import LeapModelNotFoundError, LeapOptionsError
from ..system.dataclass import dataclass
from .option_rows import (
    SAME,
    FilePath,
    Host,
    Number,
    OneOf,
    OptionKind,
    OptionRow,
    Several,
    Switch,
    Whole,
    Words,
    keep_checked,
    option,
    rows_of,
    suggestion,
)

SCALE = Number(-math.inf)


@dataclass(frozen=True)
class LoraAdapter:
    """A GGUF file with an adapter, and how strongly it works: ``scale`` 1.0 as trained, 0.0 not at all."""

    path: Path
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)) or not os.fspath(self.path):
            raise LeapOptionsError("adapters", f"{self.path!r} is not a path")
        object.__setattr__(self, "path", Path(self.path))
        SCALE.read("adapters", self.scale)

    def to_json(self) -> dict[str, Any]:
        """With an absolute path, so that it means the same in another process."""
        return {"path": os.path.abspath(self.path), "scale": self.scale}

    @staticmethod
    def parse(text: str) -> LoraAdapter:
        """Read ``PATH`` or ``PATH=SCALE``. Raises LeapOptionsError."""
        path, equals, scale = text.rpartition("=")
        if equals:
            try:
                return LoraAdapter(Path(path), float(scale))
            except ValueError:
                pass  # the name of a file may have the sign in it
        return LoraAdapter(Path(text))


def adapters_of(value: object) -> tuple[LoraAdapter, ...]:
    """Adapters from themselves, paths, or objects with ``path`` and ``scale``. Raises LeapOptionsError."""
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise LeapOptionsError("adapters", f"{value!r} is not a list of adapters")
    return tuple(map(_adapter_of, value))


def refuse_adapters(adapters: object, model: str = "MODEL") -> None:
    """See to it that the client of a server names no file of it as an adapter. Raises LeapOptionsError."""
    if adapters:
        raise LeapOptionsError("adapters", f"clients name no files; ask for the model {model}+ADAPTER")


def existing_adapters(value: object) -> tuple[LoraAdapter, ...]:
    """``adapters_of``; raises LeapModelNotFoundError for a file that is not there."""
    adapters = adapters_of(value)
    for adapter in adapters:
        if not adapter.path.exists():
            raise LeapModelNotFoundError(f"there is no adapter {adapter.path}")
    return adapters


def _adapter_of(value: object) -> LoraAdapter:
    if isinstance(value, LoraAdapter):
        return value
    if isinstance(value, Mapping) and set(value) <= {"path", "scale"} and "path" in value:
        return LoraAdapter(value["path"], value.get("scale", 1.0))
    if isinstance(value, (str, os.PathLike)):
        return LoraAdapter(Path(value))
    raise LeapOptionsError("adapters", f"{value!r} is no adapter")


class Adapters(OptionKind):
    """LoRA adapters: themselves, paths, or objects with ``path`` and ``scale``."""

    def read(self, name: str, value: Any) -> Any:
        return adapters_of(value)

    def to_json(self, value: Any) -> Any:
        return None if value is None else [adapter.to_json() for adapter in value]

    def schema(self) -> dict[str, Any]:
        adapter = {"path": {"type": "string", "minLength": 1}, "scale": {"type": "number"}}
        return {"type": "array", "items": {"type": "object", "properties": adapter, "required": ["path"]}}


Kind = TypeVar("Kind")


def refusing_unknown(kind: type[Kind]) -> type[Kind]:
    """A dataclass of options whose constructor raises LeapOptionsError for a name that is not one of them."""
    fill: Callable[..., None] = kind.__init__
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]

    @wraps(fill)
    def checked(self: Kind, *values: object, **options: object) -> None:
        for name in options:
            if name not in names:
                raise LeapOptionsError(name, f"there is no such option{suggestion(name, names)}")
        fill(self, *values, **options)

    kind.__init__ = checked  # type: ignore[assignment]
    return kind


def read_extras(rows: Mapping[str, OptionRow], text: str) -> dict[str, Any]:
    """The options of these ``rows`` in an ``extras`` text; what is no number, text, list or boolean cannot be given
    there. Raises LeapOptionsError."""
    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LeapOptionsError("extras", f"not JSON: {error}") from None
    if not isinstance(options, dict):
        raise LeapOptionsError("extras", "must be a JSON object")
    for name in options:
        if name not in rows or not rows[name].extras:
            raise LeapOptionsError(f"extras.{name}", "there is no such option")
    return options


KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0")


@refusing_unknown
@dataclass(frozen=True)
class CacheOptions:
    """Prompt snapshots: state of the model after a prompt's beginning, kept to be restored instead of recomputed.

    ``enabled`` alone switches it on. ``path`` is a directory that processes may share. Bounds, least recently used
    first out: ``max_entries_disk`` (0 = 4,096), ``max_bytes_disk``, ``max_entries_memory``, ``max_bytes_memory``.
    """

    path: Path | None = option(FilePath())
    enabled: bool = option(Switch(), False)
    max_entries_disk: int = option(Whole(), 0)
    max_bytes_disk: int = option(Whole(), 8 * 1024**3)
    max_entries_memory: int = option(Whole(), 256)
    max_bytes_memory: int = option(Whole(), 512 * 1024**2)
    disk_disabled: bool = option(Switch(), False)

    def __post_init__(self) -> None:
        keep_checked(self, CACHE)

    @classmethod
    def in_memory(cls, max_bytes: int = 512 * 1024**2) -> CacheOptions:
        """Snapshots that end with the process, ``max_bytes`` of them at most."""
        return cls(enabled=True, disk_disabled=True, max_bytes_memory=max_bytes)

    @classmethod
    def on_disk(cls, path: Path, max_bytes: int = 8 * 1024**3) -> CacheOptions:
        """Snapshots in a directory that outlive the process, ``max_bytes`` of them at most."""
        return cls(path=Path(path), enabled=True, max_bytes_disk=max_bytes)

    @property
    def disk_entries(self) -> int:
        """``max_entries_disk`` with its default filled in."""
        return self.max_entries_disk or 4096


CACHE = rows_of(CacheOptions)


class _Cache(OptionKind):
    def read(self, name: str, value: Any) -> Any:
        if not isinstance(value, CacheOptions):
            raise LeapOptionsError(name, "must be CacheOptions")
        return value


LIMIT = "llama.cpp's limit"
"""Whose larger numbers would wrap around."""


@refusing_unknown
@dataclass(frozen=True)
class ModelLoadingOptions:
    """How a model is loaded. None means the default in every field.

    Raises LeapOptionsError for a value outside its range.
    """

    context_size: int | None = option(
        Whole(8, 2**31 - 1, LIMIT),
        host=Host.FIELD,
        common=True,
        text="Context window in tokens, prompt and answer together.",
    )
    """Most tokens of one sequence, from 8; None: the model's own, at most 8,192."""
    cpu_threads: int | None = option(
        Whole(1, 512, LIMIT), host=Host.FIELD, model="threads", flag="--threads", text="Number of CPU threads to use."
    )
    """Threads, 1 to 512; None: the physical cores that this process may use."""
    n_gpu_layers: int | str = option(
        Whole(-1, 2**31 - 1, LIMIT, word="auto"),
        0,
        host=Host.FIELD,
        flag="--gpu-layers",
        common=True,
        text="Offload this many layers to GPUs; -1 is all, auto (default) as many as fit.",
    )
    """Layers on a GPU: a number, -1 for all, "auto" for as many as fit into its free memory."""
    devices: Sequence[str] = option(Several(str, "names"), (), host=Host.DETAIL)
    """The GPUs by their names in ``leap doctor``; () for all, ("none",) for none."""
    tensor_split: Sequence[float] = option(
        Several((int, float), "numbers"),
        (),
        host=Host.DETAIL,
        text="Split the model across GPUs in these proportions, such as 3,1.",
    )
    """How much goes to each GPU, in proportion; () is by free memory."""
    cpu_moe: int = option(Whole(-1), 0, host=Host.DETAIL)
    """The first layers whose experts stay on the processor, -1 for all."""
    use_mmap: bool = option(
        Switch(), True, host=Host.DETAIL, flag="--mmap", text="Memory-map the model file (default), or read it."
    )
    """Map the file instead of reading it."""
    chat_template: str | None = option(Words(), host=Host.FIELD, model=SAME)
    """Jinja text that replaces the model's template."""
    random_seed: int | None = option(Whole(), host=Host.DETAIL)
    """Seed of generations that give none, from 0; None: a new one each time."""
    cache_options: CacheOptions = option(
        _Cache(), factory=CacheOptions, host=Host.APART, extras=False, opens_files=True
    )
    """Prompt snapshots; off by default."""
    slots: int = option(Whole(1, 256, LIMIT), 4, host=Host.APART)
    """Sequences that run at once, 1 to 256."""
    batch_size: int = option(
        Whole(1, 2**31 - 1, LIMIT),
        512,
        host=Host.DETAIL,
        text="Process at most this many prompt tokens per step; 512 by default.",
    )
    """Most prompt tokens that are computed in one step, from 1 (at least one for each slot)."""
    flash_attention: bool = option(Switch(), True, host=Host.DETAIL, text="Use flash attention (default) or not.")
    """Use flash attention."""
    kv_type_k: str | None = option(
        OneOf(KV_TYPES),
        host=Host.DETAIL,
        text="KV cache type of the keys (default: bf16, or f16 on a GPU and for K-quants).",
    )
    """Type of the keys in the KV cache; ``kv_types`` says what None means."""
    kv_type_v: str | None = option(
        OneOf(KV_TYPES), host=Host.DETAIL, text="KV cache type of the values; f16 by default."
    )
    """Type of the values in the KV cache, as ``kv_type_k``."""
    mm_proj_path: Path | None = option(FilePath(), host=Host.DETAIL, model=SAME, opens_files=True)
    """The projector of a model for images or audio; None: the one beside the model."""
    audio_decoder_path: Path | None = option(FilePath(), opens_files=True)
    """The vocoder of a model that speaks; None: the one beside the model."""
    audio_tokenizer_path: Path | None = option(FilePath(), opens_files=True)
    """The audio tokenizer of a model that speaks; None: the one beside the model."""
    media_cache_bytes: int = option(Whole(), 256 * 1024**2)
    """Most bytes of memory for images and audio that were encoded already, from 0."""
    adapters: Sequence[LoraAdapter] = option(
        Adapters(), (), host=Host.DETAIL, model=SAME, extras=False, opens_files=True
    )
    """LoRA adapters of generations that name none."""
    prompt_lookup: bool = option(
        Switch(),
        False,
        host=Host.DETAIL,
        text="Speculative decoding with n-grams of the prompt: faster where the answer repeats it; off by default.",
    )
    """Draft tokens from the prompt and the answer (speculative decoding); the answer is the same."""
    deterministic: bool = option(
        Switch(),
        False,
        host=Host.DETAIL,
        text="On a CPU, give the same request the same answer with weights of any type; prompts are processed more "
        "slowly.",
    )
    """Compute each position alone, so that the same request gives the same answer with weights of any type, after any
    history and beside any neighbors. Prompts take about three times as long. Not together with ``prompt_lookup``."""
    engine: str | None = option(
        Words(), host=Host.APART, text="Use this engine (llama.cpp build) of `leap engine list`."
    )
    """The name of the llama.cpp build that runs the model; None: the one that is set. A process runs one."""
    extras: str | None = option(Words(), extras=False, opens_files=True)
    """JSON text: an object of options by these names, which win over the fields."""

    def __post_init__(self) -> None:
        keep_checked(self, LOADING)
        if self.deterministic and self.prompt_lookup:
            raise LeapOptionsError(
                "deterministic", "each position is computed alone, so that prompt_lookup has nothing to verify at once"
            )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ModelLoadingOptions:
        """Read what was stored; an unknown name raises LeapOptionsError."""
        return cls(**value)

    def kv_types(self, gpu_layers: int, *, is_coarse: bool = False) -> tuple[str, str]:
        """How the context keeps keys and values. On a CPU of two kinds, by default bf16 and f16, for which llama.cpp
        has one way to compute attention, however many positions and threads a step has. For two of the kind f16 it has
        three that round differently, and reads prompts faster: they are the default where the products of the weights
        differ more than these ways (``is_coarse``), unless ``deterministic``. A GPU has no such mixture."""
        key, value = self.kv_type_k, self.kv_type_v
        if not self.flash_attention or gpu_layers or (is_coarse and not self.deterministic):
            return key or "f16", value or "f16"
        key = key or ("f16" if value == "bf16" else "bf16")
        return key, value or ("bf16" if key != "bf16" else "f16")

    def changed(self) -> dict[str, OptionRow]:
        """The rows of those that are not left at their defaults."""
        return {name: row for name, row in LOADING.items() if getattr(self, name) != row.default}

    def details(self) -> dict[str, Any]:
        """The details of a request to a model host that are set, as JSON holds them."""
        changed = self.changed().items()
        return {name: row.kind.to_json(getattr(self, name)) for name, row in changed if row.host is Host.DETAIL}

    def with_extras(self) -> ModelLoadingOptions:
        """These options with what ``extras`` says. Raises LeapOptionsError for what it cannot say."""
        return self if self.extras is None else replace(self, extras=None, **read_extras(LOADING, self.extras))


LOADING = rows_of(ModelLoadingOptions)
