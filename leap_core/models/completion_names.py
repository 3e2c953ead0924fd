"""Names of models for completion, read without checks and in the quickest way: between two key presses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def installed_names(models: Path) -> Iterator[str]:
    """The directories of the store that hold a model, by name."""
    try:
        with os.scandir(models) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except OSError:
        return
    for name in sorted(names, key=str.lower):
        directory = models / name
        if (directory / f"{name}.json").is_file() or next(directory.glob("*.gguf"), None) is not None:
            yield name


def catalogue_entries(config: Path) -> dict[str, dict[str, Any]]:
    """The entries of leap's catalogue and of the user's, by name; a damaged file has none."""
    entries: dict[str, dict[str, Any]] = {}
    for path in (Path(__file__).parent / "catalogue.json", config / "catalogue.json"):
        for entry in _models_in(path):
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                entries[entry["name"]] = entry
    return entries


def _models_in(path: Path) -> list[Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return []
    models = value.get("models") if isinstance(value, dict) else None
    return models if isinstance(models, list) else []
