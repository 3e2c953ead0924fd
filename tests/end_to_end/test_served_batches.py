"""OpenAI's files and batches through the official client, and what the death of the server does to them: nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import openai
import pytest

from .conftest import ROOT

SOON = 60.0


@pytest.fixture
def serve(start, program):
    """Start ``leap serve`` and give its process and a client, once the model is loaded."""
    clients = []

    def begin(*arguments):
        process = start("serve", "builtin", "--port", "0", "--threads", "1", "--slots", "2", *arguments)
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:"), process.communicate()
        assert b"builtin ready" in process.stderr.readline()
        clients.append(openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=SOON))
        return process, clients[-1]

    yield begin
    for client in clients:
        client.close()
    program("jobs", "worker", "--shutdown")


def rows(count: int, **body) -> bytes:
    lines = []
    for n in range(count):
        asked = {"model": "builtin", "messages": [{"role": "user", "content": f"Count to {n + 2}."}], "max_tokens": 12}
        line = {"custom_id": f"id-{n}", "method": "POST", "url": "/v1/chat/completions", "body": {**asked, **body}}
        lines.append(json.dumps(line) + "\n")
    return "".join(lines).encode()


def until_over(client, batch):
    deadline = time.monotonic() + 100
    while batch.status not in ("completed", "failed", "cancelled", "expired"):
        assert time.monotonic() < deadline, batch
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    return batch


def created(client, data: bytes):
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    return file, client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"why": "test"}
    )


def test_openais_client_uses_files_and_batches(serve):
    _, client = serve()
    data = rows(3)
    file, batch = created(client, data)
    assert (file.bytes, file.filename, file.purpose) == (len(data), "in.jsonl", "batch")
    assert client.files.content(file.id).read() == data
    assert (batch.object, batch.status, batch.metadata) == ("batch", "in_progress", {"why": "test"})
    batch = until_over(client, batch)
    assert batch.status == "completed", batch
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed, batch.error_file_id) == (3, 3, 0, None)
    answers = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert [answer["custom_id"] for answer in answers] == ["id-0", "id-1", "id-2"]
    assert answers[0]["response"]["body"]["choices"][0]["message"]["content"]
    assert [each.id for each in client.batches.list()] == [batch.id]
    assert {each.id for each in client.files.list()} == {file.id, batch.output_file_id}

    _, broken = created(client, rows(2) + b'{"custom_id": "x", "body": {}}\n')
    assert broken.status == "failed" and "body.messages: missing" in broken.errors.data[0].message

    picture = [{"type": "image_url", "image_url": {"url": (ROOT / "README.md").as_uri()}}]
    for body, says in (
        ({"messages": [{"role": "user", "content": picture}]}, "file: URLs are not taken here"),
        ({"leap": {"options": {"adapters": ["/etc/passwd"]}}}, "clients name no files"),
    ):
        _, broken = created(client, rows(1, **body))
        assert broken.status == "failed" and says in broken.errors.data[0].message
    _, broken = created(client, b'{"image": "README.md", "prompt": "What is there?"}')
    assert broken.status == "failed" and "names of files are not taken here" in broken.errors.data[0].message

    _, failing = created(client, rows(1) + rows(2).splitlines()[1].replace(b"Count", b"word " * 3000))
    failing = until_over(client, failing)
    assert (failing.status, failing.request_counts.completed, failing.request_counts.failed) == ("completed", 1, 1)
    (error,) = [json.loads(line) for line in client.files.content(failing.error_file_id).text.splitlines()]
    assert error["custom_id"] == "id-1" and error["error"]["code"] == "context_length_exceeded"

    _, long = created(client, rows(200, max_tokens=200))
    client.batches.cancel(long.id)
    assert until_over(client, long).status == "cancelled"

    assert client.files.delete(file.id).deleted
    for wrong in (file.id, "file-../../etc/passwd", "file-" + "0" * 24):
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(wrong)
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve("batch_" + "0" * 24)
    with pytest.raises(openai.BadRequestError, match="endpoint"):
        client.batches.create(input_file_id=batch.output_file_id, endpoint="/v1/edits", completion_window="24h")


def test_a_batch_survives_its_server():
    """A short form of ``python scripts/kill_served_batch.py``."""
    script = ROOT / "scripts" / "kill_served_batch.py"
    done = subprocess.run(
        [sys.executable, str(script), "--lines", "60", "--kills", "1"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
