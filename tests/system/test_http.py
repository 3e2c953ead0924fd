"""What asks other machines trusts the certificates that the user names, and says why there is no answer."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import httpx
import pytest

from jobs.worker import webhooks
from leap_core.conversation.media.fetching import UrlAccess, fetch
from leap_core.errors import LeapSerializationError
from leap_core.system.http import CERTIFICATE_FILES, Loop, client, ended, failure
from tests.protocols.endpoint.fake_server import fake_endpoint
from tests.support.authority import authority as authority


@pytest.fixture
def secure(authority, monkeypatch):
    for name in CERTIFICATE_FILES:
        monkeypatch.delenv(name, raising=False)
    with fake_endpoint(authority[1]) as endpoint:
        yield endpoint


@pytest.mark.slow
def test_webhooks_and_media_go_to_servers_with_certificates_of_ones_own(secure, authority, monkeypatch):
    def post() -> int:
        answer = webhooks._post(f"{secure.url}/hook", {}, b"{}", threading.Event())
        assert answer is not None
        return answer.status_code

    with pytest.raises(LeapSerializationError, match="the certificate of 127.0.0.1 is not trusted .*SSL_CERT_FILE"):
        fetch(f"{secure.url}/models", UrlAccess.TYPED)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        post()
    assert "name its file in SSL_CERT_FILE" in str(failure(caught.value, "there"))
    for variable in CERTIFICATE_FILES:
        with monkeypatch.context() as named:
            named.setenv(variable, str(authority[0]))
            assert post() > 0
            with pytest.raises(LeapSerializationError, match="the server answers 404"):
                fetch(f"{secure.url}/models", UrlAccess.TYPED)
            named.setenv(variable, "/nowhere.pem")
            with pytest.raises(OSError, match=f"certificates of {variable}=/nowhere.pem"):
                post()
            with pytest.raises(LeapSerializationError, match=f"certificates of {variable}=/nowhere.pem"):
                fetch(f"{secure.url}/models", UrlAccess.TYPED)


def test_a_head_that_drips_is_bound_by_the_time_of_the_whole():
    with socket.create_server(("127.0.0.1", 0)) as listener, Loop() as loop:

        async def ask() -> None:
            async with client(httpx.AsyncClient, timeout=60.0) as asking:
                await asking.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")

        answer = loop.submit(ask())
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: a")
            assert not ended(answer, None, 0.1)
            loop.close()
            connection.settimeout(60)
            with suppress(ConnectionResetError):
                while connection.recv(65536):  # until the other side has left
                    pass
    assert answer.cancelled()


@pytest.mark.parametrize(
    ("url", "reason"), [("http://h:abc/", "Invalid port: 'abc'"), ("http://\u2603..x/", "Invalid IDNA hostname")]
)
def test_what_is_wrong_with_an_address_is_said(url, reason):
    with pytest.raises(LeapSerializationError, match=rf"the address cannot be used \({reason}"):
        fetch(url, UrlAccess.TYPED)


@pytest.mark.parametrize("proxy", ["http://a:b:c", "ftp://a"])
def test_a_proxy_whose_address_is_none_is_an_error_of_setting_up(proxy, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(OSError, match="the address of a proxy cannot be used: "):
        client(httpx.Client, timeout=1.0, secure=False)
