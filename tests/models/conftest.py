"""A hub of our own, an environment that leads to it, and a GGUF small enough to be sent around."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from leap_core.models.download.downloading import Download, DownloadOptions, Event, Notice
from leap_core.models.resolving import LocalModel
from tests.support.hub import FakeHub

SMALL = 2_000_003


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


@pytest.fixture
def variables(hub: FakeHub, leap_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The process's environment with this hub, no token, and empty caches of other programs."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in hub.environment.items():
        monkeypatch.setenv(name, value)
    return dict(os.environ)


@pytest.fixture
def content() -> bytes:
    """Two megabytes of nothing in particular, not a multiple of any block."""
    return random.Random(7).randbytes(SMALL)


class Downloads:
    """Runs downloads in this process, and keeps what they told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.options = DownloadOptions(retries=4, retry_delay=0.01, stall_seconds=5)

    def __call__(self, reference: str, quantization: str | None = None, revision: str | None = None) -> LocalModel:
        self.events.clear()
        return Download(self.options, on_event=self.events.append).run(reference, quantization, revision)

    @property
    def notices(self) -> str:
        return "\n".join(event.message for event in self.events if isinstance(event, Notice))


@pytest.fixture
def download(variables: dict[str, str]) -> Downloads:
    """Downloads whose waits between attempts are short."""
    return Downloads()


@pytest.fixture
def make_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Write a tiny GGUF that the header reader takes for a model, or for a projector."""

    def make(name: str, architecture: str = "lfm2", file_type: int = 2, seed: int = 0) -> Path:
        path = tmp_path / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_name(name)
        writer.add_context_length(32768)
        writer.add_file_type(file_type)
        values = np.random.default_rng(seed).standard_normal((64, 64), dtype=np.float32)
        writer.add_tensor("token_embd.weight", values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make
