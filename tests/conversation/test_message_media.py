"""Media in messages: what their URLs may be, what is converted, and the SDK's helpers."""

from __future__ import annotations

import base64
import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image as pillow

from leap_core.conversation.media import fetching
from leap_core.conversation.media.fetching import UrlAccess
from leap_core.conversation.messages import Audio, ChatMessage, ChatMessageContent, Image, Text, messages_from_json
from leap_core.errors import LeapSerializationError
from leap_core.system.addresses import is_public

RED = pillow.new("RGB", (48, 32), (200, 20, 30))


def saved(format: str) -> bytes:
    output = io.BytesIO()
    RED.save(output, format)
    return output.getvalue()


def message(url: str) -> dict[str, object]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def data_url(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "BMP"])
def test_images_of_any_format_become_jpeg_data_urls(format: str) -> None:
    read = ChatMessage.from_json(message(data_url(saved(format), f"image/{format.lower()}")), urls=UrlAccess.DATA)
    (part,) = read.content
    assert isinstance(part, Image) and part.data.startswith(b"\xff\xd8\xff")
    assert (part.data == saved("JPEG")) == (format == "JPEG")
    assert ChatMessage.from_json(read.to_json(), urls=UrlAccess.DATA) == read
    assert str(read.to_json()["content"][0]["image_url"]["url"]).startswith("data:image/jpeg;base64,")


def test_file_urls_are_read_only_where_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a picture (1).png"
    path.write_bytes(saved("PNG"))
    (read,) = messages_from_json([message(path.as_uri())])
    assert isinstance(read.content[0], Image)
    with pytest.raises(LeapSerializationError, match=r"messages\[0\].content\[0\].image_url.url: file: URLs are not"):
        messages_from_json([message(path.as_uri())], urls=UrlAccess.DATA)
    for url, says in (
        ((tmp_path / "none.png").as_uri(), "No such file"),
        ("file://elsewhere/a.png", "names the machine 'elsewhere'"),
        ("ftp://elsewhere/a.png", "expected a data:, file: or https: URL"),
        ("data:image/png", "no comma"),
        ("data:image/png;base64,!!", "not valid base64"),
        (data_url(b"some text", "image/png"), "not a picture"),
        ("https://example.org/a.png", "are not fetched unless that is allowed"),
    ):
        with pytest.raises(LeapSerializationError, match=says):
            ChatMessage.from_json(message(url))


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/a.png")
                self.end_headers()
                return
            self.send_response(404 if self.path == "/none" else 200)
            if self.path == "/packed":
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            with suppress(OSError):
                while self.path == "/endless":
                    self.wfile.write(b"x")
                    time.sleep(0.02)
            self.wfile.write(saved("PNG"))

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.slow
def test_web_urls_are_fetched_only_where_allowed(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_address", lambda target, may: (target.host, False))
    for place in ("/a.png", "/moved"):
        read = ChatMessage.from_json(message(server + place), urls=UrlAccess.WEB)
        assert isinstance(read.content[0], Image)
        with pytest.raises(LeapSerializationError, match="are not fetched unless"):
            ChatMessage.from_json(message(server + place))
    with pytest.raises(LeapSerializationError, match="cannot fetch") as missing:
        ChatMessage.from_json(message(server + "/none"), urls=UrlAccess.WEB)
    with pytest.raises(LeapSerializationError, match="cannot fetch") as packed:
        ChatMessage.from_json(message(server + "/packed"), urls=UrlAccess.WEB)
    assert "404" not in str(missing.value).replace(server, "") and "gzip" not in str(packed.value)


@pytest.mark.timeout(30)
def test_a_server_that_sends_a_byte_now_and_then_times_out(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LONGEST_SECONDS", 0.2)
    with pytest.raises(LeapSerializationError, match="the file takes longer than"):
        fetching.fetch(server + "/endless", UrlAccess.TYPED)


def test_private_addresses_are_not_fetched(server: str, tmp_path: Path) -> None:
    """The error told which ports are open, and a redirect was followed anywhere."""
    (tmp_path / "a.png").write_bytes(saved("PNG"))
    closed = "http://127.0.0.1:9/a.png"
    addresses = (server + "/a.png", closed, "http://localhost/a.png", "http://169.254.169.254/", "http://[::1]/")
    said = set()
    for url in addresses:
        with pytest.raises(LeapSerializationError, match="cannot fetch") as caught:
            ChatMessage.from_json(message(url), urls=UrlAccess.WEB)
        said.add(str(caught.value).replace(url, "URL"))
    assert len(said) == 1, "a closed port reads like an open one"
    with pytest.raises(LeapSerializationError, match="not taken here"):
        ChatMessage.from_json(message((tmp_path / "a.png").as_uri()), urls=UrlAccess.WEB)
    for url in ("http://10.0.0.1/", "http://8.8.8.8:8080/", "https://[fe80::1]/"):
        with pytest.raises(OSError, match="that is not "):
            fetching._address(httpx.URL(url), False)
    assert fetching._address(httpx.URL("https://8.8.8.8/"), False) == ("8.8.8.8", False)


SPECIAL = (
    *("64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::c0a8:101", "64:ff9b:1::1", "64:ff9b:1::808:808"),
    *(
        "2002:7f00:1::",
        "2002:808:808::",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:a00:1",
        "::1",
        "::",
        "fec0::1",
        "fc00::1",
        "fe80::1%eth0",
        "ff02::1",
    ),
    *("2001::1", "2001:db8::1", "2001:2::1", "3fff::1", "100::1", "5f00::1", "0.0.0.0", "10.1.1.1", "100.64.0.1"),
    *(
        "127.1.2.3",
        "169.254.169.254",
        "172.31.0.1",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.19.0.1",
    ),
    *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
)
PUBLIC = ("8.8.8.8", "192.0.3.1", "172.32.0.1", "2606:4700::1111", "2001:4860:4860::8888", "64:ff9b::808:808")


def test_special_addresses_are_not_public(monkeypatch):
    """As every version of Python sees them, also as one of several that a name has."""
    for address in (*SPECIAL, *PUBLIC):
        assert is_public(address) == (address in PUBLIC), address
    found = [(socket.AF_INET, 0, 0, "", (each, 443)) for each in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(OSError, match="not a public address"):
        fetching._address(httpx.URL("https://two.example/"), False)


def test_the_sdks_helpers(tmp_path: Path) -> None:
    part = ChatMessageContent.from_pil_image(RED, compression_quality=0.5)
    assert isinstance(part, Image) and len(part.data) <= len(Image.from_pil_image(RED).data)
    wav = Audio.from_float_samples([0.0, 0.5], 16_000).data
    assert ChatMessageContent.from_wav_data(wav) == Audio(wav)
    with pytest.raises(LeapSerializationError, match="not a WAV"):
        ChatMessageContent.from_wav_data(b"ID3 some music")
    stereo = ChatMessageContent.from_float_samples([0.0, 0.5, 1.0, 0.0], 8_000, channel_count=2)
    assert isinstance(stereo, Audio)
    assert stereo == Audio.from_float_samples(np.array([0.25, 0.5], np.float32), 8_000)
    for channels in (0, 3, True, 1.5):
        with pytest.raises(LeapSerializationError):
            Audio.from_float_samples([0.0, 0.5], 8_000, channels)  # type: ignore[arg-type]
    (tmp_path / "red.png").write_bytes(saved("PNG"))
    (tmp_path / "hum.wav").write_bytes(wav)
    assert Image.from_file(tmp_path / "red.png") == Image.from_bytes(saved("PNG"))
    assert Audio.from_file(tmp_path / "hum.wav") == Audio(wav)
    with pytest.raises(LeapSerializationError, match="cannot read"):
        Image.from_file(tmp_path / "none.png")
    with pytest.raises(LeapSerializationError, match="not a JPEG"):
        Image(saved("PNG"))
    assert Text("a") != part


@pytest.mark.slow
def test_a_user_can_fetch_a_private_address_and_gets_the_reason_of_a_failure(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetching.fetch(server + "/a.png", UrlAccess.TYPED) == saved("PNG")
    assert fetching.fetch(server + "/moved", UrlAccess.TYPED) == saved("PNG"), "from private to private"
    said = {
        server + "/none": "the server answers 404",
        server + "/packed": "in a compressed form",
        "http://127.0.0.1:9/": "cannot connect to 127.0.0.1 (",
        server.replace("http", "https"): "cannot connect to 127.0.0.1 ([SSL",
        "http://nowhere.invalid/": "the host nowhere.invalid is unknown",
    }
    for url, why in said.items():
        with pytest.raises(LeapSerializationError) as caught:
            fetching.fetch(url, UrlAccess.TYPED)
        assert f"cannot fetch {url}: " in str(caught.value) and why in str(caught.value)
    asked = []
    monkeypatch.setattr(fetching, "_address", lambda target, may: (asked.append(may), (target.host, False))[1])
    fetching.fetch(server + "/moved", UrlAccess.TYPED)
    assert asked == [True, False], "behind a public address only public ones are asked"


def test_a_public_address_cannot_redirect_to_a_private_one() -> None:
    assert fetching._address(httpx.URL("http://8.8.8.8:8080/"), True) == ("8.8.8.8", False)
    assert fetching._address(httpx.URL("http://10.0.0.1:81/"), True) == ("10.0.0.1", True)
    for url in ("http://10.0.0.1/", "http://8.8.8.8:8080/"):
        with pytest.raises(OSError, match="it redirects to "):
            fetching._address(httpx.URL(url), False)
