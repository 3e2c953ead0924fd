"""Opening the projector of a model that sees or hears."""

from __future__ import annotations

from pathlib import Path

from ...engine.reuse.media_cache import MediaCache
from ...engine.threads import usable_cores
from ...errors import LeapModelLoadingError
from ...llama.model import LlamaModel
from ...llama.projector import Projector
from ...models.gguf.header import read_gguf_header
from ...models.gguf.projector_checks import check_projector
from ...options import ModelLoadingOptions
from .media_segments import MediaReader


def open_projector(path: Path, model: LlamaModel, options: ModelLoadingOptions) -> tuple[Projector, MediaReader]:
    """The projector at ``path`` beside its model, and what reads media with it. The projector must be closed before the
    model. Raises LeapModelLoadingError for a file that is none, is damaged, or belongs to another model."""
    info = check_projector(read_gguf_header(path))
    if info.width != model.width:
        raise LeapModelLoadingError(
            f"{path} makes embeddings of width {info.width}, and {model.path.name} has {model.width}",
            hint="take the projector that belongs to this model",
        )
    projector = Projector(path, model, threads=options.cpu_threads or usable_cores(), use_gpu=bool(model.n_gpu_layers))
    cache = MediaCache(options.media_cache_bytes)
    return projector, MediaReader(projector, info, model, cache)
