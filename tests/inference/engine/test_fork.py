"""A forked child has the memory of its parent and none of its threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys
from leap_core import GenerationOptions, Leap, LeapGenerationError, ModelLoadingOptions

def answer(runner):
    options = GenerationOptions(max_tokens=4, temperature=0.0)
    return "".join(getattr(part, "text", "") for part in runner.start_text("Hello", options))

options = ModelLoadingOptions(cpu_threads=1)
before = Leap.load("builtin", options, host="never")
text = answer(before)
if sys.argv[1] == "unloaded":
    before.unload()
child = os.fork()
if not child:
    signal.alarm(90)
    try:
        answer(before)
    except LeapGenerationError as error:
        refused = str(error)
    before.unload()
    with Leap.load("builtin", options, host="never") as after:
        assert answer(after) == text
    with Leap.load_for_embedding("builtin-embed", options) as vectors:
        assert len(vectors.embed(["a"])) == 1
    print(refused, flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
if sys.argv[1] == "loaded":
    assert answer(before) == text
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(("state", "said"), [("loaded", "before this process was forked"), ("unloaded", "unloaded")])
def test_a_forked_child_can_load_but_not_use_its_parents_model(state, said):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT, state]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout
