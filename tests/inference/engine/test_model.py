"""Files that llama.cpp loads, and of which it can make no use."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from leap_core.errors import LeapModelLoadingError
from leap_core.inference.llama.model import LlamaModel


def test_a_model_without_a_vocabulary_is_refused(lfm2_path: Path, tmp_path: Path) -> None:
    """llama.cpp ends the process as soon as one asks for a token of it."""
    path = tmp_path / "numbers.gguf"
    path.write_bytes(lfm2_path.read_bytes().replace(b"gpt2", b"none", 1))
    with pytest.raises(LeapModelLoadingError, match=r"numbers\.gguf has no vocabulary"):
        LlamaModel(path)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are always text")
def test_a_model_with_an_invalid_name_loads(lfm2_path: Path, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.gguf"))
    path.write_bytes(lfm2_path.read_bytes())
    model = LlamaModel(path)
    assert model.n_tokens > 0
    model.close()
