"""Decisions over HTTP: who may send them, and what is refused."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from leap_core.server.review import application
from leap_core.tasks.review.documents import ReviewFile, read_reviews, write_reviews

from ..tasks.review.reviews import plain

ACCEPTED = {"document": 0, "decisions": [{"entry": 0, "was": None, "now": {"decision": "accept"}}]}
REJECTED = {"document": 0, "decisions": [{"entry": 0, "was": None, "now": {"decision": "reject"}}]}
OWN = "http://127.0.0.1:9"


@pytest.fixture
def path(tmp_path):
    write_reviews(tmp_path / "r.jsonl", plain())
    return tmp_path / "r.jsonl"


@pytest.fixture
def client(path):
    app = application(ReviewFile(path, read_reviews(path)), 0.5, "secret")
    return TestClient(app, base_url=OWN, headers={"Authorization": "Bearer secret"})


def test_the_page_is_empty_without_the_key(client):
    home = client.get("/", headers={"Authorization": ""})
    assert home.status_code == 200 and "1234567890" not in home.text and home.headers["cache-control"] == "no-store"
    for method, place in (("GET", "/review"), ("POST", "/review/decisions")):
        for key in ("", "Bearer wrong"):
            assert client.request(method, place, headers={"Authorization": key}, json={}).status_code == 401
    data = client.get("/review").json()
    assert [each["file"] for each in data["documents"]] == ["a.txt", "b.txt"] and data["save_as"] == "r.jsonl"


def test_decisions_are_saved_and_the_digest_stays(client, path):
    digest = client.get("/review").json()["digest"]
    answer = client.post("/review/decisions", json=ACCEPTED, headers={"Origin": OWN})
    assert answer.status_code == 200 and answer.json()["decided"] == 1
    assert read_reviews(path)[0].evidence[0]["decision"] == "accept"
    assert client.get("/review").json()["digest"] == digest
    assert client.post("/review/decisions", json=ACCEPTED).status_code == 200, "the same again is no other decision"


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (json.dumps(REJECTED), {}, 409, "decided_elsewhere"),
        (json.dumps(REJECTED | {"document": 2}), {}, 404, "not_found"),
        (json.dumps(REJECTED | {"document": -1}), {}, 404, "not_found"),
        ("[", {}, 400, "invalid_value"),
        ("{}", {}, 400, "invalid_value"),
        (" " * (4 * 1024 * 1024 + 1), {}, 413, "request_too_large"),
        (json.dumps(REJECTED), {"Origin": "http://evil.example"}, 403, "foreign_origin"),
        (json.dumps(REJECTED), {"Origin": "http://127.0.0.1:10"}, 403, "foreign_origin"),
        (json.dumps(REJECTED), {"Origin": "null"}, 403, "foreign_origin"),
        (json.dumps(REJECTED), {"Host": "evil.example"}, 403, "foreign_host"),
    ],
)
def test_other_clients_are_refused_and_nothing_changes(client, path, body, headers, status, code):
    client.post("/review/decisions", json=ACCEPTED)
    before = path.read_bytes()
    answer = client.post("/review/decisions", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written_is_an_error_to_try_again(client, path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    answer = client.post("/review/decisions", json=ACCEPTED)
    assert answer.status_code == 507 and "No space left" in answer.json()["error"]["message"]
    monkeypatch.undo()
    assert client.post("/review/decisions", json=ACCEPTED).status_code == 200
