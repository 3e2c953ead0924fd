"""Models that requests have loaded: offered by name, within bounds, in order, and never taken away from an answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from leap_core import LeapModelLoadingError, LeapModelNotFoundError, ModelLoadingOptions
from leap_core.conversation.generator import OnGpu
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.models.resolving import LocalModel, resolve_local
from leap_core.protocols.openai.fields import read_keep_alive
from leap_core.server.application import build_app
from leap_core.server.endpoints.generation import GenerationEndpoints
from leap_core.server.http import Refused
from leap_core.server.models.abilities import Offer, fits_on_gpus, foreseen_memory
from leap_core.server.models.loaded_model import LoadRequest
from leap_core.server.models.loaded_models import Bounds, LoadedModels
from leap_core.testing import ScriptedModelRunner
from tests.support.random_models import write_random_model

from ..wav_bytes import wav_of

NAMES = ("First-F16", "Second-F16", "Third-F16")


class Loading:
    """Makes scripted runners, and notes which; ``damaged`` ones cannot be loaded."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.damaged: set[str] = set()
        self.present = self.most = self.tried = 0

    def __call__(self, local: LocalModel, _options: ModelLoadingOptions) -> ScriptedModelRunner:
        self.tried += 1
        if local.model_id in self.damaged:
            raise LeapModelLoadingError(f"{local.model_id} is damaged")
        self.loaded.append(local.model_id)
        self.present += 1
        self.most = max(self.most, self.present)
        runner = ScriptedModelRunner(*["Hi."] * 300, model_id=local.model_id)
        unload = runner.unload

        def unload_counted() -> None:
            self.present -= 1
            unload()

        runner.unload = unload_counted  # type: ignore[method-assign]
        return runner


@pytest.fixture
def loading(leap_home: Path) -> Loading:
    for name in NAMES:
        (leap_home / "models" / name).mkdir(parents=True)
        write_random_model(leap_home / "models" / name / f"{name}.gguf")
    return Loading()


Use = Callable[[LoadedModels], Awaitable[Any]]


def run(loading: Loading, use: Use, *, patterns: tuple[str, ...] = ("*",), **bounds: Any) -> Any:
    async def main() -> Any:
        queue = bounds.pop("queue", None)
        offer = Offer(patterns, default="First")
        models = LoadedModels(loading, offer=offer, bounds=Bounds(**bounds), queue=queue)
        try:
            return await use(models)
        finally:
            await models.close()

    return asyncio.run(main())


async def use(models: LoadedModels, name: str | None, seconds: float = 0.0, **how: Any) -> str:
    """Use a model for a while, as an answer does."""
    model = await models.reserve(name, **how)
    try:
        with model.in_use():
            await asyncio.sleep(seconds)
            assert model.runner is not None
            return model.name
    finally:
        model.release()


def test_the_least_recently_used_model_is_unloaded(loading: Loading) -> None:
    async def main(models: LoadedModels) -> None:
        for name in ("first", "Second-F16", None, "third", "first-f16"):
            await use(models, name)
        assert sorted(model.name for model in models) == ["First-F16", "Third-F16"]

    run(loading, main, models=2)
    assert loading.loaded == ["First-F16", "Second-F16", "Third-F16"] and loading.most == 2


def test_a_busy_model_is_not_unloaded_and_waiting_requests_get_a_turn(loading: Loading) -> None:
    """While the third waits for room, nobody new gets the model that leaves for it."""

    async def main(models: LoadedModels) -> None:
        order: list[str] = []
        is_over = {"first": asyncio.Event(), "second": asyncio.Event()}

        async def noted(name: str, until: asyncio.Event | None = None) -> None:
            model = await models.reserve(name)
            try:
                with model.in_use():
                    begun.append(name)
                    if until is not None:
                        await until.wait()
            finally:
                model.release()
            order.append(name)

        await asyncio.gather(use(models, "first"), use(models, "second"))
        begun: list[str] = []
        answers = [asyncio.create_task(noted(name, is_over[name])) for name in ("first", "second")]
        while len(begun) < 2:
            await asyncio.sleep(0.01)
        answers.append(asyncio.create_task(noted("third")))
        while all(model.leaving is None for model in models):
            await asyncio.sleep(0.01)
        answers.append(asyncio.create_task(noted("first")))
        await asyncio.sleep(0.1)
        is_over["first"].set()
        while "third" not in order:
            assert order in ([], ["first"])
            await asyncio.sleep(0.01)
        is_over["second"].set()
        await asyncio.gather(*answers)
        assert order == ["first", "third", "second", "first"]

    run(loading, main, models=2)
    assert loading.most == 2


def test_memory_is_kept_within_the_bound(loading: Loading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leap_core.server.models.loaded_models.resident_bytes", lambda: 0)
    size = 10**9
    monkeypatch.setattr("leap_core.server.models.loaded_models.size_of", lambda _: size)
    monkeypatch.setattr("leap_core.server.models.loaded_models.size_of_files", lambda *_: size)
    monkeypatch.setattr("leap_core.server.models.loaded_models.foreseen_memory", lambda *_: size)

    async def main(models: LoadedModels) -> None:
        await asyncio.gather(*(use(models, name, 0.01) for name in NAMES))
        assert sum(model.memory or 0 for model in models) <= 2.5e9

    run(loading, main, memory=int(2.5e9))
    assert loading.most == 2

    async def too_large(models: LoadedModels) -> None:
        with pytest.raises(LeapModelLoadingError, match="takes 1000 MB, and the server may use 500 MB"):
            await use(models, "first")

    run(loading, too_large, memory=5 * 10**8)


def on_a_gpu(loading: Loading, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Every model takes 5 bytes of a GPU that has so many."""
    monkeypatch.setattr(ScriptedModelRunner, "on_gpu", OnGpu(-1, 5))
    monkeypatch.setattr(
        "leap_core.server.models.loaded_models.fits_on_gpus", lambda *_: 5 * (loading.present + 1) <= room
    )


def test_models_on_a_gpu_make_room_there(loading: Loading, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(loading, monkeypatch, room=12)

    async def main(models: LoadedModels) -> None:
        for name in ("first", "second", "third"):
            await use(models, name)
        assert sorted(model.name for model in models) == ["Second-F16", "Third-F16"]
        shown = next(iter(models)).to_json()
        assert (shown["gpu_layers"], shown["gpu_memory"]) == (-1, 5)

    run(loading, main, models=3)
    assert loading.most == 2

    async def one_answers(models: LoadedModels) -> None:
        await asyncio.gather(*(use(models, name, 0.05) for name in NAMES))

    run(loading, one_answers, models=3)
    assert loading.most == 2, "who answers is waited for"


def test_a_model_that_never_fits_on_the_gpu_is_loaded_all_the_same(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_gpu(loading, monkeypatch, room=3)

    async def main(models: LoadedModels) -> None:
        await use(models, "first")
        assert await use(models, "second") == "Second-F16"
        await models.load(LoadRequest("Third", keep_alive=0))
        assert await use(models, "first") == "First-F16"
        assert {model.name for model in models} == {"First-F16", "Third-F16"}, "one that stays is not let go of"

    run(loading, main, models=3)


def test_the_memory_of_gpus_counts_within_the_bound(loading: Loading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leap_core.server.models.loaded_models.resident_bytes", lambda: 0)
    monkeypatch.setattr("leap_core.server.models.loaded_models.foreseen_memory", lambda *_: 10**8)
    monkeypatch.setattr(ScriptedModelRunner, "on_gpu", OnGpu(-1, 9 * 10**8))

    async def main(models: LoadedModels) -> None:
        for name in NAMES:
            await use(models, name)
        (model,) = models
        assert (model.memory, model.takes) == (10**8, 10**9)

    run(loading, main, memory=int(1.5e9))
    assert loading.most == 2, "the first time nobody knows what is on the GPU"


def test_gpu_memory_does_not_count_as_main_memory(loading: Loading) -> None:
    local, options = resolve_local("First"), ModelLoadingOptions(context_size=512)
    whole, without = foreseen_memory(local, options), foreseen_memory(local, options, OnGpu(-1, 1))
    weights = sum(each.size_bytes for each in read_gguf_header(local.path).tensors)
    assert whole - without > weights / 2 and fits_on_gpus(local, options), "no GPU is here"


def test_what_contexts_take_counts_before_a_model_is_loaded_for_the_first_time(loading: Loading) -> None:
    local = resolve_local("First")
    size = local.path.stat().st_size
    small, large = (foreseen_memory(local, ModelLoadingOptions(slots=slots)) for slots in (1, 16))
    assert size < small < large

    async def main(models: LoadedModels) -> None:
        for name in NAMES:
            await use(models, name)

    run(loading, main, memory=foreseen_memory(local, LoadRequest("First").options()) + size // 2)
    assert loading.most == 1


def test_pinned_models_stay_and_can_fill_the_limit(loading: Loading) -> None:
    async def main(models: LoadedModels) -> None:
        await models.load(LoadRequest("First", keep_alive=0))
        for name in ("second", "third", "second"):
            await use(models, name)
        assert {model.name for model in models.served} == {"First-F16"} and loading.most == 2
        await models.load(LoadRequest("Second", keep_alive=0))
        with pytest.raises(LeapModelLoadingError, match="does not fit beside First-F16, Second-F16"):
            await use(models, "third")

    run(loading, main, models=2)


def test_a_damaged_model_fails_only_its_own_requests(loading: Loading) -> None:
    loading.damaged = {"Third-F16"}

    async def main(models: LoadedModels) -> None:
        await asyncio.gather(use(models, "first"), use(models, "second"))
        for _ in range(3):
            with pytest.raises(LeapModelLoadingError, match="damaged"):
                await use(models, "third")
        assert loading.tried == 3, "it is not tried again at once"

    run(loading, main, models=3)


def test_the_number_of_waiting_requests_is_limited(loading: Loading) -> None:
    async def main(models: LoadedModels) -> None:
        held = await models.reserve("first")
        waiting = [asyncio.create_task(use(models, name)) for name in ("second", "second")]
        while models._waiting < len(waiting):
            await asyncio.sleep(0.01)
        with pytest.raises(Refused, match="2 requests wait for models") as refused:
            await use(models, "third")
        assert refused.value.status == 503 and refused.value.retry_after
        held.release()
        assert await asyncio.gather(*waiting) == ["Second-F16"] * 2

    run(loading, main, models=1, queue=2)


def test_a_request_that_leaves_the_queue_loads_nothing(loading: Loading) -> None:
    async def main(models: LoadedModels) -> None:
        held = await models.reserve("first")
        waiting = asyncio.create_task(use(models, "second"))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.sleep(0)
        held.release()
        await use(models, "first")
        assert "Second-F16" not in loading.loaded

    run(loading, main, models=1)


def test_a_request_says_how_long_its_model_stays(loading: Loading) -> None:
    async def main(models: LoadedModels) -> None:
        await use(models, "first", keep_alive=read_keep_alive(0))
        await use(models, "second", keep_alive=read_keep_alive("5m"))
        await asyncio.sleep(0.01)
        await models.expire()
        (model,) = models
        assert model.name == "Second-F16" and 299 < (model.expires_in or 0) <= 300
        await use(models, "second", keep_alive=read_keep_alive(-1))
        assert model.expires_in is None

    run(loading, main)


def test_only_offered_models_can_be_loaded(loading: Loading, tmp_path: Path) -> None:
    async def main(models: LoadedModels) -> None:
        assert await use(models, "SECOND-f16") == "Second-F16"
        for name in ("Third", "builtin", "nobody", str(tmp_path / "x.gguf"), "../models/Third-F16"):
            with pytest.raises(LeapModelNotFoundError):
                await use(models, name)

    run(loading, main, patterns=("First", "sec*"))
    assert [model.model_id for model in Offer(("f*", "third")).models().values()] == ["First-F16", "Third-F16"]
    with pytest.raises(LeapModelNotFoundError, match=r"no installed model is called 'x\*'"):
        Offer(("x*",)).check()


@pytest.mark.parametrize("name", ["a+" * 1200, "First+" * 200_000, "a" * 1_000_000, "\u0301" * 1_000_000])
def test_a_long_name_is_refused_without_work(loading: Loading, name: str) -> None:
    """Quadratic work would take the longest of them hours."""

    async def use(models: LoadedModels) -> None:
        for embeds in (False, True):
            with pytest.raises(LeapModelNotFoundError) as refused:
                await models.reserve(name, embeds=embeds)
            assert len(str(refused.value)) < 300
        with pytest.raises(LeapModelNotFoundError):
            await models.described(name)

    run(loading, use)


def test_models_are_listed_with_whether_they_are_loaded(loading: Loading) -> None:
    async def main(models: LoadedModels) -> None:
        app = build_app(models, GenerationEndpoints(models))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:
            assert (await client.get("/health")).status_code == 200
            body = {"model": "Second", "messages": [{"role": "user", "content": "?"}], "keep_alive": "1h"}
            answer = (await client.post("/v1/chat/completions", json=body)).json()
            assert answer["choices"][0]["message"]["content"] == "Hi." and answer["model"] == "Second"
            listed = (await client.get("/v1/models")).json()["data"]
            assert {each["id"]: each["loaded"] for each in listed} == dict.fromkeys(NAMES, False) | {"Second-F16": True}
            assert (await client.get("/v1/models/third-f16")).json()["leap"]["state"] == "unloaded"
            assert next(iter(models)).keep_alive == 3600
            missing = await client.post("/v1/chat/completions", json={**body, "model": "nobody"})
            assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
            wrong = await client.post("/v1/chat/completions", json={**body, "keep_alive": "soon"})
            assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "keep_alive"
            speech = {"model": "Second", "input": "Hello", "keep_alive": "2h"}
            assert (await client.post("/v1/audio/speech", json=speech)).status_code == 400, "it does not speak"
            assert next(iter(models)).keep_alive == 7200
            form, sound = {"model": "Second", "keep_alive": "3h"}, {"file": wav_of([0.1] * 8000, 8000)}
            assert (await client.post("/v1/audio/transcriptions", data=form, files=sound)).status_code == 200
            assert next(iter(models)).keep_alive == 10800

    run(loading, main, patterns=("*-f16",))


def test_what_a_model_is_stands_in_the_list_before_it_is_loaded(loading: Loading) -> None:
    async def main(models: LoadedModels) -> None:
        app = build_app(models, GenerationEndpoints(models))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:
            listed = (await client.get("/v1/models")).json()["data"]
            kinds = {each["id"]: (each["leap"]["kind"], each["leap"]["capabilities"][0]) for each in listed}
            assert kinds == {"First-F16": ("text", "completion"), "builtin-embed": ("embedding", "embedding")}
            assert (await client.get("/props")).json()["models"] == []
            (props,) = (await client.get("/props?model=first")).json()["models"]
            assert (props["model"], props["kind"], props["tokens_generated"]) == ("First-F16", "text", 0)
            assert (await client.get("/props?model=nobody")).status_code == 404

    run(loading, main, patterns=("first", "builtin-embed"))


@pytest.mark.slow
def test_eight_clients_use_three_models_with_memory_for_two(loading: Loading) -> None:
    """Every request is answered or refused, none waits for ever, and no model is loaded more often than requests
    change from one to another."""
    loading.damaged = {"Third-F16"}
    chance = random.Random(38)
    asked = [chance.choice([*NAMES, "builtin"]) for _ in range(200)]
    changes = sum(1 for one, next_one in zip(asked, asked[1:], strict=False) if one != next_one)

    async def main(models: LoadedModels) -> list[str]:
        todo = iter(asked)
        results: list[str] = []

        async def client() -> None:
            for name in todo:
                try:
                    results.append(await use(models, name, chance.random() * 0.004))
                except LeapModelLoadingError:
                    results.append("failed")

        await asyncio.gather(*(client() for _ in range(8)))
        return results

    results = run(loading, main, models=2)
    assert sorted(results) == sorted("failed" if name == "Third-F16" else name for name in asked)
    assert loading.most <= 2 and len(loading.loaded) <= changes


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(None, None), (90, 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("-1s", 0.0), (-1, 0.0), ("300", 300.0), (0, 1e-3)],
)
def test_keep_alive_durations_are_parsed(value: object, seconds: float | None) -> None:
    assert read_keep_alive(value) == seconds


def test_a_model_that_takes_more_than_was_foreseen_is_let_go_of(loading: Loading, monkeypatch: Any) -> None:
    sizes = iter([0, 10**9])
    monkeypatch.setattr("leap_core.server.models.loaded_models.resident_bytes", lambda: next(sizes, 0))

    async def main(models: LoadedModels) -> None:
        with pytest.raises(LeapModelLoadingError, match="takes 1000 MB, and the server may use 500 MB"):
            await use(models, "first")
        assert list(models) == []

    run(loading, main, memory=5 * 10**8)
    assert loading.present == 0


def test_a_model_whose_context_does_not_fit_alone_is_not_loaded(loading: Loading) -> None:
    local = resolve_local("First")
    size = local.path.stat().st_size

    async def main(models: LoadedModels) -> None:
        with pytest.raises(LeapModelLoadingError, match="--max-memory|and the server may use"):
            await use(models, "first")

    run(loading, main, memory=size + 1)
    assert loading.tried == 0


def test_a_model_that_is_loaded_again_into_freed_memory_counts_as_much_as_before(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter([0, 2 * 10**9, 2 * 10**9, 2 * 10**9 + 1])  # the second load takes what the first one had
    monkeypatch.setattr("leap_core.server.models.loaded_models.resident_bytes", lambda: next(sizes))

    async def main(models: LoadedModels) -> None:
        await use(models, "first")
        await models.unload(models.named("first"))
        await use(models, "first")
        assert models.named("first").memory == 2 * 10**9

    run(loading, main, memory=3 * 10**9)
