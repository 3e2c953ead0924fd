"""What the tests of making models share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def whole_model(tmp_path_factory) -> Path:
    """The built-in model in F16, as training leaves one."""
    from leap_core.inference.gguf.quantize_request import QuantizeRequest
    from leap_core.models.builtin import model_path
    from leap_core.models.conversion.quantizing import Making, quantize_to_file

    target = tmp_path_factory.mktemp("whole") / "Whole-F16.gguf"
    quantize_to_file(model_path("builtin"), target, QuantizeRequest("F16", requantize=True), Making())
    return target
