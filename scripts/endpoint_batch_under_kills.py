"""Whether a batch over an endpoint that fails every tenth request, killed on the way, answers each line once and in
its shape; and whether the endpoint's key is anywhere it should not be.

    python scripts/endpoint_batch_under_kills.py [URL] [--lines 500] [--kills 3] [--model NAME]

URL is the base of an endpoint, such as http://127.0.0.1:8080/v1; without one `leap serve builtin` is started. The
faults are 429 with retry-after, 503, a connection that is hung up, and a stream that breaks in the middle. The
exit code is 1 where something is not as it should be.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

KEY = "sk-under-kills-0123456789"
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "n": {"type": "integer", "maximum": 99}},
    "required": ["colour", "n"],
    "additionalProperties": False,
}
EVERY = 10
"""One request of so many fails."""
BROKEN_AFTER = 200
"""Bytes of a stream, after which it breaks."""
LONGEST = 600


class FaultyProxy(ThreadingHTTPServer):
    """Passes requests on to ``url``, but for one in ten. ``answered`` counts whole answers by the last message."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.upstream = urlsplit(url)
        self.url = f"http://127.0.0.1:{self.server_address[1]}{self.upstream.path}"
        self.numbers, self.faults = itertools.count(1), itertools.count()
        self.answered: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def handle_error(self, *_: object) -> None:
        """Clients that are killed hang up."""


class _Passing(BaseHTTPRequestHandler):
    server: FaultyProxy

    def do_GET(self) -> None:
        self._pass_on(b"", None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        fault = next(self.server.faults) % 4 if next(self.server.numbers) % EVERY == 0 else None
        self.server.failed.update([] if fault is None else [("429", "503", "hung up", "broken")[fault]])
        if fault == 2:
            self.connection.close()
        elif fault in (0, 1):
            self._refuse(429 if fault == 0 else 503)
        else:
            self._pass_on(body, BROKEN_AFTER if fault == 3 else None)

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Retry-After", "0.1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _pass_on(self, body: bytes, most: int | None) -> None:
        assert self.server.upstream.hostname
        upstream = http.client.HTTPConnection(self.server.upstream.hostname, self.server.upstream.port, timeout=LONGEST)
        with contextlib.closing(upstream):
            headers = {name: self.headers[name] for name in ("content-type", "authorization") if name in self.headers}
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("content-type", "application/json"))
            self.send_header("Connection", "close")
            self.end_headers()
            sent = 0
            while piece := answer.read1():
                self.wfile.write(piece if most is None else piece[: most - sent])
                sent += len(piece)
                if most is not None and sent >= most:
                    return
        if body:
            self.server.answered[json.loads(body)["messages"][-1]["content"]] += 1

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def faulty(url: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(url)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()


@contextlib.contextmanager
def leap_serve() -> Iterator[str]:
    """The base URL of a server of the built-in model."""
    command = [sys.executable, "-m", "leap_cli", "serve", "builtin", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class Trial:
    """A batch of ``lines`` in ``folder``, which is leap's home too."""

    def __init__(self, folder: Path, proxy: FaultyProxy, lines: int, model: str) -> None:
        self.folder, self.proxy, self.lines = folder, proxy, lines
        self.said = ""
        key, home = folder / "key", folder / "home"
        key.write_text(KEY)
        home.mkdir()
        entry = {"url": proxy.url, "model": model, "key_file": str(key)}
        lines_of_entry = [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
        (home / "config.toml").write_text("\n".join(["[endpoints.far]", *lines_of_entry, ""]))
        self.environment = {**os.environ, "LEAP_HOME": str(home)}
        rows = ({"custom_id": f"line-{n}", "prompt": f"Draw lot {n}."} for n in range(lines))
        (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "schema.json").write_text(json.dumps(SCHEMA))
        self.command = [
            *(sys.executable, "-m", "leap_cli", "batch", str(folder / "in.jsonl"), "-m", "far", "--concurrency", "8"),
            *("--json-schema", str(folder / "schema.json"), "--max-tokens", "40", "--format", "plain"),
            *("-o", str(folder / "out.jsonl")),
        ]

    def run(self, until: int | None = None) -> int | None:
        """Run the batch to its end, or kill it when so many answers were given; its exit code, None where it was
        killed."""
        with subprocess.Popen(
            self.command, env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as process:
            reading = threading.Thread(target=self._read, args=(process.stderr,))
            reading.start()
            end, seen = time.monotonic() + LONGEST, False
            while process.poll() is None and time.monotonic() < end:
                if not seen and Path(f"/proc/{process.pid}/cmdline").exists():
                    seen = True
                    self.said += Path(f"/proc/{process.pid}/cmdline").read_text("utf-8", "replace")
                if until is not None and self.proxy.answered.total() >= until:
                    break
                time.sleep(0.01)
            killed = process.poll() is None
            process.kill()
            reading.join()
        return None if killed else process.returncode

    def _read(self, stream: Any) -> None:
        for line in stream:
            self.said += line

    def faults(self) -> Iterator[str]:
        """What is not as it should be."""
        rows = [json.loads(row) for row in (self.folder / "out.jsonl").read_text("utf-8").splitlines()]
        names = [row.get("custom_id") for row in rows]
        if names != [f"line-{n}" for n in range(self.lines)]:
            yield f"{len(rows)} results, {len(set(names))} lines of {self.lines}, or not in their order"
        for row in rows:
            value = json.loads(row.get("text") or "null")
            if not isinstance(value, dict) or sorted(value) != ["colour", "n"] or not isinstance(value["n"], int):
                yield f"{row.get('custom_id')}: {row}"
        if KEY in self.said:
            yield "the key is in what the program said, or in the list of processes"
        for file in self.folder.rglob("*"):
            if file.is_file() and file.name != "key" and KEY.encode() in file.read_bytes():
                yield f"the key is in {file.name}"


def trial(folder: Path, url: str, lines: int, kills: int, model: str) -> bool:
    """Whether all is as it should be; what was found is printed."""
    began = time.monotonic()
    with faulty(url) as proxy:
        batch = Trial(folder, proxy, lines, model)
        killed = sum(batch.run(until=lines * (n + 1) // (kills + 1)) is None for n in range(kills))
        code = batch.run()
        wrong = list(batch.faults())
        twice = proxy.answered.total() - len(proxy.answered)
    faults = dict(proxy.failed)
    print(f"{lines} lines, {killed} kills, exit code {code}, faults {faults}, {twice} answers asked again, in")
    print(f"{time.monotonic() - began:.1f} s; {wrong[:5] or 'nothing is wrong'}")
    if code:
        print(batch.said[-2000:])
    return code == 0 and killed == kills and not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--model", default="builtin")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as using:
        url = given.url or using.enter_context(leap_serve())
        return int(not trial(Path(folder), url, given.lines, given.kills, given.model))


if __name__ == "__main__":
    sys.exit(main())
