"""What the child process does to quantize: find out what it gives, or do it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import LeapModelLoadingError
from ..llama.quantizer import QuantizeSettings, quantize
from .importance import read_importance
from .quantize_request import MIXTURES, TYPES, QuantizeRequest


def run(request: dict[str, Any], progress: Callable[[Any], None]) -> dict[str, Any]:
    """Quantize ``source`` to ``target`` as ``settings`` say; with ``dry`` only refuse what cannot be done, and give
    the size of the result's tensors."""
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
    log = quantize(
        source,
        target,
        settings,
        dry=request["dry"],
        on_tensor=lambda done, total, name: None if request["dry"] else progress([done, total, name]),
    )
    if request["dry"]:
        if log.needs_imatrix and settings.imatrix is None:
            raise LeapModelLoadingError(
                f"{asked.to} needs to know which weights count", hint="--imatrix FILE, which llama-imatrix writes"
            )
        if log.converted and len(log.fallbacks) >= log.converted:
            raise LeapModelLoadingError(
                f"no tensor of {source.name} can be {asked.to}: their rows are no multiple of its blocks",
                hint="a type with blocks of 32 fits more models: Q8_0, Q5_0, Q4_0, IQ4_NL",
            )
    return asdict(log)
