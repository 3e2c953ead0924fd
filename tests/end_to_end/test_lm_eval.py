"""The real lm-evaluation-harness asks leap serve in its three ways, and gets the numbers of this process."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from .conftest import ROOT


@pytest.mark.timeout(640)
@pytest.mark.skipif(find_spec("lm_eval") is None, reason="needs leap-edge[peers]")
def test_the_harness_gets_the_same_numbers_as_this_process(leap_home):
    command = [sys.executable, str(ROOT / "scripts" / "check_lm_eval.py"), "builtin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
