"""The models of a host: loaded once, found by every name, let go in time."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from leap_core import LeapModelLoadingError, LeapModelNotFoundError
from leap_core.conversation.generator import Activity
from leap_core.models.builtin import model_path
from leap_core.server.application import build_app
from leap_core.server.endpoints.generation import GenerationEndpoints
from leap_core.server.endpoints.management import ManagementEndpoints
from leap_core.server.http import Refused
from leap_core.server.models.loaded_model import LoadRequest, Throughput
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.testing import ScriptedModelRunner


class Loader:
    """Makes scripted runners, and counts them."""

    def __init__(self) -> None:
        self.made: list[ScriptedModelRunner] = []
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None

    def __call__(self, model, options):
        self.gate.wait(100)
        if self.failure:
            raise self.failure
        self.made.append(ScriptedModelRunner("Hi.", model_id=model.model_id))
        return self.made[-1]


@pytest.fixture
def loader():
    return Loader()


def test_two_concurrent_loads_get_the_same_model(loader):
    async def main():
        models = LoadedModels(loader)
        loader.gate.clear()
        wanted = [asyncio.create_task(models.load(LoadRequest("builtin"))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="still being loaded"):
            models.to_answer("builtin")
        await asyncio.sleep(0.05)
        with pytest.raises(Refused, match="still being loaded") as caught, models.named("builtin").in_use():
            pass
        assert caught.value.status == 503
        loader.gate.set()
        assert len(set(await asyncio.gather(*wanted))) == 1 == len(loader.made)
        with pytest.raises(LeapModelNotFoundError):
            models.to_answer("gpt-4")

    asyncio.run(main())


def test_a_model_that_makes_no_progress_is_in_the_log_once_and_in_health(loader, caplog):
    async def main():
        models = LoadedModels(loader)
        await models.load(LoadRequest("builtin"))
        transport = httpx.ASGITransport(build_app(models, GenerationEndpoints(models), []))

        async def health(activity: Activity) -> httpx.Response:
            loader.made[0].activity = lambda: activity
            for _ in range(2):
                await models.expire()
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.get("/health")

        long_step = Activity(2, 1, 4, "decode of 512 positions", 90.0, 90.5, aborting=False)
        answer = await health(long_step)
        assert (answer.status_code, answer.json()["status"]) == (200, "ok") and not caplog.records
        assert answer.json()["activity"]["builtin"]["step"] == "decode of 512 positions"
        assert (await health(Activity(0, 0, 4, None, 0.0, 900.0, aborting=False))).status_code == 200
        answer = await health(Activity(2, 1, 4, "decode of 3 positions", 0.1, 31.0, aborting=True))
        assert (answer.status_code, answer.json()["status"]) == (503, "stalled")
        (record,) = caplog.records
        assert "no progress" in record.getMessage() and "aborting=True" in record.getMessage()

    with caplog.at_level(logging.WARNING, "leap.host"):
        asyncio.run(main())


def test_a_model_is_found_by_every_name(loader):
    async def main():
        models = LoadedModels(loader)
        held = await models.load(LoadRequest("builtin"))
        for name in ("builtin", "BUILTIN", held.key, None):
            assert models.named(name) is held
        for reference in ("builtin", str(model_path()), "model.gguf"):
            assert await models.find(LoadRequest(reference, cwd=Path(model_path()).parent)) is held
        for reference in ("gpt-4", "/no/such.gguf"):
            with pytest.raises(LeapModelNotFoundError, match="loaded: builtin"):
                await models.find(LoadRequest(reference))

    asyncio.run(main())


def test_files_of_one_name_get_names_of_their_own(loader, tmp_path):
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "tiny.gguf").write_bytes(Path(model_path()).read_bytes()[:100])

    async def main():
        models = LoadedModels(loader)
        return [(await models.load(LoadRequest(str(tmp_path / name / "tiny.gguf")))).name for name in ("a", "b")]

    assert asyncio.run(main()) == ["tiny", "tiny-2"]


def test_a_failure_to_load_leaves_nothing(loader):
    async def main():
        models = LoadedModels(loader)
        loader.failure = LeapModelLoadingError("it is damaged")
        for _ in range(2):
            with pytest.raises(LeapModelLoadingError, match="damaged"):
                await models.load(LoadRequest("builtin"))
            assert len(models) == 0
        loader.failure = None
        assert (await models.load(LoadRequest("builtin"))).state == "ready"

    asyncio.run(main())


def test_an_unused_model_is_unloaded_and_loading_restarts_its_time(loader):
    async def main():
        models = LoadedModels(loader)
        held = await models.load(LoadRequest("builtin", keep_alive=100))
        await models.expire()
        assert 99 < held.expires_in <= 100
        held.last_used -= 50
        assert held.expires_in < 51
        assert await models.load(LoadRequest("builtin")) is held and held.expires_in > 99
        held.last_used -= 200
        with held.in_use():
            assert held.expires_in is None
            await models.expire()
            assert len(models) == 1, "it is in use"
        assert held.expires_in > 99
        held.last_used -= 200
        await models.expire()
        assert len(models) == 0 and loader.made[0].is_unloaded

    asyncio.run(main())


def test_without_keep_alive_a_model_stays(loader):
    async def main():
        models = LoadedModels(loader)
        held = await models.load(LoadRequest("builtin", keep_alive=0))
        held.last_used -= 1e9
        await models.expire()
        assert held.expires_in is None and len(models) == 1

    asyncio.run(main())


def test_a_model_loaded_with_other_options_does_not_match(loader):
    async def main():
        models = LoadedModels(loader)
        held = await models.load(LoadRequest("builtin", cpu_threads=2))
        with pytest.raises(LeapModelLoadingError, match="a context of 4096 tokens, not 64"):
            await models.load(LoadRequest("builtin", context_size=64))
        assert held.differs(LoadRequest("builtin", cpu_threads=3)) == "2 threads, not 3"
        assert held.differs(LoadRequest("builtin", cpu_threads=2, context_size=4096)) is None

    asyncio.run(main())


def test_a_file_that_was_replaced_is_another_model(loader, tmp_path):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")

    async def main():
        models = LoadedModels(loader)
        held = await models.load(LoadRequest(str(file)))
        assert held.differs(LoadRequest(str(file))) is None
        fresh = tmp_path / "fresh"
        fresh.write_bytes(b"GGUF")
        fresh.replace(file)
        assert held.differs(LoadRequest(str(file))) == "an older version of its file"

    asyncio.run(main())


def test_throughput_counts_the_time_of_answers_only(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    speed = Throughput()
    assert speed.tokens_per_second() is None
    for tokens in (30, 10):
        speed.begin()
        speed.begin()
        speed.add(tokens)
        now[0] += 2
        speed.end()
        speed.end()
        now[0] += 1000
        assert speed.tokens_per_second() == tokens / 2


def test_a_path_means_the_file_that_it_leads_to_from_there(loader, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for place in (here, there):
        place.mkdir()
        shutil.copy(model_path(), place / "m.gguf")

    async def main():
        models = LoadedModels(loader)
        held = await models.load(LoadRequest("./m.gguf", cwd=here))
        assert await models.find(LoadRequest("./m.gguf", cwd=here)) is held
        assert await models.find(LoadRequest("m", cwd=there)) is held
        for _ in range(2):
            with pytest.raises(LeapModelNotFoundError):
                await models.find(LoadRequest("./m.gguf", cwd=there))
            (there / "m.gguf").unlink(missing_ok=True)

    asyncio.run(main())


def test_a_request_for_a_model_that_is_being_unloaded_loads_a_new_one(loader):
    async def main():
        models = LoadedModels(loader)
        first = await models.load(LoadRequest("builtin"))
        let_go = threading.Event()
        loader.made[0].unload = lambda: let_go.wait(100)
        unloading = [asyncio.create_task(models.unload(first)) for _ in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(Refused) as caught, first.in_use():
            pass
        assert caught.value.status == 404 and isinstance(caught.value.error, LeapModelNotFoundError)
        wanted = asyncio.create_task(models.load(LoadRequest("builtin")))
        await asyncio.sleep(0.05)
        assert not wanted.done() and not any(task.done() for task in unloading)
        let_go.set()
        second = await wanted
        assert second is not first and second.state == "ready" and len(loader.made) == 2

    asyncio.run(main())


def test_unload_all_includes_models_that_are_being_loaded(loader):
    async def main():
        models, ended = LoadedModels(loader), asyncio.Event()
        app = Starlette(routes=ManagementEndpoints(models, GenerationEndpoints(models), ended.set).routes())
        loader.gate.clear()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:
            loading = asyncio.create_task(client.post("/leap/load", json={"reference": "builtin"}))
            while not len(models):
                await asyncio.sleep(0.01)
            unloading = asyncio.create_task(client.post("/leap/unload", json={"all": True}))
            await asyncio.sleep(0.05)
            loader.gate.set()
            assert (await unloading).json()["ends"] and ended.is_set() and len(models) == 0
            assert "the model host is ending" in (await loading).text

    asyncio.run(main())


def test_a_changed_queue_length_takes_effect(loader):
    async def main():
        models = LoadedModels(loader)
        held = await models.load(LoadRequest("builtin"))
        assert (await models.load(LoadRequest("builtin", queue=0))).queue == 0 == held.queue

    asyncio.run(main())
