"""Small random models, on which a wrong state of memory changes every token that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leap_core.conversation.options import CacheOptions, GenerationOptions
from leap_core.inference.engine.compute_loop import compute_loop
from leap_core.inference.engine.request import Request, SequenceEnd
from leap_core.inference.engine.sampler import Sampler
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.snapshots import SnapshotStore
from leap_core.inference.llama.context import AttentionSettings, LlamaContext
from leap_core.inference.llama.model import LlamaModel
from tests.support.random_models import TINY_LFM2, TINY_LLAMA, write_random_model

from .prompts import prompt_of


@pytest.fixture(scope="session")
def lfm2_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("models") / "lfm2.gguf", TINY_LFM2, "q8_0", seed=8)


@pytest.fixture(scope="session")
def llama_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("models") / "llama.gguf", TINY_LLAMA, "q8_0", seed=8)


@pytest.fixture(scope="session", params=["hybrid", "attention only"])
def model(request: pytest.FixtureRequest, lfm2_path: Path, llama_path: Path) -> Iterator[LlamaModel]:
    loaded = LlamaModel(lfm2_path if request.param == "hybrid" else llama_path)
    yield loaded
    loaded.close()


@pytest.fixture(autouse=True)
def _no_other_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests of this process have loaded takes no turns."""
    monkeypatch.setattr(type(compute_loop), "is_shared", False)


@pytest.fixture
def exact() -> bool:
    """Whether contexts compute each position alone."""
    return False


@pytest.fixture
def make_scheduler(model: LlamaModel, exact: bool) -> Iterator[Callable[..., Scheduler]]:
    """Schedulers over the model, closed at the end of the test."""
    made: list[tuple[Scheduler, LlamaContext]] = []

    def make(
        *,
        slots: int = 4,
        context_size: int = 1024,
        cells: int | None = None,
        batch_size: int = 256,
        cache: CacheOptions | None = None,
        scope: bytes = b"0123456789abcdef",
    ) -> Scheduler:
        context = LlamaContext(
            model,
            cells=cells or slots * context_size,
            slots=slots,
            batch_size=batch_size,
            threads=1,
            attention=AttentionSettings(
                type_k="bf16"
            ),  # with this all ways to compute round alike: answers can be compared
            exact=exact,
        )
        store = SnapshotStore(cache or CacheOptions(), scope)
        made.append((Scheduler(context, store, context_size=context_size, threads=1), context))
        return made[-1][0]

    yield make
    for scheduler, context in made:
        scheduler.close()
        context.close()


def request(ids: list[int], max_tokens: int | None = 16, boundaries: tuple[int, ...] = (), **given: object) -> Request:
    """A greedy request, unless options say otherwise."""
    neutral = {"temperature": 0.0, "top_p": 1.0, "min_p": 0.0, "top_k": 0, "repetition_penalty": 1.0}
    options = GenerationOptions(**(neutral | given))  # type: ignore[arg-type]
    return Request(prompt_of(ids, boundaries), Sampler(options, ids), max_tokens=max_tokens)


def finish(sequence: Request) -> tuple[list[int], SequenceEnd]:
    """All tokens of a submitted request, and how it ended."""
    tokens: list[int] = []
    while not isinstance(event := sequence.events.get(timeout=60), SequenceEnd):
        tokens += event if isinstance(event, list) else [event]
    return tokens, event
