"""Where a model may be fetched again, as a text that means the same on every machine: a JSON object with ``model`` (a
repository, ``hf:`` and a file, or a URL), ``quantization`` and ``revision``."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from ..installed.model_store import InstalledModel
from ..names.safe_names import REPOSITORY


def origin_of(model: InstalledModel) -> str | None:
    """The origin of an installed model; None where it came from a file, or by an address that may hold a secret."""
    origin = model.origin
    if origin is None:
        return None
    repo, _, revision = origin.partition("@")
    if REPOSITORY.fullmatch(repo):
        return json.dumps({"model": repo, "quantization": model.quantization or None, "revision": revision or None})
    if not origin.startswith("hf:"):
        address = urlsplit(origin)
        if address.scheme not in ("http", "https") or "@" in address.netloc or address.query:
            return None
    return json.dumps({"model": origin, "quantization": None, "revision": None})


def read_origin(origin: str) -> tuple[str, str | None, str | None]:
    """Reference, quantization and revision. Raises ValueError for what is no origin."""
    value = json.loads(origin)
    parts = [value.get(name) for name in ("model", "quantization", "revision")] if isinstance(value, dict) else []
    if not parts or not isinstance(parts[0], str) or not all(part is None or isinstance(part, str) for part in parts):
        raise ValueError(f"not an origin: {origin}")
    return parts[0], parts[1], parts[2]
