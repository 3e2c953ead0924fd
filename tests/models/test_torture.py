"""The short form of the torture by mutated model files: see torture.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lengths import lengths

from .torture import HOST, LEAP, WORKER, Torture


@pytest.mark.slow
@lengths(5, 48, "mutants")
def test_no_damaged_model_ends_leap_a_host_or_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutants: int
) -> None:
    monkeypatch.delenv("LEAP_TRY_MODELS", raising=False)
    monkeypatch.setenv("LEAP_HOME", str(tmp_path / "leap-home"))  # restored afterwards
    report = Torture(tmp_path, mutants, seed=3, shares=(LEAP, LEAP, LEAP, HOST, WORKER)).run()
    assert report["deaths"] == []
    assert sum(report["outcomes"].values()) == mutants
    assert not [outcome for outcome in report["outcomes"] if "BUG" in outcome]
