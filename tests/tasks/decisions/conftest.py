"""A model made by hand in the way of d1, and one that chats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leap_core import Leap, ModelLoadingOptions
from leap_core.conversation.runner import ModelRunner
from tests.support.random_models import TINY_LFM2, Decisions, write_random_model

TEMPERATURES = {"choice": 1.0, "choice.3_5": 1.5, "noul.2": 0.5}


def write_d1(path: Path, **fields) -> Path:
    """A model for decisions with random weights."""
    return write_random_model(path, replace(TINY_LFM2, vocabulary=2048, context=8192), decisions=Decisions(**fields))


@pytest.fixture(scope="session")
def d1_path(tmp_path_factory) -> Path:
    return write_d1(tmp_path_factory.mktemp("d1") / "d1.gguf", temperatures=TEMPERATURES)


@pytest.fixture(scope="package")
def d1(d1_path) -> Iterator[ModelRunner]:
    with Leap.load(str(d1_path), ModelLoadingOptions(context_size=8192), host="never") as runner:
        yield runner


@pytest.fixture(scope="package")
def builtin() -> Iterator[ModelRunner]:
    with Leap.load("builtin", host="never") as runner:
        yield runner
