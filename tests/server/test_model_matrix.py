"""The short form of scripts/model_matrix.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "model_matrix.py"
pytestmark = pytest.mark.long


def test_a_row_of_the_builtin_model(leap_home):
    given = ("builtin", "--limit", "1", "--threads", "1", "--parts", "tools,schemas,streams,sameness")
    done = subprocess.run([sys.executable, str(SCRIPT), *given], capture_output=True, text=True, timeout=300)
    head, _, row = done.stdout.splitlines()
    assert head == "| model | program | tools | schemas | streams | sameness |", done.stderr
    assert row == "| builtin | leap | 1 of 1, 0 of 1 | 1 of 1 | 1 of 1 | 1 and 1 of 1 |"
    ways = [line.partition(":")[0].strip() for line in done.stderr.splitlines() if " found" in line]
    assert ways[0] == "leap, chat completions" and ways[-1] == "leap, chat" and len(ways) == 10


def test_a_model_that_cannot_answer_is_refused_and_the_next_one_is_measured(leap_home, tmp_path):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF")
    given = (str(damaged), "builtin-embed", "builtin", "--limit", "1", "--threads", "1", "--parts", "streams,tasks")
    done = subprocess.run([sys.executable, str(SCRIPT), *given], capture_output=True, text=True, timeout=300)
    rows = [line.split(" | ")[:3] + [line.count("refused")] for line in done.stdout.splitlines()[2:]]
    assert rows == [
        ["| damaged", "leap", "refused", 2],
        ["| builtin-embed", "leap", "refused", 2],
        ["| builtin", "leap", "1 of 1", 0],
    ], done.stderr
    assert "leap ended with exit code" in done.stderr and "leap, streams: /v1/chat/completions: 4" in done.stderr
