"""A program that ends while leap still computes, ends as Python programs do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.lengths import usually

PROGRAM = """
import sys, threading
from leap_core import Leap, ModelLoadingOptions

def work():
    runner = Leap.load("builtin", ModelLoadingOptions(slots=1))
    stream = runner.create_conversation().generate_response("Count to 20.")
    for _ in range(int(sys.argv[1])):
        next(stream)
    if sys.argv[2] == "another thread reads":
        threading.Thread(target=lambda: list(stream), daemon=True).start()

work()
"""


@pytest.mark.parametrize("reader", ["the stream is dropped", "another thread reads"])
@pytest.mark.parametrize("read", usually([1], [0, 1, 3]))
def test_a_runner_that_was_never_unloaded_does_not_abort_the_process(read, reader):
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", PROGRAM, str(read), reader], capture_output=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, b"")
