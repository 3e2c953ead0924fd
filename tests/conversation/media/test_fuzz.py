"""A short form of fuzz.py."""

from __future__ import annotations

from .fuzz import SEEDS, run


def test_mutated_files_are_read_or_refused() -> None:
    outcomes = run(600, seed=42)
    assert sum(outcomes.values()) == 600
    assert all(outcomes[format, was_read] > 2 for format in SEEDS for was_read in (True, False))
