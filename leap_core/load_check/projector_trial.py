"""What the child process does with a projector (mmproj) to see whether llama.cpp survives it: load it beside its model
and encode the smallest picture and the shortest sound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import LeapModelLoadingError
from ..llama.model import LlamaModel
from ..llama.projector import Projector
from ..media.audio import LEAST_SECONDS, RATE
from ..media.image_plan import SIDE
from ..models.gguf.header import read_gguf_header
from ..models.gguf.projector_checks import check_projector

WIDTH, HEIGHT = 3 * SIDE, 2 * SIDE


def try_projector(path: Path, beside: Mapping[str, Path], stage: Callable[..., object]) -> dict[str, Any]:
    """Encode with the projector at ``path``; ``beside`` names its model. Returns what it takes."""
    import numpy as np

    info = check_projector(read_gguf_header(path))
    stage("loading the model")
    model = LlamaModel(beside["model"])
    if info.width != model.width:
        raise LeapModelLoadingError(
            f"{path} makes embeddings of width {info.width}, and {model.path.name} has {model.width}",
            hint="take the projector that belongs to this model",
        )
    projector = Projector(path, model, threads=1)
    if info.sees:
        stage("encoding a picture")
        _check_finite(path, projector.encode_image(WIDTH, HEIGHT, bytes(range(256)) * (WIDTH * HEIGHT * 3 // 256)))
    if info.hears:
        stage("encoding sound")
        noise = np.random.default_rng(1).uniform(-0.1, 0.1, int(LEAST_SECONDS * RATE))
        _check_finite(path, projector.encode_audio(noise.astype(np.float32)))
    return {"sees": info.sees, "hears": info.hears}


def _check_finite(path: Path, rows: Any) -> None:
    import numpy as np

    if not np.isfinite(rows).all():
        raise LeapModelLoadingError(f"{path} makes embeddings that are not finite; it is damaged")
