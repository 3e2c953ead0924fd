"""What the child process does to quantize: find out what it gives, and do it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import LeapModelLoadingError
from ..llama.quantizer import QuantizeSettings, quantize
from .importance import read_importance
from .quantize_request import MIXTURES, TYPES, QuantizeRequest, no_importance


def run(request: dict[str, Any], progress: Callable[[Any], None]) -> dict[str, Any]:
    """Quantize ``source`` to ``target`` as ``settings`` say, unless its tensors take more than ``room`` bytes: then the
    result does not say ``fits``. What cannot be done is refused before any work."""
    asked = QuantizeRequest.from_json(request["settings"])
    source, target = Path(request["source"]), Path(request["target"])
    settings = QuantizeSettings(
        MIXTURES[asked.to],
        asked.threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else asked.threads,
        TYPES[asked.output_type.upper()] if asked.output_type else None,
        TYPES[asked.embedding_type.upper()] if asked.embedding_type else None,
        {pattern: TYPES[kind.upper()] for pattern, kind in asked.tensor_types},
        read_importance(asked.imatrix) if asked.imatrix else None,
        requantize=asked.requantize,
        pure=asked.pure,
        keep_split=asked.keep_split,
    )
    plan = quantize(source, target, settings, dry=True)
    if plan.needs_imatrix and settings.imatrix is None:
        raise no_importance(asked.to)
    if plan.converted and len(plan.fallbacks) >= plan.converted:
        raise LeapModelLoadingError(
            f"no tensor of {source.name} can be {asked.to}: their rows are no multiple of its blocks",
            hint="a type with blocks of 32 fits more models: Q8_0, Q5_0, Q4_0, IQ4_NL",
        )
    fits = plan.bytes <= request["room"]
    if fits:
        quantize(source, target, settings, dry=False, on_tensor=lambda *step: progress(step))
    return asdict(plan) | {"fits": fits}
