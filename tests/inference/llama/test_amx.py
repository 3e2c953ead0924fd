"""ggml's AMX kernels, compiled by GCC 12, end the process: leap declines the unit, and says nothing of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from leap_core.inference.llama.library import _has_amx
from leap_core.models.builtin import model_path

PROGRAM = """
import sys
from leap_core import Chunk, Leap
with Leap.load(sys.argv[1]) as runner:
    for event in runner.create_conversation().generate_response("What is the capital of France?"):
        if isinstance(event, Chunk):
            print(event.text, end="")
"""


@pytest.mark.skipif(not _has_amx(), reason="this processor has no AMX unit")
def test_a_processor_with_amx_answers_without_messages():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(model_path())], capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Paris" in done.stdout
