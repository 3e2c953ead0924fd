"""Small promises of the pages: what a request without a model gets, what is refused at once, and what is said of fields
that do nothing."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from leap_core.errors import LeapError, LeapGenerationError
from leap_core.server.endpoints.ollama import alive_route
from leap_core.server.foreground import ServerSettings, application
from leap_core.server.models.abilities import Offer
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.testing import Script, Stall
from tests.support.tables import check_each

from .conftest import PROMPTLY, settled
from .test_embeddings import app, ask  # noqa: F401

HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\nContent-Type: %s\r\n"
HOSTILE = "x" * 50_000
MESSAGES = [{"role": "user", "content": "Hi?"}]


def test_a_declared_body_that_is_too_large_is_refused_before_it_comes(serve):
    server = serve("Yes.")
    for path, kind in ((b"/v1/chat/completions", b"application/json"), (b"/v1/audio/transcriptions", b"text/plain")):
        for length in (b"73400320", b"9" * 18):
            with socket.create_connection(("127.0.0.1", server.port), timeout=PROMPTLY) as connection:
                connection.sendall(HEAD % (path, kind) + b"Content-Length: " + length + b"\r\n\r\n{")
                assert connection.recv(65536).startswith(b"HTTP/1.1 413 "), path


def test_a_request_to_ollamas_chat_without_a_model_gets_the_default(leap_home):
    from leap_core import ModelLoadingOptions
    from leap_core.models.resolving import LocalModel
    from leap_core.server.foreground import ServerSettings, application
    from leap_core.server.models.abilities import Offer
    from leap_core.server.models.loaded_models import LoadedModels
    from leap_core.testing import ScriptedModelRunner

    def load(_local: LocalModel, _options: ModelLoadingOptions) -> ScriptedModelRunner:
        return ScriptedModelRunner("Yes.", "No.", model_id="builtin")

    async def main() -> list[Any]:
        models = LoadedModels(load, offer=Offer(("builtin",), leap_home, "builtin"))
        transport = httpx.ASGITransport(application(models, ServerSettings()))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            bodies = [
                ("/api/chat", {"messages": MESSAGES, "stream": False}),
                ("/api/generate", {"prompt": "Hi?", "stream": False}),
                ("/api/chat", {"stream": False}),
            ]
            replies = [(await client.post(path, json=body)).json() for path, body in bodies]
        await models.close()
        return replies

    chat, text, loaded = asyncio.run(main())
    assert (chat["message"]["content"], text["response"], loaded["done_reason"]) == ("Yes.", "No.", "load")
    assert {reply["model"] for reply in (chat, text, loaded)} == {"builtin"}


def test_a_whole_answer_that_ends_with_its_server_is_a_503(serve):
    server = serve(Script(["Yes", Stall(), "."]))
    asked = {"model": "builtin", "messages": MESSAGES}

    async def main() -> httpx.Response:
        headers = {"Authorization": "Bearer secret"}
        async with httpx.AsyncClient(timeout=PROMPTLY) as client:
            sent = asyncio.ensure_future(client.post(f"{server.url}/chat/completions", json=asked, headers=headers))
            running = await asyncio.to_thread(settled, lambda: bool(server.runner.requests))
            assert running
            server.models._closing = True
            await asyncio.to_thread(server.runner.unload)
            return await sent

    reply = asyncio.run(main())
    assert reply.status_code == 503 and "the server is being stopped" in reply.json()["error"]["message"]


def test_a_browser_is_redirected_to_the_web_ui(app):  # noqa: F811
    app.routes.append(alive_route())

    async def main() -> list[str]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:
            return [(await client.get("/", headers={"Accept": kind})).text for kind in ("text/html", "*/*")]

    page, plain = asyncio.run(main())
    assert plain == "Ollama is running" and page.startswith(plain) and "--web-ui" in page


def test_a_path_beside_others_names_them(app):  # noqa: F811
    reply = ask(app, "/v1/audio/translations", {})
    said = reply.json()["error"]["message"]
    assert reply.status_code == 404 and "/v1/audio/transcriptions" in said and "/v1/audio/speech" in said


def test_fields_of_embeddings_work_or_are_named(app):  # noqa: F811
    def warnings(path: str, **fields: Any) -> list[str]:
        body = {"model": "Mine-F16", "input": "one two"} if "embed" in path else {"model": "Mine-F16", **DOCUMENTS}
        reply = ask(app, path, {**body, **fields})
        assert reply.status_code == 200, reply.text
        return reply.json().get("leap", {}).get("warnings", [])

    assert warnings("/v1/embeddings", normalize=True, truncate=True) == []
    assert warnings("/v1/embeddings", normalize=False) == ["normalize: vectors always have unit length"]
    assert warnings("/v1/embeddings", late_chunking=True) == ["the field 'late_chunking' is unknown and was ignored"]
    assert warnings("/v1/rerank", max_chunks=3) == ["the field 'max_chunks' is unknown and was ignored"]
    for path in ("/v1/rerank", "/v2/rerank"):
        for name in ("top_n", "top_k"):
            assert len(ask(app, path, {"model": "Mine-F16", **DOCUMENTS, name: 1}).json()["results"]) == 1


DOCUMENTS = {"query": "one", "documents": ["one two", "three"]}


def test_token_ids_are_an_input_where_the_model_is_here(app):  # noqa: F811
    for value in ([1, 2], [[1, 2], [3]]):
        reply = ask(app, "/v1/embeddings", {"model": "Mine-F16", "input": value})
        assert reply.status_code == 400 and "takes texts here" in reply.text, "hashed words have no tokens"
    for value in ([True], [[]], [1.5], [["a"]]):
        assert "expected a text" in ask(app, "/v1/embeddings", {"model": "Mine-F16", "input": value}).text


def test_refusals_repeat_little_of_a_hostile_name(serve):
    server = serve(*["Yes."] * 20)
    headers = {"Authorization": "Bearer secret"}
    spaced = "a b " * 10_000
    bodies = [
        ("/v1/chat/completions", {"messages": MESSAGES, "model": HOSTILE}),
        ("/v1/chat/completions", {"messages": [{"role": HOSTILE, "content": "Hi"}], "model": "builtin"}),
        ("/v1/chat/completions", {"messages": MESSAGES, "model": "builtin", "tool_choice": spaced}),
        ("/v1/chat/completions", {"messages": MESSAGES, "model": "builtin", "response_format": {"type": HOSTILE}}),
        ("/v1/chat/completions", {"messages": MESSAGES, "model": "builtin", "tool_choice": HOSTILE}),
        ("/v1/messages", {"messages": [{"role": spaced, "content": "Hi"}], "model": "builtin", "max_tokens": 3}),
        ("/v1/chat/completions", {"messages": MESSAGES, "model": "builtin", HOSTILE: 1, spaced: 2}),
        (f"/v1/{HOSTILE}", {}),
    ]

    def check(case: tuple[str, dict[str, Any]]) -> None:
        reply = httpx.post(f"http://127.0.0.1:{server.port}{case[0]}", json=case[1], headers=headers, timeout=100)
        assert len(reply.text) < 6_000 and "x" * 201 not in reply.text, len(reply.text)

    check_each(bodies, check)


def test_reasoning_of_the_history_is_read_by_both_names():
    from leap_core.conversation.messages import ChatMessage

    for name in ("reasoning_content", "reasoning"):
        message = ChatMessage.from_json({"role": "assistant", "content": "Yes.", name: "Hm."})
        assert message.reasoning_content == "Hm."
    plain = ChatMessage.from_json({"role": "assistant", "content": "Yes.", "reasoning": {"effort": "low"}})
    assert plain.reasoning_content is None


@pytest.mark.parametrize("failure", [MemoryError(), RuntimeError("can't start new thread")])
def test_a_limit_of_the_system_is_not_an_internal_error(failure):
    from leap_core.errors import of_system_limit

    error = of_system_limit(failure)
    assert error is not None and "ulimit" in (error.hint or "")
    assert of_system_limit(RuntimeError("another")) is None and of_system_limit(LeapGenerationError("x")) is None


@pytest.mark.parametrize("made", [lambda _models: None, lambda _models: ["/"], lambda _models: 1 / 0, 7])
def test_routes_of_a_plugin_that_cannot_be_made_are_one_error(made):
    settings = ServerSettings(more_routes=(made,))
    with pytest.raises(LeapError, match="the routes of a plugin cannot be made") as caught:
        application(LoadedModels(lambda *_: pytest.fail("loaded"), offer=Offer()), settings)
    assert caught.value.hint == "update or uninstall the plugin"
