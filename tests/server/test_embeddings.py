"""/v1/embeddings with the official client, and /v1/rerank."""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from starlette.applications import Starlette

from leap_core import ModelLoadingOptions
from leap_core.models.resolving import LocalModel
from leap_core.server.application import build_app
from leap_core.server.endpoints.generation import GenerationEndpoints
from leap_core.server.models.abilities import Offer
from leap_core.server.models.loaded_models import LoadedModels
from tests.support.hashed_words import HashedWordsRunner
from tests.support.random_models import EncoderShape, write_random_model

HTTP_LIBRARIES = ("httpx2", "httpx")
"""Which of them openai's client uses depends on its version."""


@pytest.fixture
def app(leap_home: Path) -> Starlette:
    """A server whose vectors are hashed words; ``Mine-F16`` is installed."""
    for name in ("Mine-F16", "Second-F16", "Third-F16"):
        directory = leap_home / "models" / name
        directory.mkdir(parents=True)
        write_random_model(directory / f"{name}.gguf", encoder=EncoderShape())
    models = vectors_of([])
    return build_app(models, GenerationEndpoints(models))


def vectors_of(loaded: list[HashedWordsRunner]) -> LoadedModels:
    """Models whose vectors are hashed words; each that is loaded is noted."""

    def load(local: LocalModel, _options: ModelLoadingOptions) -> HashedWordsRunner:
        loaded.append(HashedWordsRunner(name=local.model_id))
        return loaded[-1]

    return LoadedModels(lambda local, options: pytest.fail("no model answers here"), embedder=load)


def ask(app: Starlette, path: str, body: object) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
            return await client.post(path, json=body)

    return asyncio.run(send())


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_the_official_client_gets_vectors(app: Starlette, encoding: str | None) -> None:
    async def embed() -> openai.types.CreateEmbeddingResponse:
        library = import_module(next(each for each in HTTP_LIBRARIES if find_spec(each)))
        http = openai.DefaultAsyncHttpxClient(transport=library.ASGITransport(app))
        async with openai.AsyncOpenAI(base_url="http://host/v1", api_key="x", http_client=http) as client:
            more = {} if encoding is None else {"encoding_format": encoding}
            return await client.embeddings.create(model="mine", input=["one two", "two three"], **more)

    reply = asyncio.run(embed())
    vectors = [each.embedding for each in reply.data]
    if encoding == "base64":
        import base64

        vectors = [np.frombuffer(base64.b64decode(each), "<f4") for each in vectors]
    expected = HashedWordsRunner().embed(["one two", "two three"])
    assert np.allclose(vectors, expected, atol=1e-6)
    assert reply.usage.prompt_tokens == 8 and reply.model == "Mine-F16"


def test_fewer_dimensions_and_one_text(app: Starlette) -> None:
    reply = ask(app, "/v1/embeddings", {"model": "Mine", "input": "x", "dimensions": 8}).json()
    assert len(reply["data"]) == 1 and len(reply["data"][0]["embedding"]) == 8


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": "Mine", "input": [1, 2]}, 400),
        ({"model": "Mine", "input": []}, 400),
        ({"model": "Mine"}, 400),
        ({"input": "x"}, 400),
        ({"model": "Mine", "input": "x", "encoding_format": "hex"}, 400),
        ({"model": "Mine", "input": "x", "dimensions": 0}, 400),
        ({"model": "nobody", "input": "x"}, 404),
        ({"model": "../../etc/passwd", "input": "x"}, 404),
        ({"model": "mine.gguf", "input": "x"}, 404),
        ({"model": "Mine", "input": "word " * 600}, 400),
        ([], 400),
    ],
)
def test_invalid_inputs_are_refused(app: Starlette, body: object, status: int) -> None:
    reply = ask(app, "/v1/embeddings", body)
    assert reply.status_code == status and reply.json()["error"]["message"]


def test_documents_are_ranked(app: Starlette) -> None:
    body = {
        "model": "Mine",
        "query": "red apples",
        "documents": ["green pears", "red apples are here", {"text": "red"}],
    }
    reply = ask(app, "/v1/rerank", {**body, "top_n": 2, "return_documents": True}).json()
    assert [each["index"] for each in reply["results"]] == [2, 1] or reply["results"][0]["index"] in (1, 2)
    assert len(reply["results"]) == 2 and reply["results"][0]["document"]["text"]
    assert ask(app, "/v1/rerank", {**body, "documents": "x"}).status_code == 400
    assert ask(app, "/v1/rerank", {**body, "keep_alive": "1h"}).status_code == 200
    assert ask(app, "/v1/rerank", {**body, "keep_alive": "soon"}).json()["error"]["param"] == "keep_alive"


def test_a_model_of_the_other_kind_is_refused_before_it_is_loaded(leap_home: Path) -> None:
    (leap_home / "models/Text").mkdir(parents=True)
    write_random_model(leap_home / "models/Text/Text.gguf")
    models = LoadedModels(lambda local, options: pytest.fail("loaded"), offer=Offer())
    app = build_app(models, GenerationEndpoints(models))
    for path, more in (("/v1/embeddings", {"input": "Hi"}), ("/v1/rerank", {"query": "a", "documents": ["b"]})):
        reply = ask(app, path, {"model": "Text", **more})
        assert reply.status_code == 400 and "was not made for embeddings" in reply.json()["error"]["message"]
    write_random_model(leap_home / "models/Text/Text.gguf", encoder=EncoderShape())
    body = {"model": "Text", "messages": [{"role": "user", "content": "Hi"}]}
    reply = ask(app, "/v1/chat/completions", body)
    assert reply.status_code == 400 and "cannot answer a prompt" in reply.json()["error"]["message"]


@pytest.mark.slow
def test_the_last_two_models_stay_loaded(app: Starlette) -> None:
    loaded: list[HashedWordsRunner] = []

    async def ask_in_turn() -> None:
        models = vectors_of(loaded)
        for name in ("Mine", "Second", "Mine", "Third", "Mine", "Second"):
            model = await models.reserve(name, embeds=True)
            with model.embedder_in_use() as runner:
                runner.embed(["x"])
            model.release()
            await asyncio.sleep(0.05)
        assert len(models) == 2
        await models.close()

    asyncio.run(ask_in_turn())
    assert [each.model_id for each in loaded] == ["Mine-F16", "Second-F16", "Third-F16", "Second-F16"]


def test_a_model_that_computes_is_not_taken_away(app: Starlette) -> None:
    loaded: list[HashedWordsRunner] = []

    async def want_three_at_once() -> None:
        models = vectors_of(loaded)
        first, second = [await models.reserve(name, embeds=True) for name in ("Mine", "Second")]
        third = asyncio.create_task(models.reserve("Third", embeds=True))
        with first.embedder_in_use() as runner, second.embedder_in_use():
            first.release()
            second.release()
            await asyncio.sleep(0.05)
            assert not third.done() and len(loaded) == 2, "the third waits until one of them is done"
            assert runner.embed(["x"]).shape == (1, runner.dimensions)
        assert (await third).name == "Third-F16" and len(loaded) == 3
        (await third).release()
        await models.close()

    asyncio.run(want_three_at_once())
