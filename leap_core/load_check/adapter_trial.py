"""What the child process does with a LoRA adapter to see whether llama.cpp survives it: load it beside its model and
compute with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import LeapModelLoadingError
from ..llama.context import LlamaContext
from ..llama.lora_adapter import LlamaAdapter
from ..llama.model import LlamaModel
from ..models.gguf.adapter_checks import check_adapter
from ..models.gguf.header import read_gguf_header
from ..options import ModelLoadingOptions
from .model_trial import CELLS, THREADS, decode_shortly, short_prompt


def try_adapter(path: Path, beside: Mapping[str, Path], stage: Callable[..., object]) -> dict[str, Any]:
    """Compute with the adapter at ``path``; ``beside`` names its model. Raises LeapModelLoadingError for one that
    llama.cpp refuses or whose answers are no numbers."""
    check_adapter(read_gguf_header(path), read_gguf_header(beside["model"]))
    stage("loading the model")
    model = LlamaModel(beside["model"])
    tokens = short_prompt(model)
    context = LlamaContext(model, cells=CELLS, slots=1, batch_size=ModelLoadingOptions().batch_size, threads=THREADS)
    sound = decode_shortly(context, tokens)
    stage("loading the adapter")
    adapter = LlamaAdapter(path, model)
    stage("computing with the adapter")
    context.forget(0)
    context.set_adapters([(adapter, 1.0)])
    if not decode_shortly(context, tokens) and sound:
        raise LeapModelLoadingError(f"{path} makes answers that are not finite; it is damaged")
    return {"finite": sound}
