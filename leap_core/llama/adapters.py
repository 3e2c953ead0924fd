"""A LoRA adapter in memory: small matrices that are added to those of its model."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..errors import LeapModelLoadingError
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


def content_id(path: Path) -> bytes:
    """Names the content of a file (16 bytes). Raises OSError."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.digest()
