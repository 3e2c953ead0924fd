"""What a model is, can do and will take, from the headers of its files: nothing is loaded."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ....errors import LeapError
from ....models.gguf.header import GGUFHeader, read_gguf_header
from ....models.gguf.memory import memory_of
from ....models.references.resolving import LocalModel
from ....options import ModelLoadingOptions
from .loaded_model import size_of_files

EMBEDDING = "embedding"
LARGEST_DEFAULT_CONTEXT = 8192


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


def foreseen_memory(local: LocalModel, options: ModelLoadingOptions) -> int:
    """Bytes that a model will take: all its files, and what contexts and computing need. Those of the files where the
    header cannot be read."""
    files, header = size_of_files(local, options), header_of(local.path)
    if header is None:
        return files
    trained = header.context_length or LARGEST_DEFAULT_CONTEXT
    context = options.context_size or min(trained, LARGEST_DEFAULT_CONTEXT)
    takes = memory_of(header, context_size=context, slots=options.slots, kv_types=options.kv_types(0))
    return files + takes.context + takes.computing
