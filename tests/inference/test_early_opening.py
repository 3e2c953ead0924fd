"""The opening of a model that has begun beside the imports of what uses it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from leap_core.conversation.options import ModelLoadingOptions
from leap_core.errors import LeapModelLoadingError
from leap_core.inference.llama.context import LlamaContext
from leap_core.inference.llama.model import LlamaModel
from leap_core.inference.model_parts import EarlyOpening
from leap_core.inference.runner import InProcessRunner
from tests.support.random_models import TINY_LFM2, write_random_model

OPTIONS = ModelLoadingOptions(context_size=256, cpu_threads=1)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model") / "tiny.gguf", TINY_LFM2)


@pytest.fixture
def closed(monkeypatch) -> list[str]:
    """What is freed, in order."""
    order: list[str] = []
    for kind in (LlamaContext, LlamaModel):

        def close(self, kind=kind, free=kind.close):
            if self.pointer:
                order.append(kind.__name__)
            free(self)

        monkeypatch.setattr(kind, "close", close)
    return order


def test_a_context_is_opened_with_the_model_and_only_once(path, monkeypatch, closed):
    made = []
    monkeypatch.setattr(LlamaContext, "__init__", _counted(made))
    with InProcessRunner(path, "tiny", OPTIONS) as runner:
        assert len(made) == 1 and runner.context_size == 256
    assert closed == ["LlamaContext", "LlamaModel"]


def _counted(made):
    init = LlamaContext.__init__

    def counted(self, *args, **options):
        made.append(self)
        init(self, *args, **options)

    return counted


@pytest.mark.parametrize("taken", [False, True])
def test_an_unused_context_is_freed_before_the_model(path, closed, taken):
    opening = EarlyOpening(path, OPTIONS)
    model = opening.take() if taken else None
    opening.close()
    if model is not None:
        model.close()
    opening.close()
    assert closed == ["LlamaContext", "LlamaModel"]


def test_a_failed_runner_frees_model_and_context(path, closed):
    with pytest.raises(LeapModelLoadingError, match="more than the .* that tiny was trained for"):
        InProcessRunner(path, "tiny", ModelLoadingOptions(context_size=1 << 30, cpu_threads=1))
    assert closed == ["LlamaModel"]
    with pytest.raises(LeapModelLoadingError):
        options = ModelLoadingOptions(context_size=256, cpu_threads=1, mm_proj_path=str(path))
        InProcessRunner(path, "tiny", options)
    assert closed == ["LlamaModel", "LlamaContext", "LlamaModel"]


def test_an_error_of_the_context_is_raised_when_it_is_used(path, monkeypatch):
    def refuse(self, *args, **options):
        self.pointer = None
        raise LeapModelLoadingError("no room")

    monkeypatch.setattr(LlamaContext, "__init__", refuse)
    with pytest.raises(LeapModelLoadingError, match="no room"):
        InProcessRunner(path, "tiny", OPTIONS)


def test_any_error_is_raised_only_when_the_context_is_used(path, monkeypatch):
    def refuse(self, *args, **options):
        self.pointer = None
        raise OSError("no room")

    in_thread = []
    monkeypatch.setattr(LlamaContext, "__init__", refuse)
    monkeypatch.setattr(threading, "excepthook", in_thread.append)
    with pytest.raises(OSError, match="no room"):
        InProcessRunner(path, "tiny", OPTIONS)
    assert in_thread == []
