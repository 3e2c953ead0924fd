"""A batch, chats and an agent over one warm model, with kills between."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .conftest import ROOT


@pytest.mark.long
def test_nothing_is_lost_when_host_and_worker_are_killed():
    """A short form of ``python scripts/mix_under_kills.py``: each is killed once."""
    sizes = ["--lines", "32", "--kills", "1", "--tokens", "96", "--agent-tokens", "400", "--every", "0.2"]
    command = [sys.executable, str(ROOT / "scripts" / "mix_under_kills.py"), *sizes, "--timeout", "120"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert seen["kills"]["host"] == 1 and seen["texts_as_alone"] == 32
