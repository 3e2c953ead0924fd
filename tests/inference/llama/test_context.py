"""A context within the limits that llama.cpp answers with the end of the process: each case in a child."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.random_models import TINY_LFM2, TINY_LLAMA, write_random_model

SCRIPT = """
import sys
from pathlib import Path
from leap_core import GenerationOptions, ModelLoadingOptions
from leap_core.inference.runner import InProcessRunner
from leap_core.conversation.messages import ChatMessage
for slots, batch_size, lookup, context_size in (
    *((4, 1, False, 64), (1, 1, True, 64), (16, 8, True, 64), (2, 512, True, 8), (3, 2**31 - 1, False, 64)),
):
    print(slots, batch_size, lookup, context_size, flush=True)
    options = ModelLoadingOptions(slots=slots, batch_size=batch_size, prompt_lookup=lookup, context_size=context_size,
                                  cpu_threads=1)
    with InProcessRunner(Path(sys.argv[1]), "m", options) as runner:
        asked = GenerationOptions(max_tokens=6, rng_seed=1)
        answers = [runner.start_text("ab ab", asked) for _ in range(slots)]
        assert all(len(list(answer)) for answer in answers)
"""


@pytest.mark.slow
@pytest.mark.parametrize("shape", [TINY_LFM2, TINY_LLAMA], ids=["hybrid", "attention only"])
def test_small_batches_and_contexts_do_not_abort_the_process(tmp_path, shape):
    model = write_random_model(tmp_path / "model.gguf", shape, "f32")
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(model)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
