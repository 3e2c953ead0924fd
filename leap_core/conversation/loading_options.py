"""Options of loading a model, of the cache of prompts that it keeps, and of LoRA adapters."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from ..errors import LeapModelNotFoundError, LeapOptionsError
from ..system.dataclass import dataclass


@dataclass(frozen=True)
class LoraAdapter:
    """A GGUF file with an adapter, and how strongly it works: ``scale`` 1.0 as trained, 0.0 not at all."""

    path: Path
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)) or not os.fspath(self.path):
            raise LeapOptionsError("adapters", f"{self.path!r} is not a path")
        object.__setattr__(self, "path", Path(self.path))
        scale = self.scale
        if not isinstance(scale, (int, float)) or isinstance(scale, bool) or not math.isfinite(scale):
            raise LeapOptionsError("adapters", f"{scale!r} is not a finite number")

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


LARGEST = 2**64 - 1
"""The largest whole number of an option."""
CLOSED_TO_EXTRAS = {"extras", "cache_options", "logit_bias", "function_call_parser", "adapters"}
"""Options that ``extras`` cannot give."""


def plain_number(value: object) -> object:
    """A number of Python for one of numpy's, which no JSON can hold; anything else as it is."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()  # type: ignore[attr-defined]
    return value


def suggestion(name: str, names: Iterable[str]) -> str:
    """ "; did you mean 'x'?" where a name is like one of ``names``, else nothing."""
    from difflib import get_close_matches

    near = get_close_matches(name, names, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


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


def is_finite(value: float) -> bool:
    """Whether a float can hold it."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer larger than any float
        return False


def are_texts(value: object) -> bool:
    """Whether this is a list of texts, none of them empty."""
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(text, str) and text for text in value)


def check_number(name: str, value: object, low: float, high: float) -> None:
    """Raises LeapOptionsError unless the value is None or a finite number from ``low`` to ``high``."""
    if value is None:
        return
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not is_finite(value):
        raise LeapOptionsError(name, f"{value!r} is not a finite number")
    if not low <= value <= high:
        limits = f"{low:g} or more" if high == math.inf else f"between {low:g} and {high:g}"
        raise LeapOptionsError(name, f"{value!r} must be {limits}")


def check_integer(name: str, value: object, low: int) -> None:
    """Raises LeapOptionsError unless the value is None or a whole number from ``low`` on."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise LeapOptionsError(name, f"{value!r} is not a whole number")
    if value < low:
        raise LeapOptionsError(name, f"{value} must be {low} or more")
    if value > LARGEST:
        raise LeapOptionsError(name, f"{value} must be {LARGEST} or less")


def read_extras(names: Collection[str], text: str) -> dict[str, Any]:
    """The plain options of these ``names`` in an ``extras`` text; what is no number, text, list or boolean cannot be
    given there. Raises LeapOptionsError."""
    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LeapOptionsError("extras", f"not JSON: {error}") from None
    if not isinstance(options, dict):
        raise LeapOptionsError("extras", "must be a JSON object")
    for name in options:
        if name not in names or name in CLOSED_TO_EXTRAS:
            raise LeapOptionsError(f"extras.{name}", "there is no such option")
    return options


DETAILS = (
    *("flash_attention", "kv_type_k", "kv_type_v", "use_mmap", "batch_size"),
    *("random_seed", "prompt_lookup", "deterministic", "mm_proj_path", "adapters"),
    *("devices", "tensor_split", "cpu_moe"),
)
"""Options beside the common ones that a model host follows."""
MOST = {"slots": 256, "cpu_threads": 512} | dict.fromkeys(("context_size", "batch_size", "n_gpu_layers"), 2**31 - 1)
"""What llama.cpp takes; a larger number would wrap around."""
KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0")


@refusing_unknown
@dataclass(frozen=True)
class CacheOptions:
    """Prompt snapshots: state of the model after a prompt's beginning, kept to be restored instead of recomputed.

    ``enabled`` alone switches it on. ``path`` is a directory that processes may share. Bounds, least recently used
    first out: ``max_entries_disk`` (0 = 4,096), ``max_bytes_disk``, ``max_entries_memory``, ``max_bytes_memory``.
    """

    path: Path | None = None
    enabled: bool = False
    max_entries_disk: int = 0
    max_bytes_disk: int = 8 * 1024**3
    max_entries_memory: int = 256
    max_bytes_memory: int = 512 * 1024**2
    disk_disabled: bool = False

    def __post_init__(self) -> None:
        for name in ("max_entries_disk", "max_bytes_disk", "max_entries_memory", "max_bytes_memory"):
            check_integer(name, getattr(self, name), 0)

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


@refusing_unknown
@dataclass(frozen=True)
class ModelLoadingOptions:
    """How a model is loaded. None means the default in every field.

    Raises LeapOptionsError for a value outside its range.
    """

    context_size: int | None = None
    """Most tokens of one sequence, from 8; None: the model's own, at most 8,192."""
    cpu_threads: int | None = None
    """Threads, 1 to 512; None: the physical cores that this process may use."""
    n_gpu_layers: int | str = 0
    """Layers on a GPU: a number, -1 for all, "auto" for as many as fit into its free memory."""
    devices: Sequence[str] = ()
    """The GPUs by their names in ``leap doctor``; () for all, ("none",) for none."""
    tensor_split: Sequence[float] = ()
    """How much goes to each GPU, in proportion; () is by free memory."""
    cpu_moe: int = 0
    """The first layers whose experts stay on the processor, -1 for all."""
    use_mmap: bool = True
    """Map the file instead of reading it."""
    chat_template: str | None = None
    """Jinja text that replaces the model's template."""
    random_seed: int | None = None
    """Seed of generations that give none, from 0; None: a new one each time."""
    cache_options: CacheOptions = field(default_factory=CacheOptions)
    """Prompt snapshots; off by default."""
    slots: int = 4
    """Sequences that run at once, 1 to 256."""
    batch_size: int = 512
    """Most prompt tokens that are computed in one step, from 1 (at least one for each slot)."""
    flash_attention: bool = True
    """Use flash attention."""
    kv_type_k: str | None = None
    """Type of the keys in the KV cache: f32, f16, bf16, q8_0 or q4_0; ``kv_types`` says what None means."""
    kv_type_v: str | None = None
    """Type of the values in the KV cache, as ``kv_type_k``."""
    mm_proj_path: Path | None = None
    """The projector of a model for images or audio; None: the one beside the model."""
    audio_decoder_path: Path | None = None
    """The vocoder of a model that speaks; None: the one beside the model."""
    audio_tokenizer_path: Path | None = None
    """The audio tokenizer of a model that speaks; None: the one beside the model."""
    media_cache_bytes: int = 256 * 1024**2
    """Most bytes of memory for images and audio that were encoded already, from 0."""
    adapters: Sequence[LoraAdapter] = ()
    """LoRA adapters of generations that name none."""
    prompt_lookup: bool = False
    """Draft tokens from the prompt and the answer (speculative decoding); the answer is the same."""
    deterministic: bool = False
    """Compute each position alone, so that the same request gives the same answer with weights of any type, after any
    history and beside any neighbors. Prompts take about three times as long. Not together with ``prompt_lookup``."""
    engine: str | None = None
    """The name of the llama.cpp build that runs the model; None: the one that is set. A process runs one."""
    extras: str | None = None
    """JSON text: an object of options by these names, which win over the fields."""

    def __post_init__(self) -> None:
        for f in fields(self):
            if getattr(self, f.name) is None and f.default is not None:  # None means the default everywhere
                default = CacheOptions() if f.name == "cache_options" else f.default
                object.__setattr__(self, f.name, default)
        for name in ("mm_proj_path", "audio_decoder_path", "audio_tokenizer_path"):
            if isinstance(getattr(self, name), str):  # as JSON holds it
                object.__setattr__(self, name, Path(getattr(self, name)))
        if self.adapters != ():
            object.__setattr__(self, "adapters", adapters_of(self.adapters))
        for name in ("use_mmap", "flash_attention", "prompt_lookup", "deterministic"):
            if not isinstance(getattr(self, name), bool):
                raise LeapOptionsError(name, f"{getattr(self, name)!r} is not true or false")
        if self.deterministic and self.prompt_lookup:
            raise LeapOptionsError(
                "deterministic", "each position is computed alone, so that prompt_lookup has nothing to verify at once"
            )
        for name in ("chat_template", "engine"):
            if not isinstance(getattr(self, name), (str, type(None))):
                raise LeapOptionsError(name, f"{getattr(self, name)!r} is not a text")
        if not isinstance(self.cache_options, CacheOptions):
            raise LeapOptionsError("cache_options", "must be CacheOptions")
        for name, low in (
            ("context_size", 8),
            ("cpu_threads", 1),
            ("slots", 1),
            ("batch_size", 1),
            ("media_cache_bytes", 0),
        ):
            check_integer(name, getattr(self, name), low)
        if self.n_gpu_layers != "auto":
            check_integer("n_gpu_layers", self.n_gpu_layers, -1)
        check_integer("cpu_moe", self.cpu_moe, -1)
        for name, kind in (("devices", str), ("tensor_split", (int, float))):
            values = getattr(self, name)
            is_fit = not isinstance(values, str) and all(isinstance(each, kind) for each in values)
            if not is_fit or (kind is not str and not all(0 <= each < math.inf for each in values)):
                raise LeapOptionsError(name, f"{values!r} is not a list of {'names' if kind is str else 'numbers'}")
            object.__setattr__(self, name, tuple(values))
        check_integer("random_seed", self.random_seed, 0)
        for name, most in MOST.items():
            value = getattr(self, name)
            if isinstance(value, int) and value > most:
                raise LeapOptionsError(name, f"{value} must be {most} or fewer (llama.cpp's limit)")
        for name in ("kv_type_k", "kv_type_v"):
            if getattr(self, name) not in (*KV_TYPES, None):
                raise LeapOptionsError(name, f"{getattr(self, name)!r} is not one of {', '.join(KV_TYPES)}")

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

    def details(self) -> dict[str, Any]:
        """Those of DETAILS that are set, as JSON holds them."""
        plain = ModelLoadingOptions()
        changed = {name: getattr(self, name) for name in DETAILS if getattr(self, name) != getattr(plain, name)}
        if "adapters" in changed:
            changed["adapters"] = [adapter.to_json() for adapter in self.adapters]
        if self.mm_proj_path is not None:
            changed["mm_proj_path"] = str(self.mm_proj_path)
        return changed

    def with_extras(self) -> ModelLoadingOptions:
        """These options with what ``extras`` says. Raises LeapOptionsError for what it cannot say."""
        return (
            self
            if self.extras is None
            else replace(self, extras=None, **read_extras([f.name for f in fields(self)], self.extras))
        )
