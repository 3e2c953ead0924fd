"""Many clients at once, half of them slow and some that leave: nothing of them stays behind."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from leap_core.testing import Script, Stall

from .conftest import PROMPTLY, settled

SLOW, LEAVING, USUAL = 60, 20, 40
HEADERS = {"Authorization": "Bearer secret"}
ASK = {"model": "builtin", "messages": [{"role": "user", "content": "Hi."}]}


@pytest.mark.slow
def test_slow_and_leaving_clients_leave_nothing_behind(serve):
    stalls = [Stall() for _ in range(LEAVING)]
    server = serve(*(Script(["One", stall, "two"]) for stall in stalls), bounds={"head_seconds": 1.0})
    (model,) = server.models
    before = threading.active_count()
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(SLOW)]
    for connection in slow:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n")

    def leave() -> None:
        with (
            httpx.Client(timeout=PROMPTLY, headers=HEADERS) as client,
            client.stream("POST", f"{server.url}/chat/completions", json={**ASK, "stream": True}) as answer,
        ):
            next(answer.iter_lines())

    leaving = [threading.Thread(target=leave) for _ in stalls]
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join(PROMPTLY)
    assert settled(lambda: model.active == 0), "their slots are free again"
    for _ in range(USUAL):
        server.runner.add("Yes.")
    answers: list[int] = []

    def ask() -> None:
        answers.append(
            httpx.post(f"{server.url}/chat/completions", json=ASK, headers=HEADERS, timeout=PROMPTLY).status_code
        )

    asking = [threading.Thread(target=ask) for _ in range(USUAL)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(PROMPTLY)
    assert answers == [200] * USUAL
    for connection in slow:  # the server has given them up
        connection.settimeout(PROMPTLY)
        with connection:
            assert b"408" in connection.recv(4096)
    assert settled(lambda: threading.active_count() <= before + 40), "threads of the loop's pool may stay"
    text = httpx.get(f"http://127.0.0.1:{server.port}/metrics", headers=HEADERS, timeout=100).text
    assert 'leap_slots_in_use{model="builtin"} 0.0' in text and 'leap_queue{model="builtin"} 0.0' in text


@pytest.mark.long
def test_a_server_under_load():
    """A short form of ``python scripts/load_server.py``; how long /health took is told there, and not judged here."""
    script = Path(__file__).parent.parent.parent / "scripts" / "load_server.py"
    given = ("--connections", "16", "--cancelled", "6", "--at-once", "8", "--seconds", "1", "--health", "60")
    done = subprocess.run([sys.executable, str(script), *given], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["soak"]["answers"] >= 8 and report["after"]["memory_kb"] < report["before"]["memory_kb"] + 65536
