"""Measures ``leap serve`` and llama-server in turns, with the same model, requests and lengths of answers.

    python scripts/serve_beside.py MODEL.gguf --llama-server PATH [--clients 1 8 16 64] [--rounds 3]

For each number of clients: tokens a second of all together, seconds to the first token, and milliseconds between the
pieces of an answer (median and the slowest of twenty). Every answer has the same length (``ignore_eos``), and no two
prompts are alike. Both servers are loaded all the time; one of them works.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WORDS = ("river", "stone", "light", "window", "morning", "people", "letter", "quiet", "green", "water", "bridge")
START_SECONDS = 600.0


@dataclass
class Run:
    """What clients saw of one server: ``speed`` in tokens a second, ``first`` and ``gaps`` in seconds."""

    speed: float = 0.0
    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)


def main() -> int:
    """Print the table; 0 when every answer had its length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama-server", type=Path, required=True)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 16, 64])
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each server and number of clients")
    parser.add_argument("--prompt", type=int, default=64, help="words of a prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    most, context = max(given.clients), 4 * given.prompt + given.tokens + 64
    own = [sys.executable, "-m", "leap_cli", "serve", str(given.model), "--context-size", str(context)]
    own += ["--slots", str(most), "--threads", str(given.threads)]
    other = [str(given.llama_server), "-m", str(given.model), "-c", str(context * most), "-np", str(most)]
    other += ["-t", str(given.threads)]
    with tempfile.TemporaryDirectory() as home, served(own, home) as leap, served(other, home) as llama:
        ports = {"leap": leap, "llama-server": llama}
        for port in ports.values():
            asyncio.run(measured(port, 1, given.prompt, given.tokens))  # the first answer pays for what is made once
        print(f"{'clients':>7}  {'server':<12} {'tokens/s':>9} {'first s':>8} {'slow':>7} {'gap ms':>7} {'slow':>7}")
        for clients in given.clients:
            runs: dict[str, list[Run]] = {name: [] for name in ports}
            for _ in range(given.rounds):
                for name, port in ports.items():
                    runs[name].append(asyncio.run(measured(port, clients, given.prompt, given.tokens)))
            for name, found in runs.items():
                print(row(clients, name, found), flush=True)
    return 0


def row(clients: int, name: str, runs: Sequence[Run]) -> str:
    """A line of the table."""
    first = sorted(seconds for run in runs for seconds in run.first)
    gaps = sorted(1000 * seconds for run in runs for seconds in run.gaps) or [0.0]
    speed = statistics.median(run.speed for run in runs)
    times = f"{statistics.median(first):8.3f} {slow(first):7.3f} {statistics.median(gaps):7.1f} {slow(gaps):7.1f}"
    return f"{clients:>7}  {name:<12} {speed:9.1f} {times}"


def slow(values: Sequence[float]) -> float:
    """Of sorted values the one that is as large as nineteen of twenty."""
    return values[min(len(values) - 1, len(values) * 19 // 20)]


def free_port() -> int:
    """A port that nobody listens at. Linux gives none of this range to connections that ask for any, so it stays free
    until the server takes it."""
    while True:
        with contextlib.suppress(OSError):
            port = random.randrange(24_100, 32_000)
            socket.create_server(("127.0.0.1", port)).close()
            return port


@contextlib.contextmanager
def served(command: Sequence[str], home: str) -> Iterator[int]:
    """The port of a server that is ready."""
    port = free_port()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, "--port", str(port)], env={**os.environ, "LEAP_HOME": home}, **quiet)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not asyncio.run(is_ready(port)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server did not start: {' '.join(command)}")
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


async def is_ready(port: int) -> bool:
    """Whether /health answers 200."""
    try:
        return b" 200 " in await anext(lines(port, "GET /health"), b"")
    except OSError:
        return False


async def measured(port: int, clients: int, words: int, tokens: int) -> Run:
    """So many clients at once, an answer each."""
    run, model = Run(), await model_of(port)
    begun = time.perf_counter()
    counts = await asyncio.gather(*(answered(port, model, words, tokens, run) for _ in range(clients)))
    if set(counts) != {tokens}:
        raise SystemExit(f"answers of {tokens} tokens were asked for, and had {sorted(set(counts))}")
    run.speed = sum(counts) / (time.perf_counter() - begun)
    return run


async def answered(port: int, model: str, words: int, tokens: int, run: Run) -> int:
    """Read one answer; the tokens that it has by the server's count."""
    prompt = " ".join(random.choices(WORDS, k=words))
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0.8, "seed": 1}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    count, times, last = 0, run.first, time.perf_counter()
    async for line in lines(port, "POST /v1/completions", json.dumps(body).encode()):
        if not line.startswith(b"data: {"):
            continue
        value, now = json.loads(line[6:]), time.perf_counter()
        count = (value.get("usage") or {}).get("completion_tokens", count)
        if value.get("choices") and value["choices"][0].get("text"):
            times.append(now - last)
            times, last = run.gaps, now
    return count


async def model_of(port: int) -> str:
    """The id of the model that is served."""
    async for line in lines(port, "GET /v1/models"):
        if b'"data"' in line:
            return str(json.loads(line)["data"][0]["id"])
    raise SystemExit("the server has no model")


async def lines(port: int, request: str, body: bytes = b"") -> AsyncIterator[bytes]:
    """The lines of a reply, its headers first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    try:
        async for line in reader:
            yield line
    finally:
        writer.close()


if __name__ == "__main__":
    sys.exit(main())
