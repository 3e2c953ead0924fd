"""What a quantization costs, measured as llama.cpp's perplexity tool does: whole windows that begin with the opening
token, of which the second half counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leap_core.inference.llama.context import LlamaContext
from leap_core.inference.llama.model import LlamaModel
from leap_core.models.builtin import model_path
from leap_core.models.conversion.child_tasks import WINDOW, measure_cost

TEXT = "What is the capital of France? The capital of France is Paris. " * 90


def expected(windows: list[list[int]], model: LlamaModel) -> float:
    """Perplexity over positions WINDOW / 2 to WINDOW - 2, each read alone after those before it."""
    context = LlamaContext(model, cells=WINDOW, slots=1, batch_size=WINDOW, threads=1)
    surprise, count = 0.0, 0
    for window in windows:
        context.forget(0)
        context.clear()
        last = context.add(0, 0, window, output=True, outputs_of_all=True)
        assert context.decode() == 0
        for place in range(WINDOW // 2, WINDOW - 1):
            logits = context.logits(last - WINDOW + 1 + place).astype(np.float64)
            surprise -= logits[window[place + 1]] - np.logaddexp.reduce(logits)
            count += 1
    context.close()
    return math.exp(surprise / count)


@pytest.mark.slow
def test_perplexity_is_that_of_second_halves_after_an_opening_token():
    model = LlamaModel(model_path())
    tokens = model.tokenize(TEXT, parse_special=False, add_special=True)
    windows = [[model.bos_token, *tokens[n + 1 : n + WINDOW]] for n in range(0, len(tokens) - WINDOW + 1, WINDOW)]
    assert len(windows) > 1 and windows[1][0] != tokens[WINDOW]
    request = {"threads": 1, "models": [str(model_path())], "text": TEXT}
    (result,) = measure_cost(request, lambda progress: None)["models"]
    assert result["perplexity"] == pytest.approx(expected(windows, model), rel=1e-3)
    model.close()
