"""What takes long for one request keeps nobody else waiting, and ends with its client."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from leap_core.protocols.openai import requests
from leap_core.server import http

from .conftest import PROMPTLY, settled

DOCUMENT = base64.b64encode(b"A document that takes long.").decode()
FILE = json.dumps({"type": "?", "file": {"filename": "a.txt", "file_data": DOCUMENT}}).replace("?", "\\u0066ile")
BODY = '{"model": "builtin", "messages": [{"role": "user", "content": [' + FILE + "]}]}"


class Reading:
    """Documents that are read until they are let go of, or their client leaves."""

    def __init__(self, monkeypatch):
        self.begun, self.stopped = 0, 0
        self.go_on = threading.Event()
        monkeypatch.setattr(requests, "fetch", self.fetch)

    def fetch(self, *_: object) -> bytes:
        self.begun += 1
        stop = requests._stop.get()
        while not self.go_on.wait(0.02):
            if stop is not None and stop.is_set():
                self.stopped += 1
                break
        return b"Read."


@pytest.fixture
def reading(monkeypatch):
    reading = Reading(monkeypatch)
    yield reading
    reading.go_on.set()


def ask(server) -> int:
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    url = f"{server.url}/chat/completions"
    return httpx.post(url, content=BODY, headers=headers, timeout=PROMPTLY).status_code


def answered_meanwhile(server) -> None:
    """Documents are read until they are let go of, so a server that waited for them would never answer."""
    for path in ("/health", "/metrics", "/v1/models"):
        url = server.url.removesuffix("/v1") + path
        assert httpx.get(url, headers={"Authorization": f"Bearer {server.token}"}, timeout=PROMPTLY).is_success


def test_reading_documents_does_not_delay_other_requests(serve, reading):
    """However the body spells their type."""
    server = serve(*["Hello."] * 15)
    with ThreadPoolExecutor(14) as clients:
        asked = [clients.submit(ask, server) for _ in range(14)]
        assert settled(lambda: reading.begun)
        answered_meanwhile(server)
        assert server.ask().choices[0].message.content == "Hello."
        assert 0 < reading.begun <= 12
        reading.go_on.set()
        assert {each.result() for each in asked} == {200}


def test_a_long_list_is_written_in_pieces_and_by_no_thread_that_others_wait_for(serve, monkeypatch):
    sizes: list[int] = []
    threads: set[threading.Thread] = set()

    def write(value: object) -> bytes:
        sizes.append(len(value) if isinstance(value, list) else 0)
        threads.add(threading.current_thread())
        return json.dumps(value, separators=(",", ":")).encode()

    value = {"tokens": list(range(25_000)), "count": 25_000, "no list": {"é": [1.5]}}
    plain = bytes(http.AsciiJSON(value).body)
    monkeypatch.setattr(http, "_json", write)
    assert bytes(http.AsciiJSON(value).body) == plain == json.dumps(value, separators=(",", ":")).encode()
    assert max(sizes) <= http.AT_ONCE
    server = serve("Hello.")
    server.ask()
    monkeypatch.setattr(type(server.runner), "tokenize", lambda _, text, *, parse_special=False: [*range(len(text))])
    sizes.clear(), threads.clear()
    url = server.url.removesuffix("/v1") + "/tokenize"
    headers = {"Authorization": f"Bearer {server.token}"}
    found = httpx.post(url, json={"content": "a b " * 10_000}, headers=headers, timeout=PROMPTLY).json()
    assert found["count"] == len(found["tokens"]) > http.AT_ONCE >= max(sizes)
    assert all("asyncio" not in each.name and each is not threading.main_thread() for each in threads), threads


def test_more_documents_than_may_wait_are_refused(serve, reading, monkeypatch):
    monkeypatch.setattr(http, "READING", http.Threads("reading", 1, 1))
    server = serve("Hello.", "Hello.")
    with ThreadPoolExecutor(3) as clients:
        asked = [clients.submit(ask, server) for _ in range(3)]
        assert settled(lambda: reading.begun == 1 and sum(each.done() for each in asked) == 1)
        answered_meanwhile(server)
        assert ask(server) == 503
        reading.go_on.set()
        assert sorted(each.result() for each in asked) == [200, 200, 503]


def test_documents_are_read_no_further_when_their_client_leaves(serve, reading):
    server = serve("Hello.")
    with socket.create_connection(("127.0.0.1", server.port), timeout=PROMPTLY) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
        connection.sendall(f"{head}Content-Length: {len(BODY)}\r\n\r\n{BODY}".encode())
        assert settled(lambda: reading.begun)
    assert settled(lambda: reading.stopped == 1)
    reading.go_on.set()
    assert ask(server) == 200


def test_a_full_queue_has_a_retry_after(serve):
    server, full = serve("Hello."), http.Threads("reading", 1, 0)
    hold = threading.Event()

    async def run() -> http.Refused:
        first = asyncio.ensure_future(full.run(hold.wait))
        await asyncio.sleep(0)
        try:
            await full.run(time.sleep, 0)
        except http.Refused as refused:
            return refused
        finally:
            hold.set()
            await first
        raise AssertionError("not refused")

    refused = asyncio.run(run())
    answer = http.answer(refused)
    assert answer.status_code == 503 and answer.headers["retry-after"] == "5"
    assert json.loads(bytes(answer.body))["error"]["code"] == "overloaded"
    assert server.ask().choices[0].message.content == "Hello."
