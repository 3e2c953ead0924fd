"""What the child process does: quantize a file, or measure what a quantization costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import LeapModelLoadingError
from ...inference.gguf.quantize_request import QuantizeRequest
from ...inference.llama.context import LlamaContext
from ...inference.llama.model import LlamaModel
from ...inference.llama.quantizer import quantize
from .quantizing import no_importance, read_importance

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


def quantize_file(request: dict[str, Any], answer: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Quantize ``source`` to ``target`` as ``settings`` say, unless its tensors take more than ``room`` bytes: then the
    result does not say ``fits``. What cannot be done is refused before any work."""
    asked = QuantizeRequest.from_json(request["settings"])
    source, target = Path(request["source"]), Path(request["target"])
    imatrix = read_importance(asked.imatrix) if asked.imatrix else None
    plan = quantize(source, target, asked, imatrix=imatrix, dry=True)
    if plan.needs_imatrix and imatrix is None:
        raise no_importance(asked.to)
    fits = plan.bytes <= request["room"]
    if fits:
        quantize(source, target, asked, imatrix=imatrix, on_tensor=lambda *step: answer({"progress": step}))
    return asdict(plan) | {"fits": fits}


WINDOW = 512
"""Tokens that are read together. As in llama.cpp's perplexity tool each window begins with the opening token where the
model has one, and the second half counts: positions with almost nothing before them say little."""
MOST_TOKENS = 32 * WINDOW
LEAST_TOKENS = 16


def measure_cost(request: dict[str, Any], answer: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Read the text with ``models``, of which the first is the source. Each result is a
    ``conversion_child.Measured``."""
    threads = request["threads"]
    readers = [_MeasuredModel(Path(path), threads) for path in request["models"]]
    source = readers[0].model
    tokens = source.tokenize(request["text"], parse_special=False, add_special=True)[:MOST_TOKENS]
    if len(tokens) < LEAST_TOKENS:
        raise LeapModelLoadingError(f"a text to measure with needs more than {len(tokens)} tokens")
    for reader in readers[1:]:
        if reader.model.n_tokens != source.n_tokens:
            raise LeapModelLoadingError(f"{reader.path.name} has another vocabulary than {readers[0].path.name}")
    starts = range(0, max(1, len(tokens) - WINDOW + 1), WINDOW)
    for number, start in enumerate(starts):
        window = tokens[start : start + WINDOW]
        if source.bos_token is not None:
            window[0] = source.bos_token
        truth = readers[0].read(window)
        readers[0].count(truth, truth, window)
        for reader in readers[1:]:
            reader.count(reader.read(window), truth, window)
        answer({"progress": [number + 1, len(starts)]})
    return {"tokens": readers[0].positions, "models": [reader.result() for reader in readers]}


class _MeasuredModel:
    """One model, and the sums over the positions of second halves that it predicted."""

    def __init__(self, path: Path, threads: int) -> None:
        self.path = path
        self.model = LlamaModel(path)
        self.context = LlamaContext(self.model, cells=WINDOW, slots=1, batch_size=WINDOW, threads=threads)
        self.positions = self.same = 0
        self.surprise = self.divergence = 0.0

    def read(self, window: list[int]) -> NDArray[float32]:
        """Log probabilities after each token of the second half but the last, shape [positions, vocabulary]."""
        import numpy as np

        self.context.forget(0)
        self.context.clear()
        last = self.context.add(0, 0, window, output=True, outputs_of_all=True)
        if self.context.decode() != 0:
            raise LeapModelLoadingError(f"{self.path.name} cannot read {len(window)} tokens at once")
        first = last - len(window) + 1
        logits = np.stack([self.context.logits(first + n) for n in range(len(window) // 2, len(window) - 1)])
        logits -= logits.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return logits

    def count(self, ours: NDArray[float32], truth: NDArray[float32], window: list[int]) -> None:
        """Add what was predicted of a window to the sums."""
        import numpy as np

        self.positions += len(ours)
        self.surprise -= float(ours[np.arange(len(ours)), window[len(window) // 2 + 1 :]].sum(dtype=np.float64))
        self.same += int((ours.argmax(axis=1) == truth.argmax(axis=1)).sum())
        if ours is not truth:
            self.divergence += float((np.exp(truth) * (truth - ours)).sum(dtype=np.float64))

    def result(self) -> dict[str, float]:
        count = self.positions
        return {
            "perplexity": math.exp(min(self.surprise / count, 700)),
            "kl_divergence": max(0.0, self.divergence / count),
            "top1_agreement": self.same / count,
        }
