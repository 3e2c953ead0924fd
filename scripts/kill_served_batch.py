"""Has ``leap serve`` answer a batch of many lines, kills the server by SIGKILL again and again, and checks the results.

    python scripts/kill_served_batch.py                     # 1,000 lines, five kills
    python scripts/kill_served_batch.py --lines 40 --kills 2

Says what it saw as one JSON document. Fails unless every line has exactly one answer, in the order of the input.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import openai

FINAL = ("completed", "failed", "cancelled", "expired")


class Server:
    """``leap serve`` with the built-in model, as often as it is needed."""

    def __init__(self, home: str) -> None:
        self._environment = {**os.environ, "LEAP_HOME": home}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> openai.OpenAI:
        """Start it and give a client of it."""
        command = [sys.executable, "-m", "leap_cli", "serve", "builtin", "--port", "0", "--threads", "1"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env=self._environment)
        assert self._process.stdout is not None
        url = self._process.stdout.readline().decode().strip()
        return openai.OpenAI(base_url=url, api_key="none", max_retries=8, timeout=60)

    def kill(self) -> None:
        """End it at once."""
        assert self._process is not None and self._process.stdout is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def stop_worker(self) -> None:
        """End the worker, which outlives the server."""
        subprocess.run(
            [sys.executable, "-m", "leap_cli", "jobs", "worker", "--shutdown"], env=self._environment, check=False
        )


def main() -> int:
    """Run it; 0 when all lines are there once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=5)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="leap-batch-", ignore_cleanup_errors=True) as home:
        server = Server(home)
        try:
            report = _run(server, settings.lines, settings.kills)
        finally:
            server.kill()
            server.stop_worker()
    json.dump(report, sys.stdout, indent=2)
    print()
    whole = report["each_line_once_in_order"] and report["completed"] == settings.lines
    return 0 if whole and len(report["answered_when_killed"]) == settings.kills else 1


def _run(server: Server, lines: int, kills: int) -> dict[str, Any]:
    client = _ready(server)
    begun = time.monotonic()
    file = client.files.create(file=("in.jsonl", b"".join(map(_line, range(lines)))), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    killed_at: list[int] = []
    while batch.status not in FINAL:
        count = batch.request_counts.completed if batch.request_counts else 0
        if len(killed_at) < kills and count >= lines * (len(killed_at) + 1) // (kills + 2):
            killed_at.append(count)
            server.kill()
            client = _ready(server)
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    assert batch.output_file_id is not None, batch
    results = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    counts = batch.request_counts
    assert counts is not None
    return {
        "status": batch.status,
        "completed": counts.completed,
        "failed": counts.failed,
        "answered_when_killed": killed_at,
        "each_line_once_in_order": [result["custom_id"] for result in results] == [f"id-{n}" for n in range(lines)],
        "seconds": round(time.monotonic() - begun, 1),
        "load_average": os.getloadavg()[0],
    }


def _ready(server: Server) -> openai.OpenAI:
    client = server.start()
    while not client.models.list().data:
        time.sleep(0.05)
    return client


def _line(n: int) -> bytes:
    body = {"model": "builtin", "messages": [{"role": "user", "content": f"Count to {n + 2}."}], "max_tokens": 40}
    line = {"custom_id": f"id-{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line).encode() + b"\n"


if __name__ == "__main__":
    raise SystemExit(main())
