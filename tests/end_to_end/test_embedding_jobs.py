"""``leap embed --background`` and batches of embeddings, as a shell and OpenAI's client see them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import numpy as np
import pytest

from leap_core.models.builtin import model_path
from tests.jobs import processes

SOON = 60.0
pytestmark = [
    pytest.mark.skipif(not model_path("builtin-embed").is_file(), reason="the built-in encoder was not trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


@pytest.fixture(autouse=True)
def no_worker_stays(program):
    yield
    program("jobs", "worker", "--shutdown")


def job(program, *arguments: str, **options) -> str:
    done = program("embed", *arguments, "--background", **options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def test_vectors_in_the_background_are_those_of_the_foreground(program, tmp_path, leap_home):
    (tmp_path / "page.txt").write_text("a page")
    asked = ("one", "-f", "page.txt", "--kind", "query", "--dimensions", "8")
    own = [json.loads(line) for line in program("embed", *asked).stdout.splitlines()]
    first, second = job(program, *asked), job(program, *asked, "-o", "v.npy")
    printed = [json.loads(line) for line in program("jobs", "wait", first).stdout.splitlines()]
    assert [{name: row[name] for name in mine} for row, mine in zip(printed, own, strict=True)] == own
    assert [json.loads(line) for line in program("jobs", "output", first).stdout.splitlines()] == printed
    assert program("jobs", "wait", second).returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), np.array([row["embedding"] for row in own], np.float32))
    assert "an array" in program("jobs", "output", second).stderr
    (results,) = leap_home.rglob("*.out")
    program("jobs", "remove", first, second)
    assert not list(results.parent.iterdir())


def test_embeddings_of_a_killed_worker_are_resumed(program, tmp_path, leap_home):
    (tmp_path / "lines.txt").write_text("".join(f"this is line {n} of many lines\n" for n in range(2500)))
    id = job(program, "-f", "lines.txt", "--lines", "-o", "v.jsonl")
    deadline = time.monotonic() + SOON
    killed = 0
    while killed < 2 and time.monotonic() < deadline:
        journal = tmp_path / "v.jsonl.journal"
        if journal.exists() and journal.stat().st_size > 500_000 * (killed + 1):
            for pid in processes.of_home(leap_home):
                os.kill(pid, signal.SIGKILL)
            killed += 1
            program("jobs", "status", id)  # what left no worker behind starts one
        if program("jobs", "status", id, "--format", "json").stdout.find('"succeeded"') > 0:
            break
    waited = program("jobs", "wait", id)
    assert waited.returncode == 0, waited.stderr
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [row["index"] for row in rows] == list(range(2500))
    assert killed == 0 or "of them before" in program("jobs", "logs", id).stderr


def test_a_job_can_be_cancelled_and_a_wrong_model_is_reported(program, tmp_path):
    (tmp_path / "lines.txt").write_text("some words for the model to read\n" * 15_000)
    id = job(program, "-f", "lines.txt", "--lines", "-o", "v.npy")
    assert '"cancelled"' in program("jobs", "cancel", id, "--format", "json").stdout
    assert not (tmp_path / "v.npy").exists()
    done = program("embed", "x", "-m", "no-such-model", "--background")
    assert done.returncode == 2 and "no-such-model" in done.stderr
    done = program("embed", "x", "-m", "builtin", "--background")
    assert done.returncode == 2 and "not made for embeddings" in done.stderr
    assert program("embed", "x", "--tokens", "--background").returncode == 2


def test_openai_batches_of_embeddings(start):
    import openai

    process = start("serve", "builtin", "--port", "0", "--threads", "1")
    url = process.stdout.readline().decode().strip()
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=SOON) as client:

        def submit(model: str, endpoint: str = "/v1/embeddings"):
            line = {"method": "POST", "url": "/v1/embeddings", "body": {"model": model, "input": ["one", "two"]}}
            rows = [{"custom_id": f"id-{n}", **line} for n in range(3)]
            data = "".join(json.dumps(row) + "\n" for row in rows).encode()
            file = client.files.create(file=("in.jsonl", data), purpose="batch")
            return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")

        batch = submit("builtin-embed")
        deadline = time.monotonic() + SOON
        while batch.status not in ("completed", "failed") and time.monotonic() < deadline:
            time.sleep(0.1)
            batch = client.batches.retrieve(batch.id)
        assert (batch.status, batch.request_counts.completed) == ("completed", 3), batch
        assert batch.endpoint == "/v1/embeddings"
        (first, *_) = map(json.loads, client.files.content(batch.output_file_id).text.splitlines())
        one = client.embeddings.create(model="builtin-embed", input=["one", "two"], encoding_format="float")
        got = [each["embedding"] for each in first["response"]["body"]["data"]]
        np.testing.assert_allclose(got, [each.embedding for each in one.data], atol=5e-5)
        with pytest.raises(openai.NotFoundError):
            submit("/etc/passwd")
        with pytest.raises(openai.BadRequestError, match="the lines are for"):
            submit("builtin-embed", "/v1/chat/completions")
        with pytest.raises(openai.BadRequestError, match="cannot answer a prompt|not made for embeddings|pooling"):
            client.embeddings.create(model="builtin", input="x")
