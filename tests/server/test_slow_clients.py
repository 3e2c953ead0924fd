"""Clients that open connections and never end their requests."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time

import httpx
import pytest

from leap_core.server import access
from leap_core.server.application import listen
from leap_core.testing import Script, Stall

from .conftest import PROMPTLY, settled

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"


def connect(server) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=PROMPTLY)
    return connection


def rest_of(connection: socket.socket) -> bytes:
    """What the server says until it ends the connection."""
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"POST", HEAD, HEAD + b"X-Long: a"])
def test_endless_headers_time_out(serve, sent):
    with connect(serve("Yes.", bounds={"head_seconds": 2.0})) as connection:
        connection.sendall(sent)
        said = rest_of(connection)
    assert said.startswith(b"HTTP/1.1 408 ") if sent else said == b""


@pytest.mark.slow
def test_slowly_sent_headers_time_out(serve):
    with connect(serve("Yes.", bounds={"head_seconds": 0.5})) as connection, pytest.raises(OSError):
        for _ in range(int(PROMPTLY / 0.05)):
            connection.sendall(b"P")
            time.sleep(0.05)


def test_a_second_request_has_the_same_time_as_the_first(serve):
    server = serve("Yes.", bounds={"head_seconds": 2.0})
    with connect(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")
        connection.sendall(b"GET /hea")
        rest_of(connection)


@pytest.mark.slow
def test_an_endless_body_times_out(serve):
    server = serve("Yes.", bounds={"body_seconds": 0.3})
    with connect(server) as connection:
        connection.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"model": "buil')
        assert rest_of(connection) == b""
    assert server.ask().choices[0].message.content == "Yes."


@pytest.mark.slow
def test_a_large_body_has_enough_time(serve, monkeypatch):
    monkeypatch.setattr(access, "SLOWEST_RATE", 1000)  # bytes a second: each piece below is worth 40 s
    server = serve("Yes.", bounds={"body_seconds": 2.0})
    body = json.dumps({"model": "builtin", "user": "x" * 200_000, "messages": [{"role": "user", "content": "Hi"}]})
    data = body.encode()
    with connect(server) as connection:
        connection.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data))
        for at in range(0, len(data), 40_000):  # 3 s in all
            connection.sendall(data[at : at + 40_000])
            time.sleep(0.5)
        assert rest_of(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_a_long_answer_does_not_time_out(serve):
    stall = Stall(seconds=4.0)
    server = serve(Script(["One", stall, "two"]), bounds={"head_seconds": 2.0, "body_seconds": 2.0})
    assert server.ask().choices[0].message.content == "Onetwo"


def test_connections_are_bounded(serve):
    server = serve("Yes.", "Yes.", bounds={"most_connections": 20})
    idle = [connect(server) for _ in range(20)]
    try:
        with connect(server) as one_more:
            answer = rest_of(one_more)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"too_many_connections" in answer
    finally:
        for connection in idle:
            connection.close()
    deadline = time.monotonic() + PROMPTLY
    while True:
        try:
            assert server.ask().choices[0].message.content == "Yes."
            return
        except Exception:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.slow
def test_work_whose_client_left_at_its_start_is_cancelled(serve):
    """Such as a schema that takes long to compile."""
    server = serve("Never.", "Yes.")
    start, begins, has_left = server.runner.start, threading.Event(), threading.Event()

    def slow(*given):
        begins.set()
        assert has_left.wait(PROMPTLY)
        return start(*given)

    server.runner.start = slow
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
    with connect(server) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert begins.wait(PROMPTLY)
    has_left.set()
    (model,) = server.models
    begun = time.monotonic()
    while model.active:
        assert time.monotonic() - begun < PROMPTLY
        time.sleep(0.01)
    server.runner.start = start
    assert server.ask().choices[0].message.content == "Yes."


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_closed_its_side_gets_its_answer(serve, stream):
    """As ``nc -N`` does. Before the answer it gets what HTTP/1.1 allows before any."""
    stall = Stall()
    server = serve(Script([stall, "One", "two"]))
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "stream": stream}).encode()
    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n"
    with connect(server) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body + health)
        connection.shutdown(socket.SHUT_WR)
        assert stall.reached.wait(PROMPTLY)
        stall.release()
        said = rest_of(connection)
    assert said.count(b"HTTP/1.1 200 OK") == 2, "the chat's answer and the next one's"
    assert b"two" in said and (stream or b"Onetwo" in said)
    with connect(server) as connection:  # half of a request is none
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
        assert rest_of(connection) == b""


@pytest.mark.slow
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_client_that_closed_both_sides_is_noticed(serve, version):
    stall = Stall()
    server = serve(Script(["Never", stall]), "Yes.")
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
    with connect(server) as connection:
        connection.sendall(HEAD.replace(b"1.1", version) + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert stall.reached.wait(PROMPTLY)
    assert settled(lambda: not next(iter(server.models)).active) and not stall.released.is_set()
    assert server.ask().choices[0].message.content == "Yes."


@pytest.mark.slow
def test_health_is_answered_while_a_large_request_is_read(serve):
    """Not how fast: a machine may be busy. A server that read it on its event loop would answer none meanwhile."""
    server = serve("Yes.")
    messages = [{"role": "user", "content": "x"} for _ in range(49_000)]
    data = json.dumps({"model": "builtin", "messages": messages}).encode()
    answer: list[bytes] = []

    def send() -> None:
        with connect(server) as connection:
            connection.settimeout(PROMPTLY)
            connection.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            answer.append(rest_of(connection))

    sending = threading.Thread(target=send)
    own = {"Authorization": "Bearer secret", "Connection": "close"}  # a kept connection may end between two requests
    with httpx.Client(timeout=PROMPTLY, headers=own) as client:
        client.get(f"http://127.0.0.1:{server.port}/health")
        sending.start()
        told = 0
        while sending.is_alive():
            assert client.get(f"http://127.0.0.1:{server.port}/health").status_code == 200
            told += 1
    assert answer[0].startswith(b"HTTP/1.1 400 ") and b"the context holds" in answer[0]
    assert told >= 4, "it takes a second or so"


def test_small_pieces_go_at_once():
    """An answer's body waited 40 ms for the client to acknowledge its head, on connections that are kept."""
    accepted = []

    async def accept() -> None:
        listener = listen("127.0.0.1", 0)
        served = await asyncio.start_server(lambda _, writer: accepted.append(writer), sock=listener)
        _, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
        while not accepted:
            await asyncio.sleep(0.01)
        option = accepted[0].get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for each in (writer, accepted[0]):
            each.close()
            await each.wait_closed()
        served.close()
        assert option, "TCP_NODELAY"

    asyncio.run(accept())


def test_a_body_of_too_many_values_is_refused_at_once(serve):
    server = serve("Yes.")
    body = b'{"messages": [' + b"[]," * 300_000 + b"[]]}"
    answer = httpx.post(
        f"{server.url}/chat/completions", content=body, headers={"Authorization": "Bearer secret"}, timeout=PROMPTLY
    )
    assert answer.status_code == 413 and "values" in answer.json()["error"]["message"]
