"""Small vocoders with random weights, in float32 unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leap_core.inference.speech.companions import open_vocoder
from leap_core.inference.speech.speaker import Speaker
from leap_core.inference.speech.vocoder import Vocoder
from tests.support.numpy_layers import NumpySpeaker
from tests.support.random_vocoder import LFM2_5_AUDIO, TINY, VocoderSize, write_random_vocoder

WIDE = replace(
    LFM2_5_AUDIO, hidden=256, layers=2, codes=257, detokenizer_layers=3, detokenizer_attention=frozenset({1})
)
"""LFM2.5-Audio's own widths and heads, with fewer layers and codes, so that it is written in a second."""


def opened(path: Path, size: VocoderSize = TINY, tokenizer: Path | None = None) -> Vocoder:
    return open_vocoder(path, tokenizer, model=Path("model.gguf"), width=size.hidden)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_vocoder(tmp_path_factory.mktemp("tiny") / "vocoder-Tiny-F32.gguf")


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> Vocoder:
    return opened(tiny_path)


@pytest.fixture
def speaker(tiny: Vocoder, tmp_path: Path) -> Iterator[Speaker]:
    """The path through llama.cpp."""
    speaker = Speaker(tiny, tmp_path / "cache")
    yield speaker
    speaker.close()


@pytest.fixture
def oracle(tiny: Vocoder) -> Speaker:
    """The reference in numpy."""
    return NumpySpeaker(tiny)
