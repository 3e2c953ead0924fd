"""What else decides an answer beside the request: the model's file, what is recommended for it, how it is loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from ..models.references.endpoints import find_endpoint
from ..models.references.resolving import resolve_local
from ..options import ModelLoadingOptions
from ..storage.directories import Directories

SAMPLING = ("temperature", "top_p", "min_p", "repetition_penalty", "top_k")
"""Named one by one: a further field with its default must not change the keys of old journals."""
SAMPLES = 16
SAMPLE_BYTES = 64 * 1024


def fingerprint_of(reference: str, loading: ModelLoadingOptions, *, variables: Mapping[str, str], cwd: Path) -> str:
    """A text that is equal when model and loading are. Raises LeapModelLoadingError when there is no such model."""
    endpoint = find_endpoint(reference, Directories.from_environment(variables))
    if endpoint is not None:
        return json.dumps({"endpoint": endpoint.url, "model": endpoint.model}, sort_keys=True)
    model = resolve_local(reference, variables=variables, cwd=cwd)
    value: dict[str, object] = {
        "model": _sampled(model.path),
        "sampling": {name: getattr(model.sampling, name) for name in SAMPLING},
        "chat_template": loading.chat_template or model.chat_template,
        "parser": model.parser_name,
        "context_size": loading.context_size,
        "kv": [loading.kv_type_k or "f16", loading.kv_type_v or "f16"],  # as the keys of old journals have it
        "seed": loading.random_seed,
    }
    projector = loading.mm_proj_path or model.mm_proj_path
    if projector is not None:
        value["projector"] = _sampled(projector)
    adapters = loading.adapters or model.adapters
    if adapters:  # without any, the keys of old journals stay
        value["adapters"] = [[_sampled(adapter.path), adapter.scale] for adapter in adapters]
    return json.dumps(value, sort_keys=True)


def _sampled(path: Path) -> str:
    """Distinguishes files by size and pieces spread over them, in a few milliseconds."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for n in range(SAMPLES):
            file.seek(max(0, size - SAMPLE_BYTES) * n // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()
