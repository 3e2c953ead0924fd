"""A small random model: left to itself it writes noise, so whatever is well formed comes from the constraint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_core.conversation.options import ModelLoadingOptions
from leap_core.conversation.runner import ModelRunner
from leap_core.inference.llama.model import LlamaModel
from leap_core.opening import Leap
from tests.support.random_models import TINY_LFM2, write_random_model


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("models") / "noise.gguf", TINY_LFM2, "f32")


@pytest.fixture(scope="session")
def vocabulary(model_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(model_path)
    yield model
    model.close()


@pytest.fixture(scope="session")
def noise(model_path: Path) -> Iterator[ModelRunner]:
    with Leap.load(model_path, ModelLoadingOptions(context_size=2048, slots=2, cpu_threads=1)) as runner:
        yield runner
