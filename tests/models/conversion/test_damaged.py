"""Damaged checkpoints end in one line; the long form is scripts/damaged_checkpoints.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
FIRST = {"moe": 48}
"""Seeds to begin with, where one of those that follow found something."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes")
def test_damage_ends_in_one_line(tmp_path):
    import damaged_checkpoints as damaged

    for family, source in damaged.sources(tmp_path).items():
        first = FIRST.get(family, 1)
        ends = [damaged.outcome(source, family, tmp_path, seed) for seed in range(first, first + 10)]
        assert len({kind for kind, _ in ends}) >= 5
        assert sum(bool(line) for _, line in ends) >= 4
        assert all("\n" not in line and len(line) < damaged.LONGEST_LINE for _, line in ends)
        assert not list(tmp_path.glob("made-*"))
