"""The memory that ``leap models fit`` predicts, against that of a process whose context a prompt has filled."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from leap_core.inference.gguf.header import read_gguf_header
from leap_core.inference.gguf.memory import memory_of
from leap_core.models.builtin import model_path
from tests.support.lengths import usually

pytestmark = pytest.mark.timeout(1200)  # a build without AVX takes minutes
PROGRAM = """
import sys
from pathlib import Path
from leap_core import GenerationOptions, Leap, ModelLoadingOptions

path, context, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = ModelLoadingOptions(context_size=context, slots=slots, cpu_threads=1)
with Leap.load(path, options, host="never") as runner:
    list(runner.start_text([100] * (context * 19 // 20), GenerationOptions(max_tokens=2)))
    print(Path("/proc/self/status").read_text())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
@pytest.mark.parametrize(
    ("name", "context", "slots"),
    usually(
        [("builtin", 1024, 4), ("builtin-vl", 1024, 1)],
        [("builtin", 1024, 4), ("builtin-vl", 1024, 1), ("smol", 512, 2)],
    ),
)
def test_predicted_memory_is_within_a_tenth(smol: Path, name: str, context: int, slots: int) -> None:
    path = smol if name == "smol" else model_path(name)
    command = [sys.executable, "-c", PROGRAM, str(path), str(context), str(slots)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1100)
    peak = re.search(r"VmHWM:\s+(\d+) kB", done.stdout)
    assert peak is not None
    measured = int(peak[1]) * 1024
    predicted = memory_of(read_gguf_header(path), context_size=context, slots=slots).total
    assert predicted == pytest.approx(measured, rel=0.1)
