"""``leap batch --on ray`` and the mapper on a real Ray cluster of two nodes on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from leap_core.models.builtin import model_path

from .test_pipelines import pipeline

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
import torture_ray  # noqa: E402

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc"),
    pytest.mark.filterwarnings("default"),
]
MAPPING = """
import logging, ray
from leap_core import GenerationOptions
from leap_core.batch import Mapper

ray.init(logging_level=logging.CRITICAL, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
mapper = Mapper("builtin", prompt="Say {text}.", options=GenerationOptions(temperature=0.0, max_tokens=4))
"""


HAS_CLIENT = importlib.util.find_spec("grpc") is not None


@pytest.fixture
def client_port() -> int | None:
    """Where the cluster takes clients; None where Ray's client is not installed."""
    return torture_ray.free_port() if HAS_CLIENT else None


@pytest.fixture
def nodes(client_port: int | None) -> Iterator[torture_ray.Nodes]:
    made = torture_ray.Nodes(2, client_port)
    yield made
    made.close()


@pytest.mark.timeout(480)
def test_a_batch_resumes_after_actor_and_driver_are_killed_and_a_dataset_is_mapped(
    nodes, client_port, tmp_path, leap_home
):
    check_batch(nodes, tmp_path)
    check_mapper(nodes, tmp_path)
    check_interrupt_job_and_client(nodes, client_port, tmp_path)


def check_batch(nodes, tmp_path):
    seen = torture_ray.run_batch(nodes, tmp_path, lines=200, rounds=2, kinds=("actor", "driver"))
    assert seen["equal"] and seen["exit_code"] == 0 and (seen["actor"], seen["driver"]) == (1, 1)
    assert seen["told"] == "", "Ray's log reached the terminal"
    journal = (tmp_path / "out.jsonl.journal").read_text().splitlines()[1:]
    assert len({json.loads(line)["key"] for line in journal}) == len(journal) == 200, "a line was answered twice"


def check_mapper(nodes, tmp_path):
    pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    pyarrow_parquet.write_table(pyarrow.table({"text": [f"{n}" for n in range(6)]}), tmp_path / "in.parquet")
    environment = {**os.environ, "RAY_ADDRESS": nodes.address}
    script = MAPPING + pipeline("Ray Data").replace("/data/", f"{tmp_path}/").replace("256", "3")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = pyarrow_parquet.read_table(tmp_path / "out.parquet").sort_by("text").to_pylist()
    assert [row["text"] for row in rows] == [f"{n}" for n in range(6)]
    assert all(row["answer"] and not row["error"] and row["usage"]["prompt_tokens"] for row in rows)


def check_interrupt_job_and_client(nodes, client_port, tmp_path):
    """One batch is stopped by Ctrl-C, goes on as a job whose process is killed, and a client asks others."""
    rows = ({"id": f"id-{n}", "prompt": f"Count from {n}.", "max_tokens": 12} for n in range(600))
    (tmp_path / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["-m", "builtin", "--format", "plain", "--temperature", "0", "--concurrency", "4"]
    batch = ["batch", "many.jsonl", *options]
    journal = tmp_path / "many-out.jsonl.journal"
    environment = {**os.environ, "RAY_ADDRESS": nodes.address}
    on_ray = [*batch, "-o", "many-out.jsonl", "--on", "ray"]

    def leap(*args: str) -> str:
        command = [sys.executable, "-m", "leap_cli", *args]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done
        return done.stdout.strip()

    driver = subprocess.Popen([sys.executable, "-m", "leap_cli", *on_ray], cwd=tmp_path, env=environment)
    answered = until(lambda: count_of(journal) > 20 and count_of(journal))
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) == 130 and count_of(journal) >= answered
    assert count_of(journal) < 600, "it went on after Ctrl-C"

    id = leap(*on_ray, "--background")
    environment.pop("RAY_ADDRESS")  # the job took it along
    try:
        before = count_of(journal)
        until(lambda: count_of(journal) > before + 20)
        for process in processes_of(tmp_path / "leap-home", b"jobs.worker.model_process"):
            os.kill(process, signal.SIGKILL)
        leap("jobs", "wait", id, "--timeout", "200s")
    finally:
        leap("jobs", "worker", "--shutdown")
    job = json.loads(leap("jobs", "status", id, "--format", "json"))
    assert job["result"]["succeeded"] == 600
    leap(*batch, "-o", "many-one.jsonl")
    assert (tmp_path / "many-out.jsonl").read_bytes() == (tmp_path / "many-one.jsonl").read_bytes()
    if client_port is not None:  # the lines that check_batch answered
        leap("batch", "in.jsonl", *options, "-o", "client.jsonl", "--on", f"ray://127.0.0.1:{client_port}")
        assert (tmp_path / "client.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()


def count_of(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") - 1 if journal.exists() else 0


def until(found, seconds: float = 200.0):
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return value


def processes_of(home: Path, name: bytes) -> Iterator[int]:
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                name in (directory / "cmdline").read_bytes()
                and f"LEAP_HOME={home}\0".encode() in (directory / "environ").read_bytes()
            ):
                yield int(directory.name)


def test_an_unreachable_cluster_is_a_one_line_error(leap, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    done = leap("batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin", "--workers", "2")
    assert done.code == 2 and "--workers needs --on" in done.stderr
    done = leap("batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin", "--on", "slurm")
    assert done.code != 0 and "neither ray nor ray://HOST" in " ".join(done.stderr.split())
