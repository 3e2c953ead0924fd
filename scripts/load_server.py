"""Puts load on ``leap serve`` with the built-in model and says what it does to the server, as one JSON document.

    python scripts/load_server.py       # 500 connections, half of them slow; 100 cancelled streams; 64 at once for 30 s
    python scripts/load_server.py --connections 40 --cancelled 10 --at-once 8 --seconds 2

Fails when a slot, a thread or an open file is left behind, an answer is wrong, or /health took longer than ``--health``
seconds. Memory and times between tokens are told.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

SLOW_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
SETTLE_SECONDS = 60.0
POOL_THREADS = 40
"""Most threads of the event loop's pool, which stay once they are started."""


def main() -> int:
    """Run all of it; 0 when nothing was found wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--cancelled", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--health", type=float, default=1.0)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="leap-load-") as home, _server(home) as (process, port):
        report = asyncio.run(_load(settings, process.pid, port))
    json.dump(report, sys.stdout, indent=2)
    print()
    return 1 if report["wrong"] else 0


@contextlib.contextmanager
def _server(home: str) -> Any:
    command = [sys.executable, "-m", "leap_cli", "serve", "builtin", "--port", "0", "--threads", "1"]
    environment = {**os.environ, "LEAP_HOME": home}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None and process.stderr is not None
        url = process.stdout.readline().decode().strip()
        process.stderr.readline()  # the model is loaded
        yield process, int(url.rpartition(":")[2].partition("/")[0])
    finally:
        process.terminate()
        process.communicate()


async def _load(settings: argparse.Namespace, pid: int, port: int) -> dict[str, Any]:
    for _ in range(3):  # what the first requests import and allocate stays
        await _whole(port, "Hi")
    ours, theirs = multiprocessing.Pipe()
    prober = multiprocessing.get_context("spawn").Process(target=_probe, args=(port, theirs), daemon=True)
    prober.start()
    await asyncio.to_thread(ours.recv)
    before, wrong = _state(pid), []

    slow = [await _open(port) for _ in range(settings.connections // 2)]
    for _, writer in slow:
        writer.write(SLOW_HEAD)
    usual = settings.connections - len(slow)
    answers = await asyncio.gather(*(_whole(port, f"Say {n}.") for n in range(usual)), return_exceptions=True)
    wrong += [f"an answer beside slow clients: {answer!r}" for answer in answers if answer != 200][:3]
    refused = await asyncio.gather(*(_rest(reader) for reader, _ in slow))
    wrong += [f"a slow client got {said[:60]!r}" for said in refused if b"408" not in said][:3]
    for _, writer in slow:
        writer.close()

    await asyncio.gather(*(_leave(port, n) for n in range(settings.cancelled)))
    if not await _settled(port):
        wrong.append("slots of cancelled streams are in use")
    middle = _state(pid)

    gaps: list[float] = []
    until = time.monotonic() + settings.seconds
    done = await asyncio.gather(*(_soak(port, n, until, gaps) for n in range(settings.at_once)))
    if not await _settled(port):
        wrong.append("slots are in use after the soak")
    ours.send(None)
    health = await asyncio.to_thread(ours.recv)
    prober.join()
    after = _state(pid)
    if after["threads"] > before["threads"] + POOL_THREADS:
        wrong.append("threads are left")
    if after["files"] > before["files"] + 4:
        wrong.append("open files are left")
    if max(health) > settings.health:
        wrong.append(f"/health took {max(health):.2f} s")
    gaps.sort()
    return {
        "wrong": wrong,
        "load_average": os.getloadavg()[0],
        "usual_answers": usual,
        "slow_connections": len(slow),
        "cancelled_streams": settings.cancelled,
        "soak": {"at_once": settings.at_once, "seconds": settings.seconds, "answers": sum(done), "pieces": len(gaps)},
        "seconds_between_tokens": {str(p): round(_percentile(gaps, p), 4) for p in (50, 90, 99, 100)},
        "health": {
            "asked": len(health),
            "p99": round(_percentile(sorted(health), 99), 4),
            "most": round(max(health), 4),
        },
        "before": before,
        "after_the_cancelled": middle,
        "after": after,
    }


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0


def _probe(port: int, pipe: Any) -> None:
    """Ask for /health until asked to end, in a process of its own; send how long each took."""
    times: list[float] = []
    pipe.send(None)
    while not pipe.poll(0.02):
        begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/health")
        assert connection.getresponse().read()
        connection.close()
        times.append(time.monotonic() - begun)
    pipe.send(times)


def _state(pid: int) -> dict[str, int]:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = len(os.listdir(f"/proc/{pid}/fd"))
    return {"threads": int(fields["Threads"]), "memory_kb": int(fields["VmRSS"].split()[0]), "files": files}


async def _open(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(OSError):
        return await asyncio.wait_for(reader.read(), SETTLE_SECONDS)
    return b""


async def _ask(port: int, text: str, **more: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    body = json.dumps({"model": "builtin", "messages": [{"role": "user", "content": text}], **more}).encode()
    reader, writer = await _open(port)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return reader, writer


async def _whole(port: int, text: str) -> int:
    """The status of a whole answer."""
    reader, writer = await _ask(port, text, max_tokens=4)
    answer = await asyncio.wait_for(reader.read(), 10 * SETTLE_SECONDS)
    writer.close()
    return int(answer.split(b" ", 2)[1])


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while line := await asyncio.wait_for(reader.readline(), 10 * SETTLE_SECONDS):
        if line.startswith(b"data: "):
            yield line


async def _leave(port: int, n: int) -> None:
    """Leave a stream after its third piece."""
    reader, writer = await _ask(port, f"Count to {300 + n}.", stream=True, max_tokens=500)
    count = 0
    async for _ in _frames(reader):
        count += 1
        if count == 3:
            break
    writer.close()


async def _soak(port: int, n: int, until: float, gaps: list[float]) -> int:
    """Read one stream after the other until the time is up; how many."""
    done = 0
    while time.monotonic() < until:
        reader, writer = await _ask(port, f"Count to {20 + (n * 7 + done) % 50}.", stream=True, max_tokens=48)
        last = None
        async for frame in _frames(reader):
            now = time.monotonic()
            if b'"content":"' in frame and b'"content":""' not in frame:
                if last is not None:
                    gaps.append(now - last)
                last = now
        writer.close()
        done += 1
    return done


async def _settled(port: int) -> bool:
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        reader, writer = await _open(port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = await _rest(reader)
        writer.close()
        if b'leap_slots_in_use{model="builtin"} 0.0' in text and b'leap_queue{model="builtin"} 0.0' in text:
            return True
        await asyncio.sleep(0.1)
    return False


if __name__ == "__main__":
    raise SystemExit(main())
