"""Damaged checkpoints end in one line; the long form is scripts/damaged_checkpoints.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from leap_core.builtin import model_path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes")
def test_damage_ends_in_one_line(tmp_path):
    import damaged_checkpoints as damaged
    from checkpoints import write_checkpoint

    source = write_checkpoint(tmp_path / "whole", "lfm2", model_path("builtin"), shards=3)
    ends = [damaged.outcome(source, tmp_path, seed) for seed in range(1, 31)]
    assert len({kind for kind, _ in ends}) >= 8
    assert sum(bool(line) for _, line in ends) >= 20
    assert all("\n" not in line and len(line) < 600 for _, line in ends)
    assert not list(tmp_path.glob("made-*"))
