"""Who is let in: by token, by the name that the machine was called by, by the page that asks."""

from __future__ import annotations

import http.client
import json

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from leap_core.server.access import AccessCheck


def get(server, path="/v1/models", **headers):
    """A request with these headers, as a program or a browser would send it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    try:
        given = {"Authorization": f"Bearer {server.token}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        connection.request("GET", path, headers={k: v for k, v in given.items() if v is not None})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    "token", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic secret", "secret", "Bearer secre"]
)
def test_without_the_token_nothing_is_answered(serve, token):
    status, body = get(serve("Hi."), Authorization=token)
    assert status == 401 and body["error"]["code"] == "invalid_api_key"
    assert body["error"]["type"] == "authentication_error" and "builtin" not in json.dumps(body)


def test_the_token_gives_access(serve):
    assert get(serve("Hi."))[0] == 200
    assert get(serve("Hi."), Authorization="bearer  secret")[0] == 200
    assert get(serve("Hi.", token=None), Authorization=None)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[", "0.0.0.0"])
def test_a_foreign_host_is_refused(serve, host):
    """A page of another site can make its own name point to this machine (DNS rebinding)."""
    status, body = get(serve("Hi."), Host=host)
    assert status == 403 and body["error"]["code"] == "foreign_host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:80"])
def test_names_of_this_machine_are_served(serve, host):
    assert get(serve("Hi."), Host=host)[0] == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil.example", "http://[", "file://"]
)
@pytest.mark.parametrize("pages", [False, True])
def test_pages_of_other_sites_are_refused(serve, origin, pages):
    status, body = get(serve("Hi.", pages=pages), Origin=origin)
    assert status == 403 and body["error"]["code"] == "foreign_origin"


def test_pages_of_this_machine_may_ask_the_public_server_only(serve):
    assert get(serve("Hi.", pages=True), Origin="http://localhost:3000")[0] == 200
    assert get(serve("Hi."), Origin="http://localhost:3000")[0] == 403


@pytest.mark.parametrize(
    ("any_name", "token", "origin", "status"),
    [
        (True, "secret", "http://desk.lan:8080", 200),
        (True, "secret", "http://desk.lan:9090", 403),
        (True, "secret", "http://evil.example", 403),
        (True, None, "http://desk.lan:8080", 403),
        (False, "secret", "http://desk.lan:8080", 403),
    ],
)
def test_the_servers_own_page_may_ask_from_another_computer(any_name, token, origin, status):
    guard = AccessCheck(PlainTextResponse("yes"), token=token, any_name=any_name, pages=True)
    client = TestClient(guard, base_url="http://desk.lan:8080")
    asked = client.post("/v1/chat/completions", headers={"Authorization": "Bearer secret", "Origin": origin})
    assert asked.status_code == status


def test_scripts_of_allowed_pages_get_cors_headers(serve):
    connection = http.client.HTTPConnection("127.0.0.1", serve("Hi.", pages=True).port, timeout=100)
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type"}
    for origin, allowed in [("http://localhost:3000", "http://localhost:3000"), ("http://evil.example", None)]:
        connection.request("OPTIONS", "/v1/chat/completions", headers={"Origin": origin, **asked})
        answer = connection.getresponse()
        answer.read()
        assert (answer.status == 200, answer.getheader("Access-Control-Allow-Origin")) == (allowed is not None, allowed)
    connection.close()


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff\xfe", b'{"a": 1} x', b"[" * 100_000])
def test_a_body_other_than_a_json_object_is_refused(serve, body):
    server = serve("Hi.")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    connection.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer secret"})
    answer = connection.getresponse()
    error = json.loads(answer.read())["error"]
    connection.close()
    assert answer.status == 400 and error["type"] == "invalid_request_error" and error["message"].startswith("body: ")


def test_too_large_a_body_is_refused(serve, monkeypatch):
    from leap_core.server import http as answering

    monkeypatch.setattr(answering, "LARGEST_BODY", 1000)
    server = serve("Hi.")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    connection.request("POST", "/v1/chat/completions", b"x" * 1001, {"Authorization": "Bearer secret"})
    answer = connection.getresponse()
    assert answer.status == 413 and json.loads(answer.read())["error"]["code"] == "request_too_large"
    connection.close()


def test_requests_in_memory_are_bounded_together(serve, monkeypatch):
    from leap_core.server import http as request_bodies

    monkeypatch.setattr(request_bodies, "MOST_HELD", 1000)
    server = serve("Hi.")
    headers = {"Authorization": "Bearer secret"}
    answer = httpx.post(f"{server.url}/chat/completions", content=b"x" * 1001, headers=headers, timeout=100)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert request_bodies._Held.bytes == 0, "and given back"


@pytest.mark.parametrize("depth", [100, 350, 5000])
def test_a_body_nested_too_deep_is_refused(serve, depth):
    """It was a bug of leap's to the client."""
    schema = '{"type": "object", "properties": {"a": ' * depth + "{}" + "}}" * depth
    tool = '{"type": "function", "function": {"name": "f", "parameters": ' + schema + "}}"
    body = '{"model": "builtin", "messages": [{"role": "user", "content": "Hi"}], "tools": [' + tool + "]}"
    answer = httpx.post(
        f"{serve('Hi.').url}/chat/completions", content=body, headers={"Authorization": "Bearer secret"}, timeout=100
    )
    assert answer.status_code == 400 and "nested more than 100 deep" in answer.json()["error"]["message"]


def test_wrong_methods_and_paths(serve):
    server = serve("Hi.")
    assert get(server, "/v1/chat/completions")[0] == 405
    assert get(server, "/leap/status")[0] == 404, "the public server has none of the private host's endpoints"
    assert get(server, "/../../etc/passwd")[0] == 404


@pytest.mark.parametrize("host", ["host.docker.internal:8080", "HOST.docker.internal", "host.containers.internal"])
def test_host_names_of_containers_are_served(serve, host):
    assert get(serve("Hi."), Host=host)[0] == 200


def test_a_foreign_host_is_told_which_option_allows_it_and_is_then_served():
    async def said(scope, receive, send):
        await PlainTextResponse("in")(scope, receive, send)

    refused = TestClient(AccessCheck(said, token=None), base_url="http://box.lan:8080").get("/")
    assert refused.status_code == 403 and "--option allow-host=box.lan" in refused.json()["error"]["message"]
    guard = AccessCheck(said, token=None, names=["Box.lan"])
    assert TestClient(guard, base_url="http://box.lan:8080").get("/").text == "in"
    assert TestClient(guard, base_url="http://other.lan").get("/").status_code == 403
    page = TestClient(guard, base_url="http://box.lan:8080").get("/", headers={"Origin": "http://box.lan:8080"})
    assert page.status_code == 403


def test_cross_site_requests_without_an_origin_are_refused(serve):
    server = serve("Hi.", pages=True)
    for site, status in (("cross-site", 403), ("same-origin", 200), ("none", 200)):
        assert get(server, "/v1/models", Sec_Fetch_Site=site)[0] == status
