"""Vectors of a model elsewhere: in Python, by ``leap embed``, in an index and in a batch."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from leap_core.errors import LeapEndpointError, LeapError, LeapGenerationError, LeapOptionsError
from leap_core.models.aliases_and_endpoints import Endpoint
from leap_core.protocols.endpoint.connection import Connection
from leap_core.protocols.endpoint.remote_embeddings import EndpointEmbeddingRunner
from leap_core.protocols.openai.embeddings import encoded

from .conftest import KEY, QUICK
from .fake_server import fails, hangs_up, sleeps

WORDS = ("cat", "dog", "sun")


def vector_of(text: str) -> list[float]:
    return [float(1 + text.count(word)) for word in WORDS]


def embeds(handler) -> None:
    """Counts words; the vectors come in another order than the texts."""
    size = handler.body.get("dimensions", len(WORDS))
    data = [
        {"object": "embedding", "index": n, "embedding": vector_of(text)[:size]}
        for n, text in enumerate(handler.body["input"])
    ]
    body = {"object": "list", "data": data[::-1], "usage": {"prompt_tokens": 1, "total_tokens": 1}}
    handler.send(200, "application/json", json.dumps(body).encode())


@pytest.fixture
def runner(fake, leap_home):
    fake.always = embeds
    endpoint = Endpoint(fake.url, "m", key=KEY)
    with EndpointEmbeddingRunner(endpoint, Connection(endpoint, KEY, QUICK, "vectors")) as made:
        yield made


def test_vectors_come_in_the_order_of_the_texts_and_of_unit_length(fake, runner):
    texts = [f"cat {'dog ' * n}" for n in range(150)]
    done: list[int] = []
    vectors = runner.embed(texts, prefix="sun ", on_progress=done.append)
    expected = np.array([vector_of(f"sun {text}") for text in texts])
    assert vectors == pytest.approx(expected / np.linalg.norm(expected, axis=1, keepdims=True), abs=1e-6)
    assert vectors.dtype == np.float32 and done == [64, 128, 150] and runner.dimensions == 3
    path, headers, body = fake.requests[0]
    assert path == "/v1/embeddings" and headers["authorization"] == f"Bearer {KEY}" and body["model"] == "m"
    assert runner.embed(["cat"], dimensions=2).shape == (1, 2) and runner.embed([]).shape == (0, 3)
    assert runner.dimensions == 3
    runner.embed(["a" * 10**6], too_long="cut")
    assert len(fake.requests[-1][2]["input"][0]) == 28_672


def test_temporary_errors_are_retried(fake, runner):
    fake.behaviours.extend([hangs_up, fails(503), fails(429, Retry_After="0")])
    assert runner.embed(["cat"]).shape == (1, 3)


def test_base64_is_read_too(fake, runner):
    row = np.array([3, 4], np.float32)
    body = json.dumps({"data": [{"index": 0, "embedding": encoded(row)}]}).encode()
    fake.always = lambda handler: handler.send(200, "application/json", body)
    assert runner.embed(["a"])[0] == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(
    "data",
    [None, [], [{"embedding": []}], [{"embedding": "x"}], [{"embedding": [1, None]}], [{"index": 3, "embedding": [1]}]],
)
def test_an_answer_without_vectors_is_an_error(fake, runner, data):
    fake.always = lambda handler: handler.send(200, "application/json", json.dumps({"data": data}).encode())
    with pytest.raises(LeapEndpointError, match="gave no vector for each of 1 texts"):
        runner.embed(["a"])


def test_unsupported_options_are_named(fake, runner):
    for wrong in (
        lambda: runner.embed(["a"], pooling="mean"),
        lambda: runner.embed_tokens(["a"]),
        lambda: runner.embed("a"),
    ):
        with pytest.raises(LeapOptionsError):
            wrong()
    fake.always = fails(404)
    with pytest.raises(LeapError, match="no model 'm', or no vectors at"):
        runner.embed(["a"])
    assert len(fake.requests) == 1


def test_a_call_that_is_cancelled_ends(fake, runner):
    fake.always = sleeps(5.0)
    cancelled = threading.Event()
    threading.Timer(0.1, cancelled.set).start()
    with pytest.raises(LeapGenerationError, match="cancelled"):
        runner.embed(["a"], cancelled=cancelled)
    runner.unload()
    with pytest.raises(LeapGenerationError, match="unloaded"):
        runner.embed(["a"])


def test_a_call_ends_when_the_model_is_unloaded(fake, runner):
    fake.always = lambda handler: (runner.unload(), sleeps(0.5)(handler))
    with pytest.raises(LeapGenerationError, match="the model is unloaded"):
        runner.embed(["a"])


@pytest.mark.slow
def test_commands_use_an_endpoint_like_any_embedding_model(leap, fake, tmp_path):
    fake.always = embeds
    (tmp_path / "key").write_text(KEY)
    leap("models", "add-endpoint", "far", fake.url, "--model", "m", "--key-file", str(tmp_path / "key"))
    done = leap("embed", "-m", "far", "a cat", "--format", "json")
    assert done.code == 0, done
    for name, text in (("cats", "cat " * 9), ("dogs", "dog " * 9), ("suns", "sun " * 9)):
        (tmp_path / f"{name}.txt").write_text(text)
    folder = tmp_path / "texts"
    folder.mkdir()
    for path in list(tmp_path.glob("*s.txt")):
        path.rename(folder / path.name)
    done = leap("index", "mine", str(folder), "-m", "far")
    assert done.code == 0, done
    found = leap("search", "mine", "dog dog", "--format", "json")
    assert found.code == 0 and found.stdout.index("dogs.txt") < found.stdout.index("cats.txt"), found
    (tmp_path / "in.jsonl").write_text(json.dumps({"input": "cat"}) + "\n")
    done = leap("batch", str(tmp_path / "in.jsonl"), "-m", "far", "-o", str(tmp_path / "out.jsonl"))
    assert done.code == 0, done
