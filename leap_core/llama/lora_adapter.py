"""LoRA adapters: small matrices that are added to those of their model."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..errors import LeapGenerationError, LeapModelLoadingError
from .library import forget_errors, last_errors, library
from .model import LlamaModel


class LlamaAdapter:
    """A GGUF adapter loaded for ``model``, with which it is freed. Check the file with ``models.gguf.adapter_checks``
    first. ``id`` (16 bytes) names its content. Raises LeapModelLoadingError."""

    def __init__(self, path: Path, model: LlamaModel) -> None:
        self.path = path
        self.id = content_id(path)
        forget_errors()
        self.pointer: Any = library().llama_adapter_lora_init(model.pointer, os.fsencode(path))
        if not self.pointer:
            raise LeapModelLoadingError(
                f"llama.cpp cannot use the adapter {path} with {model.path.name}: {last_errors() or 'no reason given'}",
                hint="an adapter belongs to the model it was trained on",
            )


Adapters = Sequence[tuple[LlamaAdapter, float]]
"""Adapters with their scales."""


def switch_adapters(context: Any, adapters: Adapters) -> None:
    """Compute with these adapters and scales in a llama.cpp context from now on; none clears them. Raises
    LeapGenerationError."""
    lib, count = library(), len(adapters)
    pointers = (lib.llama_adapter_lora_p_ctypes * count)(*(adapter.pointer for adapter, _ in adapters))
    scales = (ctypes.c_float * count)(*(scale for _, scale in adapters))
    if lib.llama_set_adapters_lora(context, pointers, count, scales) != 0:
        raise LeapGenerationError(f"llama.cpp cannot set the adapters: {last_errors() or 'no reason given'}")


def content_id(path: Path) -> bytes:
    """Names the content of a file (16 bytes). Raises OSError."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.digest()
