"""Loading a model: what a manifest says, and which process answers."""

from __future__ import annotations

import shutil

import pytest

from leap_core import Leap, LeapUnavailableError, Manifest, ModelLoadingOptions, open_runner
from leap_core.models.builtin import model_path


@pytest.fixture
def manifest(tmp_path):
    shutil.copy(model_path(), tmp_path / "model.gguf")
    path = tmp_path / "model.json"
    path.write_text(Manifest("model.gguf", threads=1).dumps())
    return path


def test_a_manifests_threads_are_used_below_an_explicit_option(manifest):
    for options, threads in [(ModelLoadingOptions(), 1), (ModelLoadingOptions(cpu_threads=2), 2)]:
        with Leap.load(manifest, options) as runner:
            assert runner._options.cpu_threads == threads


def test_a_required_host_must_run():
    with pytest.raises(LeapUnavailableError, match="no model host is running"):
        Leap.load("builtin", host="demand")
    warnings = []
    with open_runner("builtin", on_warning=warnings.append) as runner:
        assert runner.model_id
    assert warnings == []
