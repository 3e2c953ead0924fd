"""What a model is, can do and will take, from the headers of its files; and which models requests may have loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...conversation.embedding import require_pooling
from ...conversation.generator import OnGpu
from ...conversation.options import ModelLoadingOptions
from ...errors import LeapError, LeapModelNotDownloadedError, LeapModelNotFoundError, LeapOptionsError
from ...inference.gguf.header import GGUFHeader, read_gguf_header
from ...inference.gguf.offloading import Offload, memory_beside, offload_of, reserve_of
from ...models.aliases_and_endpoints import BUILTINS, MODEL_ENDINGS
from ...models.other_programs import OtherModel
from ...models.resolving import LocalModel, Registry, resolve_local
from ...system.dataclass import dataclass
from .loaded_model import LoadRequest, size_of_files

EMBEDDING = "embedding"
LARGEST_DEFAULT_CONTEXT = 8192


def header_to_list(local: LocalModel) -> GGUFHeader | None:
    """The header of a model that is listed and not loaded: other programs may have hundreds, which are not opened."""
    return None if local.owner is not None else header_of(local.path)


def header_of(path: Path) -> GGUFHeader | None:
    """The header of a file, None for one that cannot be read."""
    try:
        status = path.stat()
        return _header_of(path, status.st_size, status.st_mtime_ns)
    except (OSError, LeapError):
        return None


@lru_cache(maxsize=64)
def _header_of(path: Path, _size: int, _changed: int) -> GGUFHeader:
    return read_gguf_header(path)


def kind_of(local: LocalModel) -> str:
    """text, vision, audio, or embedding for a model that makes vectors and writes nothing."""
    header = header_of(local.path)
    return EMBEDDING if header is not None and header.pooling is not None else local.kind


def check_kind(load_request: LoadRequest) -> None:
    """Raises LeapOptionsError, before the weights are read, for a model that writes where vectors are wanted, and for
    one of vectors where an answer is."""
    local = resolve_local(load_request.reference, cwd=load_request.cwd)
    if (kind_of(local) == EMBEDDING) is load_request.embeds or header_of(local.path) is None:
        return
    if load_request.embeds:
        require_pooling(local.model_id, None)
    raise LeapOptionsError("model", f"{local.model_id} makes embeddings and cannot answer a prompt")


def abilities_of(local: LocalModel) -> list[str]:
    """Ollama's names of what a model can do, and ``speech``."""
    header = header_of(local.path)
    template = local.chat_template or (header.chat_template if header else None) or ""
    kind = kind_of(local)
    abilities = {
        "completion": kind != EMBEDDING,
        EMBEDDING: kind == EMBEDDING,
        "vision": kind == "vision",
        "audio": kind == "audio",
        "speech": local.audio_decoder_path is not None,
        "tools": "tools" in template,
        "thinking": "<think>" in template or "enable_thinking" in template,
    }
    return [name for name, has in abilities.items() if has]


def foreseen_memory(local: LocalModel, options: ModelLoadingOptions, on_gpu: OnGpu | None = None) -> int:
    """Bytes that a model will take: all its files, and what contexts and computing need. Those of the files where the
    header cannot be read. ``on_gpu``: without what is there."""
    files, header = size_of_files(local, options), header_of(local.path)
    if header is None:
        return files
    offload = offload_of(header, options, on_gpu.layers, [0]) if on_gpu is not None and on_gpu.layers else Offload()
    takes = memory_beside(header, options, offload)
    moved = sum(tensor.size_bytes for tensor in header.tensors) - takes.weights
    return files - moved + takes.context + takes.computing


def fits_on_gpus(local: LocalModel, options: ModelLoadingOptions) -> bool:
    """Whether all layers that may be on GPUs would fit there now, or no GPU is there."""
    from ...inference.model_parts import placement_for

    wanted = replace(options, mm_proj_path=options.mm_proj_path or local.mm_proj_path)
    placement = placement_for(local.path, replace(wanted, n_gpu_layers=-1) if wanted.n_gpu_layers == "auto" else wanted)
    free = [device.free - reserve_of(device.free) for device in placement.devices]
    return all(need <= room for need, room in zip(placement.needs, free, strict=False))


NAME = re.compile(r"\w[\w .+@()-]*([:/]\w[\w .+@()-]*){0,5}")
WILDCARDS = re.compile(r"[*?\[]")
EVERY = "*"


LONGEST_NAME = 500
"""Characters of a model's name with its adapters: each comparison with a longer one costs time and memory."""


def check_length(name: str | None) -> None:
    """Raises LeapModelNotFoundError for what is too long to be a name."""
    if name is not None and len(name) > LONGEST_NAME:
        raise LeapModelNotFoundError(
            f"there is no model {name[:80] + '…'!r}", hint=f"a name has {LONGEST_NAME} characters at most"
        )


def check_name(name: str) -> None:
    """Raises LeapModelNotFoundError for what could be a path: a request cannot reach files."""
    check_length(name)
    if not NAME.fullmatch(name) or name.lower().endswith(MODEL_ENDINGS):
        raise LeapModelNotFoundError(f"there is no model {name[:80]!r}", hint="name an installed model")


@dataclass(frozen=True)
class Offer:
    """``patterns``: references to models, or names with ``*`` and ``?`` in them. ``default`` answers requests that name
    no model. ``loading``: see ``LoadRequest``."""

    patterns: Sequence[str] = (EVERY,)
    cwd: Path | None = None
    default: str | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raises LeapModelNotFoundError for a name or a pattern that means no model."""
        for pattern in self.patterns:
            if not WILDCARDS.search(pattern):
                resolve_local(pattern, cwd=self.cwd)
            elif pattern != EVERY and not self._matching(Registry(cwd=self.cwd), pattern):
                raise LeapModelNotFoundError(
                    f"no installed model is called {pattern!r}", hint="leap models list shows what there is"
                )

    def models(self) -> dict[str, LocalModel]:
        """All models that can be had now, by the references that load them. It reads the disk."""
        found: dict[Path, tuple[str, LocalModel]] = {}
        registry = Registry(cwd=self.cwd)
        for pattern in self.patterns:
            names = self._matching(registry, pattern) if WILDCARDS.search(pattern) else {pattern: None}
            for reference, other in names.items():
                with suppress(LeapError):  # removed or damaged meanwhile: a request that names it gets the error
                    local = registry.of_other(other) if other else registry.resolve(reference)
                    found.setdefault(local.path, (reference, local))
        return dict(found.values())

    def load_request(self, name: str | None) -> LoadRequest:
        """How to load the model that a request names. Raises LeapModelNotFoundError for one that is not offered."""
        if name is None:
            if self.default is None:
                raise LeapModelNotFoundError("no model was named", hint="GET /v1/models lists those that there are")
            return self._request(self.default)
        check_length(name)
        for pattern in self.patterns:
            if pattern.lower() == name.lower() and not WILDCARDS.search(pattern):
                return self._request(pattern)
        offered = self.models()
        for reference, local in offered.items():
            if name.lower() in (local.model_id.lower(), reference.lower()):
                return self._request(reference)
        names = [name, *(name[: plus.start()] for plus in re.finditer(r"\+", name))]
        for part in names:  # behind a plus comes an adapter
            with suppress(LeapModelNotFoundError):
                check_name(part)
                path = resolve_local(part, cwd=self.cwd).path
                for reference, local in offered.items():
                    if local.path == path:
                        return self._request(reference)
        check_name(name)
        try:
            resolve_local(name, cwd=self.cwd)
        except LeapModelNotDownloadedError:
            raise
        except LeapError:  # it might say which files there are
            pass
        raise LeapModelNotFoundError(f"the model {name!r} is not offered", hint="GET /v1/models lists those that are")

    def _request(self, reference: str) -> LoadRequest:
        return LoadRequest(reference, cwd=self.cwd, **self.loading)

    def _matching(self, registry: Registry, pattern: str) -> dict[str, OtherModel | None]:
        """What a pattern means: references of installed models, of those that leap brings along, and of those of other
        programs, which come with the model."""
        text, found = pattern.lower(), dict[str, OtherModel | None]()
        for model in registry.store.installed():
            names = (model.name.lower(), model.model.lower())
            if model.state == "ready" and any(fnmatchcase(name, text) for name in names):
                found[model.name] = None
        found |= {name: None for name in BUILTINS if fnmatchcase(name, text)}
        return found | {each.reference: each for each in registry.others.models if fnmatchcase(each.name.lower(), text)}
