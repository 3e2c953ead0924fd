"""Clients that leave while their prompts are read change no answer of others: a short form of the script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "departures.py"


@pytest.mark.long
def test_answers_beside_clients_that_leave() -> None:
    given = ("--kinds", "hybrid", "--slots", "4", "--through", "http", "--departures", "12", "--late", "60")
    done = subprocess.run([sys.executable, str(SCRIPT), *given], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    answers, different = done.stdout.splitlines()[-1].split()[3:5]
    assert int(answers) >= 1 and int(different) == 0
