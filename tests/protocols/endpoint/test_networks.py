"""Endpoints in companies' networks: certificates of their own, and proxies."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from leap_core import ChatMessage, Leap, LeapEndpointError
from leap_core.conversation.streams import last_of
from leap_core.system.http import CERTIFICATE_FILES
from tests.support.authority import authority as authority

from .conftest import KEY, QUICK
from .fake_server import FakeEndpoint, QuietServer, fake_endpoint

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_variables(leap_home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*CERTIFICATE_FILES, *PROXIES, *map(str.lower, PROXIES)):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def secure(authority: tuple[Path, ssl.SSLContext]) -> Iterator[FakeEndpoint]:
    with fake_endpoint(authority[1]) as endpoint:
        yield endpoint


def ask(url: str) -> str:
    with Leap.connect(url, model="m", api_key=KEY, patience=QUICK) as runner:
        return last_of(runner.start([ChatMessage("user", "Where?")])).full_message.text


@pytest.mark.parametrize("variable", CERTIFICATE_FILES)
def test_a_custom_certificate_authority_is_trusted_when_named(authority, secure, monkeypatch, variable):
    monkeypatch.setenv(variable, str(authority[0]))
    assert ask(secure.url) == "Paris."


def test_an_untrusted_server_gets_neither_key_nor_prompt(secure, monkeypatch):
    with pytest.raises(LeapEndpointError, match="the certificate of 127.0.0.1:.* is not trusted") as caught:
        ask(secure.url)
    assert "SSL_CERT_FILE" in (caught.value.hint or "") and secure.requests == []
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(LeapEndpointError, match="certificates of SSL_CERT_FILE=/nowhere.pem: No such file") as caught:
        ask(secure.url)
    assert "Errno" not in str(caught.value)
    monkeypatch.setenv("SSL_CERT_FILE", __file__)
    with pytest.raises(LeapEndpointError, match="it has no certificates"):
        ask(secure.url)


def test_plain_requests_use_the_proxy_unless_excluded(fake, monkeypatch):
    proxy = fake.url.removesuffix("/v1")
    monkeypatch.setenv("HTTP_PROXY", proxy)
    assert ask("http://models.invalid/v1") == "Paris."
    path, headers, _ = fake.requests.pop()
    assert path == "http://models.invalid/v1/chat/completions" and headers["host"] == "models.invalid"
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with pytest.raises(LeapEndpointError, match="cannot connect"):
        ask("http://models.invalid/v1")
    assert ask(fake.url) == "Paris."  # no proxy knows this machine by that address


def test_a_tunnel_through_a_proxy_shows_it_no_key(authority, secure, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority[0]))
    port = secure.url.rpartition(":")[2].removesuffix("/v1")
    with tunnel(int(port)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert ask("https://models.invalid/v1") == "Paris."
    assert proxy.asked == ["models.invalid:443"] and KEY not in proxy.headers
    assert secure.requests[0][1]["authorization"] == f"Bearer {KEY}"


class tunnel:  # noqa: N801
    """A proxy whose tunnels all end at this port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self.asked: list[str] = []
        self.headers = ""
        noted = self

        class Tunnel(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                noted.asked.append(self.path)
                noted.headers += str(self.headers)
                with socket.create_connection(("127.0.0.1", port)) as far:
                    self.send_response(200)
                    self.end_headers()
                    back = threading.Thread(target=_copy, args=(far, self.connection), daemon=True)
                    back.start()
                    _copy(self.connection, far)
                    back.join()

            def log_message(self, *_: object) -> None:
                pass

        self._server = QuietServer(("127.0.0.1", 0), Tunnel)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> tunnel:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
