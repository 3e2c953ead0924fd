"""An endpoint on 127.0.0.1 that misbehaves as a test wants, one behaviour a request; after those it answers well."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler"], object]


class FakeEndpoint:
    """``requests``: path, headers and body of each request that came."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self.behaviours: deque[Behaviour] = deque()
        self.always: Behaviour = says("Paris.")
        self.models: list[dict[str, Any]] = []
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.times: list[float] = []
        self.most_at_once = self._at_once = 0
        self.is_over = threading.Event()
        """Set at the end of the test, so that no thread sleeps on."""
        self._guard = threading.Lock()

    def answer(self, handler: Handler) -> None:
        with self._guard:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            behaviour = self.behaviours.popleft() if self.behaviours else self.always
        try:
            behaviour(handler)
        finally:
            with self._guard:
                self._at_once -= 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeEndpoint
    body: dict[str, Any]

    def do_GET(self) -> None:
        """The list of models; there is none where the test gives none."""
        listed = json.dumps({"data": self.fake.models}).encode()
        self.send(200 if self.fake.models else 404, "application/json", listed)

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.fake.times.append(time.monotonic())
        self.fake.requests.append((self.path, headers, self.body))
        self.fake.answer(self)

    def send(self, status: int, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()

    def event(self, value: object) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def says(text: str | Callable[[dict[str, Any]], str], reason: str = "stop", **delta: Any) -> Behaviour:
    """Streams a text, word for word, and the usage; in one piece where it is asked for so."""

    def behave(handler: Handler) -> None:
        said = text(handler.body) if callable(text) else text
        if not handler.body.get("stream"):
            choice = {"index": 0, "message": {"content": said, **delta}, "finish_reason": reason}
            whole = {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
            handler.send(200, "application/json", json.dumps(whole).encode())
            return
        handler.begin_stream()
        for piece in said.split(" "):
            handler.event(chunk({"content": piece if piece == said.split(" ")[0] else f" {piece}"}))
        if delta:
            handler.event(chunk(delta))
        handler.event(chunk({}, reason))
        handler.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
        handler.wfile.write(b"data: [DONE]\n\n")

    return behave


def streams(*values: object, then: bytes = b"") -> Behaviour:
    """Streams these chunks, and closes the connection."""

    def behave(handler: Handler) -> None:
        handler.begin_stream()
        for value in values:
            handler.event(value)
        handler.wfile.write(then)

    return behave


def fails(
    status: int, message: str = "no", *, code: str | None = None, param: str | None = None, **headers: str
) -> Any:
    body = json.dumps({"error": {"message": message, "code": code, "param": param}}).encode()
    return lambda handler: handler.send(status, "application/json", body, **headers)


def page(status: int = 200) -> Behaviour:
    return lambda handler: handler.send(status, "text/html", b"<!doctype html><html>Welcome</html>")


def redirects(target: str) -> Behaviour:
    return lambda handler: handler.send(307, "text/plain", b"", Location=target)


def sleeps(seconds: float) -> Behaviour:
    return lambda handler: handler.fake.is_over.wait(seconds)


def hangs_up(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.close()


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Its clients hang up as they please."""


@contextmanager
def fake_endpoint(secure: ssl.SSLContext | None = None) -> Iterator[FakeEndpoint]:
    """``secure``: it speaks TLS."""
    handler = type("OwnHandler", (Handler,), {})
    server = QuietServer(("127.0.0.1", 0), handler)
    handler.fake = fake = FakeEndpoint(server.server_address[1])  # type: ignore[attr-defined]
    if secure is not None:
        server.socket = secure.wrap_socket(server.socket, server_side=True)
        fake.url = fake.url.replace("http://", "https://")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.is_over.set()
        server.shutdown()
        server.server_close()
        thread.join()
