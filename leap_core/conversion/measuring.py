"""What a quantization costs, as numbers over a text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .child import run_in_child


@dataclass(frozen=True)
class Measured:
    """``perplexity``: e to the mean of minus the log probability of the text's tokens. ``kl_divergence``: the mean
    over positions of how far the distribution is from the source's, in nats; 0 for the source itself.
    ``top1_agreement``: at how many of the positions (0 to 1) both find the same token likeliest."""

    path: Path
    tokens: int
    perplexity: float
    kl_divergence: float
    top1_agreement: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}


def measure(
    models: Sequence[Path],
    text: str,
    *,
    threads: int = 1,
    on_window: Callable[[int, int], object] = lambda done, total: None,
    stop: threading.Event | None = None,
    variables: Mapping[str, str] | None = None,
) -> list[Measured]:
    """Read ``text`` with each model and compare them with the first, in a child process. At most 16,384 tokens are
    read, in windows of 512. Raises LeapModelLoadingError for models of different vocabularies, and Stopped."""
    request = {"models": [str(path) for path in models], "text": text, "threads": threads}
    result = run_in_child("measure", request, on_progress=lambda step: on_window(*step), stop=stop, variables=variables)
    return [Measured(path, result["tokens"], **each) for path, each in zip(models, result["models"], strict=True)]
