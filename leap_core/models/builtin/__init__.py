"""The built-in models: tiny LFM2s that show what leap does with no download. Their cards say what they can do."""

from __future__ import annotations

from pathlib import Path


def model_path(name: str = "builtin") -> Path:
    """The GGUF file of the built-in model of this name inside the package."""
    return Path(__file__).with_name("model.gguf" if name == "builtin" else f"{name}.gguf")
