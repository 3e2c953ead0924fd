"""What the engine does differently where layers are on a GPU, seen on a model that only says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from leap_core.inference.engine.request import PromptTokens, Tokens
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.slots import checkpoints_for
from leap_core.inference.llama.devices import Placement
from leap_core.inference.llama.model import LlamaModel

from .conftest import finish, request
from .test_scheduler import words


@pytest.fixture
def model(request: pytest.FixtureRequest, llama_path: Path):
    loaded = LlamaModel(llama_path)
    loaded.on_gpu = True
    yield loaded
    loaded.close()


def test_cells_stay_where_they_are(make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler(slots=4)
    monkeypatch.setattr(scheduler._context, "_move", lambda _sequence: pytest.fail("a sequence was moved"))
    for turn in range(3):
        running = [request(words(20 + 7 * n + turn), max_tokens=10 + 9 * n) for n in range(4)]
        for each in running:
            scheduler.submit(each)
        assert [finish(each)[1].stats.completion_tokens for each in running] == [10, 19, 28, 37]
    again = request(words(20), max_tokens=3)
    scheduler.submit(again)
    assert finish(again)[1].stats.cached_prompt_tokens > 0, "what is in memory is used again"


def test_a_model_without_layers_on_a_gpu_gets_no_device(llama_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from leap_core.inference.llama import model as module

    seen = []
    load = module.library().llama_model_load_from_file

    class Library:
        def __getattr__(self, name: str):
            return getattr(module_library, name)

        def llama_model_load_from_file(self, path: bytes, params):
            seen.append(params.devices)
            return load(path, params)

    module_library = module.library()
    monkeypatch.setattr(module, "library", lambda: Library())
    LlamaModel(llama_path).close()
    LlamaModel(llama_path, placement=Placement(-1)).close()
    assert seen[0] and not seen[1], "an empty list of devices, and llama.cpp's own choice"


def test_checkpoints_are_far_apart() -> None:
    prompt = PromptTokens((Tokens(tuple(range(9000))),), boundaries=(100, 3000, 6000, 8900))
    assert checkpoints_for(prompt, 0, on_gpu=True) == [100, 2048, 4096, 6144, 8192, 8900]
    assert len(checkpoints_for(prompt, 0)) > 30
