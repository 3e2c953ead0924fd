"""Paths and names of models as routers and other servers' clients write them."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from leap_core.errors import LeapUnavailableError
from leap_core.opening import open_runner
from leap_core.protocols.host.served_models import FILES, ServerState, known_server, served_models
from leap_core.server.foreground import ServerSettings, application
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.system.directories import Directories


def statuses(*paths: str) -> list[int]:
    async def ask() -> list[int]:
        app = application(LoadedModels(lambda *_: pytest.fail("loaded")), ServerSettings())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return [(await client.get(path)).status_code for path in paths]

    return asyncio.run(ask())


def test_other_paths_are_served():
    posts = ("/v1//chat/completions", "//chat/completions", "/chat/completions/", "/v1/embeddings/", "/messages")
    assert statuses(*posts) == [405] * len(posts)
    assert statuses("/models", "/v1/models/", "/", "//") == [200] * 4
    assert statuses("/v2/models", "/leap", "/chat") == [404] * 3


@pytest.mark.parametrize("name", ["builtin:latest", "openai/builtin", "openai/builtin:latest"])
def test_other_model_names_are_accepted(serve, name):
    server = serve("Hello.")
    answer = server.ask(model=name)
    assert answer.choices[0].message.content == "Hello." and answer.model == name


def test_items_that_cannot_be_taken_are_named(serve):
    server = serve("Hello.")
    headers = {"Authorization": f"Bearer {server.token}"}
    body = {"model": "builtin", "input": [{"type": "item_reference", "id": "msg_1"}]}
    answer = httpx.post(f"{server.url}/responses", json=body, headers=headers, timeout=100)
    assert answer.status_code == 400 and "'item_reference'" in answer.text and "previous_response_id" in answer.text


def test_a_new_server_forgets_one_that_was_killed(tmp_path):
    dead = {"pid": 2**22 + 1, "process_started": "1", "address": "127.0.0.1", "port": 9, "token": "x"}
    (tmp_path / "server-4194305.json").write_text(json.dumps(dead))
    own = known_server(tmp_path, ServerState.here("127.0.0.1", 9))
    assert list(tmp_path.glob(FILES)) == [own]
    assert served_models(tmp_path) == []


def test_a_required_host_does_not_serve_other_programs(leap_home):
    directory = Directories.from_environment().run
    known_server(directory, ServerState.here("127.0.0.1", 1234))
    with pytest.raises(LeapUnavailableError, match="no model host is running") as caught:
        open_runner("builtin", host="demand")
    assert "leap serve (port 1234)" in str(caught.value.hint)
