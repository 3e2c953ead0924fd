"""Which projector goes with a model, and what is said where there is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from ..engine.media_cache import MediaCache
from ..engine.threads import usable_cores
from ..errors import LeapModelLoadingError, LeapUnsupportedMediaError
from ..llama.model import LlamaModel
from ..llama.projector import Projector
from ..messages import ChatMessageContent, Image
from ..models.gguf.header import read_gguf_header
from ..models.gguf.projector_checks import check_projector
from ..options import GenerationOptions, ModelLoadingOptions
from .media_segments import MediaReader, MediaSegments

SEES = re.compile(r"(?<![a-z])vl(?![a-z])", re.IGNORECASE)
HEARS = re.compile(r"audio", re.IGNORECASE)


class ReadsMedia(Protocol):
    """Makes segments of a prompt out of pictures and sound, or says why not."""

    def read(self, part: ChatMessageContent, options: GenerationOptions) -> MediaSegments: ...


def open_projector(path: Path, model: LlamaModel, options: ModelLoadingOptions) -> tuple[Projector, MediaReader]:
    """The projector at ``path`` beside its model, and what reads media with it. The projector must be closed before the
    model. Raises LeapModelLoadingError for a file that is none, is damaged, or belongs to another model."""
    info = check_projector(read_gguf_header(path))
    if info.width != model.width:
        raise LeapModelLoadingError(
            f"{path} makes embeddings of width {info.width}, and {model.path.name} has {model.width}",
            hint="take the projector that belongs to this model",
        )
    projector = Projector(
        path, model, threads=options.cpu_threads or usable_cores(), use_gpu=bool(options.n_gpu_layers)
    )
    cache = MediaCache(options.media_cache_bytes)
    return projector, MediaReader(projector, info, model, cache)


class NoProjector:
    """Stands for the projector of a model that has none: every picture and every sound is refused."""

    def __init__(self, model_id: str, path: Path) -> None:
        self._model_id, self._path = model_id, path

    def read(self, part: ChatMessageContent, options: GenerationOptions) -> MediaSegments:
        """Raises LeapUnsupportedMediaError."""
        is_image = isinstance(part, Image)
        medium, sense = ("picture", "see") if is_image else ("sound", "hear")
        if (SEES if is_image else HEARS).search(self._path.name):
            raise LeapUnsupportedMediaError(
                f"{self._model_id} needs its projector to {sense}, and no file like mmproj-{self._path.stem}.gguf lies "
                f"beside {self._path}",
                hint=f"`leap download {self._model_id}` gets it, or give the file with --mmproj (mm_proj_path)",
            )
        example = "LFM2.5-VL-450M" if is_image else "LFM2.5-Audio-1.5B"
        raise LeapUnsupportedMediaError(
            f"the message contains a {medium}, and {self._model_id} reads text only",
            hint=f"load a model that can {sense}, such as {example}",
        )
