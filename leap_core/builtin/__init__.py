"""The built-in model: a tiny LFM2 that shows what leap does with no download. MODEL_CARD.md says what it can do."""

from __future__ import annotations

from pathlib import Path


def model_path() -> Path:
    """The model's GGUF file inside the package."""
    return Path(__file__).with_name("model.gguf")
