"""Inputs and outputs of ``leap batch`` on other machines: a real S3 server (moto's), and connections that are cut."""

from __future__ import annotations

import importlib.util
import io
import json
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from leap_core.batch.input.remote_files import check_writable, exists, fetched, is_url, name_in, send
from leap_core.errors import LeapSerializationError, LeapUnavailableError

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
    reset = Request(f"http://{host}:{port}/moto-api/reset", method="POST")  # servers of one process share their buckets
    urlopen(reset).close()
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
def test_a_cut_connection_is_an_error_and_not_a_short_input():
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


class CuttingProxy:
    """A TCP proxy that cuts each of the first ``cuts`` connections after so many bytes of either direction."""

    def __init__(self, target: tuple[str, int], cuts: int, after: int) -> None:
        self._target, self._after, self.cuts = target, after, cuts
        self._guard = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        carried = 0
        with suppress(OSError):
            while data := source.recv(65536):
                carried += len(data)
                with self._guard:
                    cut = carried > self._after and self.cuts > 0
                    self.cuts -= cut
                if cut:
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def cut(bucket, monkeypatch):
    """Put a cutting proxy before the S3 server; returns it."""
    import s3fs

    server = urlsplit(bucket.s3.meta.endpoint_url)
    proxies = []

    def make(cuts: int, after: int = 200_000) -> CuttingProxy:
        proxies.append(CuttingProxy((str(server.hostname), int(server.port or 0)), cuts, after))
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxies[-1].address)
        monkeypatch.setattr(s3fs.S3FileSystem, "retries", 2)
        monkeypatch.setattr(s3fs.S3FileSystem, "default_block_size", 5 << 20)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        s3fs.S3FileSystem.clear_instance_cache()
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.close()


LONG = b'{"prompt": "a"}\n' * 100_000


@pytest.mark.filterwarnings("default")
def test_an_input_whose_transfer_is_cut_is_complete_or_an_error(bucket, cut):
    bucket.pipe("leap/in.jsonl", LONG)
    proxy = cut(1)
    with fetched("s3://leap/in.jsonl") as file:
        assert file.read() == LONG and proxy.cuts == 0
    proxy = cut(1000)
    with pytest.raises(LeapSerializationError, match="cannot read s3://leap/in.jsonl"):
        fetched("s3://leap/in.jsonl")
    assert proxy.cuts < 1000


@pytest.mark.filterwarnings("default")
def test_a_cut_upload_creates_no_output_and_keeps_the_former_one(bucket, cut):
    many = bytes(12_000_000)  # three parts
    bucket.pipe("leap/out.bin", b"before")
    proxy = cut(1000)
    with pytest.raises(LeapUnavailableError, match="cannot write s3://leap/out.bin"):
        send(io.BytesIO(many), "s3://leap/out.bin")
    assert proxy.cuts < 1000
    proxy.cuts = 0
    bucket.invalidate_cache()
    assert bucket.cat("leap/out.bin") == b"before"
    proxy.cuts = 1
    send(io.BytesIO(many), "s3://leap/out.bin")
    bucket.invalidate_cache()
    assert bucket.cat("leap/out.bin") == many and proxy.cuts == 0


@pytest.mark.filterwarnings("default")
def test_multipart_uploads_whose_completion_fails_are_aborted(bucket, monkeypatch):
    import s3fs

    def fail(file):
        raise OSError("no end")

    monkeypatch.setattr(s3fs.core.S3File, "commit", fail)
    monkeypatch.setattr(s3fs.S3FileSystem, "default_block_size", 5 << 20)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(LeapUnavailableError, match="no end"):
        send(io.BytesIO(bytes(12_000_000)), "s3://leap/out.bin")
    assert bucket.call_s3("list_multipart_uploads", Bucket="leap").get("Uploads", []) == []


@pytest.fixture
def asked(leap, tmp_path):
    """Run ``leap batch`` over ten lines; returns (finished, runner)."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"prompt": f"{n}"}) + "\n" for n in range(10)))

    def run(output, *args, answer=lambda text: f"<{text}>"):
        leap.runner = runner = AnsweringRunner(answer)
        return leap("batch", "in.jsonl", "-o", output, "-m", "builtin", "--format", "plain", *args), runner

    return run


@pytest.mark.filterwarnings("default")
def test_results_go_to_s3_once_they_are_complete(bucket, asked, tmp_path):
    done, _ = asked("s3://leap/deep/out.jsonl")
    assert done.code == 0, done
    texts = [json.loads(line)["text"] for line in bucket.cat("leap/deep/out.jsonl").splitlines()]
    assert texts == [f"<{n}>" for n in range(10)]
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out.jsonl.journal"]
    done, runner = asked("s3://leap/deep/out.jsonl")
    assert (done.code, runner.asked) == (0, []) and bucket.cat("leap/deep/out.jsonl").count(b"\n") == 10
    done, _ = asked("s3://leap/other/out.jsonl")
    assert done.code == 2 and "is the journal of another output" in " ".join(done.stderr.split())
    (tmp_path / "out.jsonl.journal").unlink()
    done, _ = asked("s3://leap/deep/out.jsonl")
    assert done.code == 2 and "s3://leap/deep/out.jsonl exists" in " ".join(done.stderr.split())


@pytest.mark.filterwarnings("default")
def test_answers_are_kept_when_they_cannot_be_uploaded(bucket, asked, monkeypatch):
    from leap_core.batch.input import remote_files

    def fail(file, url):
        raise LeapUnavailableError(f"cannot write {url}: gone")

    with monkeypatch.context() as broken:
        broken.setattr(remote_files, "send", fail)
        done, _ = asked("s3://leap/out.jsonl.gz")
    assert done.code != 0 and "cannot write s3://leap/out.jsonl.gz: gone" in " ".join(done.stderr.split())
    assert not bucket.exists("leap/out.jsonl.gz")
    done, runner = asked("s3://leap/out.jsonl.gz")
    assert (done.code, runner.asked) == (0, []) and bucket.exists("leap/out.jsonl.gz")


@pytest.mark.filterwarnings("default")
def test_shards_of_a_batch_are_merged_into_s3(bucket, asked):
    for n in (1, 2):
        done, _ = asked("s3://leap/out.jsonl", "--shard", f"{n}/2")
        assert done.code == 0 and bucket.exists(f"leap/out.{n}-of-2.jsonl"), done
    done, _ = asked("s3://leap/out.jsonl", "--merge", "2")
    assert done.code == 0 and bucket.cat("leap/out.jsonl").count(b"\n") == 10
    assert bucket.call_s3("list_multipart_uploads", Bucket="leap").get("Uploads", []) == []


@pytest.mark.filterwarnings("default")
def test_an_unwritable_destination_is_refused_before_any_work(bucket, asked):
    for output, told in [
        ("s3://nosuch/out.jsonl", "s3://nosuch/out.jsonl cannot be written to"),
        ("https://host/out.jsonl", "takes files, such as s3://BUCKET/NAME"),
        ("s3://leap/out/", "is a directory"),
        ("s3://leap/out.xlsx", "would be no .xlsx file"),
    ]:
        done, runner = asked(output)
        assert (done.code, runner.asked) == (2, []) and told in " ".join(done.stderr.split())
    done, _ = asked("out.jsonl", "--errors", "s3://leap/errors.jsonl")
    assert done.code == 2 and "give a file of this machine" in " ".join(done.stderr.split())
    done, _ = asked("s3://leap/out.jsonl", "--errors", "errors.jsonl")
    assert done.code == 2 and "leave --errors" in " ".join(done.stderr.split())


@needs_fsspec
def test_files_of_any_file_system(tmp_path):
    url = (tmp_path / "a.jsonl").as_uri()
    check_writable(url)
    assert not exists(url) and name_in(f"{url}?versionId=1") == "a.jsonl"
    send(io.BytesIO(b"one"), url)
    assert exists(url) and (tmp_path / "a.jsonl").read_bytes() == b"one"


@needs_fsspec
def test_no_message_and_no_journal_shows_the_secrets_of_a_url(monkeypatch, tmp_path):
    from leap_core.batch.input import remote_files
    from leap_core.batch.journal.journal import Journal, is_journal_of

    url = "s3://ann:geheim@host/out.jsonl?X-Amz-Signature=5ecret"

    def refuse(url):
        raise OSError(f"403, url={url!r}, user ann, geheim, /out.jsonl?X-Amz-Signature=5ecret, {url.upper()}")

    monkeypatch.setattr(remote_files, "_fsspec", refuse)
    for call in (fetched, exists, check_writable, lambda url: send(io.BytesIO(), url)):
        with pytest.raises((LeapSerializationError, LeapUnavailableError)) as caught:
            call(url)
        assert "geheim" not in str(caught.value).lower() and "5ecret" not in str(caught.value).lower()
        assert "s3://ann:***@host/out.jsonl?…" in caught.value.message and "403" in caught.value.message
    path = tmp_path / "out.jsonl.journal"
    journal = Journal(path, url)
    journal.begin()
    assert "geheim" not in path.read_text() and "5ecret" not in path.read_text()
    assert is_journal_of(path, url) and not is_journal_of(path, "s3://host/other.jsonl")
    journal.close()
    path.write_text(json.dumps({"leap_batch_journal": 1, "output": url}, separators=(",", ":")) + "\n")
    assert is_journal_of(path, url), "a journal of before is read on"


def test_urls_and_paths():
    assert is_url("s3://a/b") and is_url("https://h/x.parquet") and not is_url("a/b.jsonl") and not is_url("/s3:/a")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_lines_of_s3_are_answered_in_the_background(bucket, leap, tmp_path):
    bucket.pipe("leap/in.jsonl", b'{"prompt": "Say hello."}\n')
    try:
        done = leap("batch", "s3://leap/in.jsonl", "-o", "out.jsonl", "-m", "builtin", "--background")
        assert done.code == 0, done
        assert leap("jobs", "wait", done.stdout.strip()).code == 0
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 1
    finally:
        leap("jobs", "worker", "--shutdown")
