"""Inputs of ``leap batch`` on other machines: a real S3 server (moto's), and one that cuts the connection."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading

import pytest

from leap_core.batch.input.remote_files import fetched, is_url
from leap_core.errors import LeapSerializationError

from .conftest import AnsweringRunner

needs_fsspec = pytest.mark.skipif(importlib.util.find_spec("fsspec") is None, reason="fsspec is not installed")


@pytest.fixture
def bucket(monkeypatch):
    server = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    import s3fs

    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    settings = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**settings, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    files.mkdir("leap")
    yield files
    s3fs.S3FileSystem.clear_instance_cache()
    started.stop()


@pytest.mark.filterwarnings("default")
def test_lines_come_from_s3(bucket, leap, tmp_path):
    bucket.pipe("leap/in.jsonl", b"".join(json.dumps({"prompt": f"{n}"}).encode() + b"\n" for n in range(50)))
    leap.runner = AnsweringRunner()
    args = ("-o", "out.jsonl", "-m", "builtin", "--format", "plain")
    done = leap("batch", "s3://leap/in.jsonl", *args)
    assert done.code == 0, done
    texts = [json.loads(line)["text"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert texts == [f"<{n}>" for n in range(50)]
    done = leap("batch", "s3://leap/none.jsonl", *args)
    assert done.code == 2 and "cannot read s3://leap/none.jsonl" in " ".join(done.stderr.split())


@needs_fsspec
@pytest.mark.filterwarnings("default")
def test_a_connection_that_is_cut_in_the_middle_is_an_error_and_no_short_input():
    pytest.importorskip("aiohttp")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b'{"prompt": "a"}\n' * 9)

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/in.jsonl"
    with pytest.raises(LeapSerializationError, match="cannot read http://127"):
        fetched(url)
    listener.close()


def test_urls_and_paths(leap, tmp_path):
    assert is_url("s3://a/b") and is_url("https://h/x.parquet") and not is_url("a/b.jsonl") and not is_url("/s3:/a")
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    done = leap("batch", "in.jsonl", "-o", "s3://leap/out.jsonl", "-m", "builtin")
    assert done.code == 2 and "give a file of this machine" in " ".join(done.stderr.split())
