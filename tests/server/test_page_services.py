"""What the page asks beside answers: sessions, calls of tools, passages, guides; and who may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.sessions import SessionStore
from leap_core.errors import LeapSessionError
from leap_core.server.application import HANDLERS
from leap_core.server.models.abilities import Offer
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.server.page.page_sessions import PageServices
from leap_core.server.page.routes import page_routes
from leap_core.tasks.search.index_file import IndexSettings
from leap_core.tasks.search.updating import update_index
from leap_core.testing import ScriptedModelRunner
from leap_core.tools.policy import FunctionPolicy, ToolPolicy

KEY = {"Authorization": "Bearer s3cret"}
SAID = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]


def client_of(services: PageServices, models: LoadedModels | None = None) -> TestClient:
    app = Starlette(routes=page_routes(services, models), exception_handlers=HANDLERS)
    return TestClient(app, base_url="http://127.0.0.1:8080")


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    return tmp_path / "leap.db"


def test_a_conversation_is_saved_continued_renamed_and_deleted(sessions: Path) -> None:
    client = client_of(PageServices(sessions=sessions))
    made = client.post("/leap/sessions", json={"model": "builtin", "messages": SAID}).json()["session"]
    assert (made["title"], made["messages"], made["model"]) == ("Hi", 2, "builtin")
    one = f"/leap/sessions/{made['id']}"
    with SessionStore(sessions) as store:  # as leap chat -c finds it
        latest = store.latest()
        assert latest is not None and [each.text for each in store.history(latest.id)] == ["Hi", "Hello."]
        store.append(made["id"], ChatMessage("user", "From the terminal"))
    changed = {"messages": SAID[:1], "instead_of": 2}
    refused = client.post(one, json=changed)
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "session_changed"
    assert [each["content"] for each in client.get(one).json()["messages"]] == ["Hi", "Hello.", "From the terminal"]
    assert client.post(one, json={**changed, "instead_of": 3}).json()["session"]["messages"] == 1
    assert client.post(one + "/name", json={"name": "greeting"}).json()["session"]["name"] == "greeting"
    assert client.post(one + "/name", json={"name": "-x"}).status_code == 400
    assert [each["name"] for each in client.get("/leap/sessions").json()["sessions"]] == ["greeting"]
    assert client.get("/leap/sessions/greeting").status_code == 404, "ids alone, no names"
    assert client.delete(one).json() == {"deleted": True} and client.get(one).status_code == 404


def test_a_session_that_cannot_be_written_is_not_there(sessions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: Any, **_options: Any) -> bool:
        raise LeapSessionError("the disk is full")

    client = client_of(PageServices(sessions=sessions))
    monkeypatch.setattr(SessionStore, "replace", full)
    assert client.post("/leap/sessions", json={"messages": SAID}).status_code >= 400
    assert client.get("/leap/sessions").json() == {"sessions": []}


def test_no_file_is_read_for_a_message(sessions: Path, tmp_path: Path) -> None:
    (tmp_path / "private.jpg").write_bytes(b"secret")
    part = {"type": "image_url", "image_url": {"url": (tmp_path / "private.jpg").as_uri()}}
    body = {"messages": [{"role": "user", "content": [part]}]}
    assert client_of(PageServices(sessions=sessions)).post("/leap/sessions", json=body).status_code == 400


def test_only_the_page_itself_and_clients_with_the_key_are_answered(sessions: Path) -> None:
    client = client_of(PageServices(sessions=sessions, key="s3cret"))
    for path in ("/leap/sessions", "/leap/page", "/leap/guides/host"):
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get(path, headers={**KEY, "Origin": "http://127.0.0.1:3000"}).status_code == 403
        assert client.get(path, headers={**KEY, "Origin": "null"}).status_code == 403
    own = {**KEY, "Origin": "http://127.0.0.1:8080"}
    assert client.get("/leap/sessions", headers=own).json() == {"sessions": []}
    assert client.get("/").status_code == 200, "the page itself asks for the key"


def test_only_allowed_features_are_offered() -> None:
    client = client_of(PageServices())
    about = client.get("/leap/page").json()
    assert (about["sessions"], about["tools"], about["indexes"], about["guides"]) == (False, [], [], {})
    for path in ("/leap/sessions", "/leap/tools/call", "/leap/passages", "/leap/cited"):
        assert client.post(path, json={}).status_code == 404


def test_calls_run_under_the_policy() -> None:
    def look(place: str) -> str:
        """Look somewhere."""
        return f"sun in {place}"

    functions = [LeapFunction.from_callable(look, name=name) for name in ("look", "ask", "never")]
    tools = {"look": ToolPolicy("allow"), "ask": ToolPolicy("ask"), "never": ToolPolicy("deny")}
    client = client_of(PageServices(functions=functions, policy=FunctionPolicy(tools)))

    def call(name: str, allowed: bool = False, **arguments: Any) -> dict[str, Any]:
        body = {"name": name, "arguments": arguments or {"place": "Rome"}, "allowed": allowed}
        return dict(client.post("/leap/tools/call", json=body).json())

    described = client.get("/leap/page").json()["tools"]
    assert [(each["name"], each["decision"]) for each in described] == [
        ("look", "allow"),
        ("ask", "ask"),
        ("never", "deny"),
    ]
    assert described[0]["declaration"]["function"]["parameters"]["required"] == ["place"]
    assert call("look")["content"] == call("ask", allowed=True)["content"] == "sun in Rome"
    assert call("ask")["refused"] and "refused" in call("ask")["content"]
    denied = call("never", allowed=True)
    assert denied["denied"] and not denied.get("refused")
    assert "no function" in call("other", allowed=True)["error"]
    assert "wrong" in call("look", nowhere=1)["error"]


def test_passages_of_an_index_become_a_prompt_with_sources(tmp_path: Path, leap_home: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "bread.md").write_text("# Bread\n\nThe oven must have 250 degrees.\n")
    update_index(tmp_path / "indexes" / "kitchen.db", IndexSettings((str(tmp_path / "notes"),)), None)
    runner = ScriptedModelRunner(model_id="builtin")
    models = LoadedModels(lambda _local, _options: runner, offer=Offer(("builtin",), default="builtin"))
    services = PageServices(indexes=["kitchen"], index_directory=tmp_path / "indexes")
    with client_of(services, models) as client:
        asked = {"index": "kitchen", "question": "How hot is the oven?", "model": "builtin"}
        found = client.post("/leap/passages", json=asked).json()
        assert "250 degrees" in found["system"] and "[1]" in found["system"] and found["note"] is None
        (source,) = found["sources"]
        assert (source["number"], source["heading"], source["first"]) == (1, "Bread", 3)
        answered = {"question": asked["question"], "answer": "It has 250 degrees.", "sources": [source]}
        assert client.post("/leap/cited", json=answered).json() == {"text": "It has 250 degrees [1].", "note": None}
        invented = client.post("/leap/cited", json={**answered, "answer": "It has 300 degrees [1]."}).json()
        assert invented == {"text": "It has 300 degrees.", "note": "no passage supports the answer"}
        assert client.post("/leap/cited", json={**answered, "sources": [1]}).status_code == 400
        assert client.post("/leap/passages", json={**asked, "question": "zzz"}).json()["sources"] == []
        assert client.post("/leap/passages", json={**asked, "index": "../leap"}).status_code == 404


def test_guides_are_rendered() -> None:
    services = PageServices(
        guides={"host": "Serving", "long": "Long"}, guide={"host": "# Hi", "long": "x" * 10**6}.__getitem__
    )
    client = client_of(services)
    assert client.get("/leap/page").json()["guides"] == {"host": "Serving", "long": "Long"}
    assert client.get("/leap/guides/host").json() == {"html": "<h4>Hi</h4>\n"}
    assert list(client.get("/leap/guides/long").json()) == ["text"]
    assert client.get("/leap/guides/secret").status_code == 404
