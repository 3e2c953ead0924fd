"""Twenty responses of the background and streams of them, while the server is killed five times: each must end once,
and a stream that is taken up again must have no gap and nothing twice.

    python scripts/kill_background_responses.py [--responses 20] [--kills 5] [MODEL]

Everything happens in a fresh LEAP_HOME. It prints what it saw, and ends with 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import httpx
import openai

SOON = 120.0
BROKEN = (openai.APIConnectionError, openai.APIStatusError, httpx.HTTPError)


class Server:
    """``leap serve``, which can be killed and started anew on the same port."""

    def __init__(self, model: str, variables: dict[str, str]) -> None:
        self._model, self._variables, self._port = model, variables, 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        command = [sys.executable, "-m", "leap_cli", "serve", self._model, "--port", str(self._port)]
        self._process = subprocess.Popen(command, env=self._variables, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        url = self._process.stdout.readline().strip()
        self._port = int(url.split(":")[2].split("/")[0])

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


def patiently(call: Callable[[], object]) -> object:
    """What ``call`` returns, as soon as a server is there to answer."""
    deadline = time.monotonic() + SOON
    while True:
        try:
            return call()
        except BROKEN:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def followed(client: openai.OpenAI, id: str, cuts: list[int]) -> list[tuple[int, str]]:
    """The numbers and deltas of a stream to its end, taken up again after each cut."""
    seen: list[tuple[int, str]] = []

    def read() -> bool:
        after = seen[-1][0] if seen else -1
        given = {} if after < 0 else {"starting_after": after}
        for event in client.responses.retrieve(id, stream=True, **given):
            seen.append((event.sequence_number, getattr(event, "delta", "") if "output_text" in event.type else ""))
            if event.type in ("response.completed", "response.incomplete", "response.failed"):
                return True
        return False

    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        try:
            if read():
                return seen
        except BROKEN:
            pass
        cuts.append(len(seen))
        time.sleep(0.1)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="builtin")
    parser.add_argument("--responses", type=int, default=20)
    parser.add_argument("--kills", type=int, default=5)
    chosen = parser.parse_args()
    home = tempfile.mkdtemp(prefix="leap-background-")
    variables = {**os.environ, "LEAP_HOME": home}
    server = Server(chosen.model, variables)
    client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=SOON)
    ids = []
    for n in range(chosen.responses):
        text = f"Tell a long story about the number {n}."
        asked = {"model": chosen.model, "input": text, "background": True, "max_output_tokens": 400}
        response = patiently(lambda asked=asked: client.responses.create(**asked))
        ids.append(response.id)
    streams: dict[str, list[tuple[int, str]]] = {}
    cuts: list[int] = []

    def follow(id: str) -> None:
        with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=SOON) as own:
            streams[id] = followed(own, id, cuts)

    threads = [threading.Thread(target=follow, args=(id,)) for id in ids]
    for thread in threads:
        thread.start()
    for _ in range(chosen.kills):
        time.sleep(random.uniform(0.5, 1.5))
        server.kill()
        server.start()
    for thread in threads:
        thread.join()
    wrong = 0
    for id in ids:
        body = patiently(lambda id=id: client.responses.retrieve(id))
        numbers = [number for number, _ in streams[id]]
        text = "".join(delta for _, delta in streams[id])
        problems = []
        if body.status not in ("completed", "incomplete"):
            problems.append(f"it is {body.status}")
        if numbers != list(range(len(numbers))):
            problems.append("its stream has a gap, or something twice")
        if text != body.output_text:
            problems.append("its stream says something else than the response")
        wrong += bool(problems)
        for problem in problems:
            print(f"{id}: {problem}")
    listing = [sys.executable, "-m", "leap_cli", "jobs", "list", "--format", "quiet"]
    jobs = subprocess.run(listing, env=variables, capture_output=True, text=True, check=True).stdout.split()
    events = sum(len(stream) for stream in streams.values())
    made = f"{len(ids)} responses, {chosen.kills} kills, {len(jobs)} jobs"
    print(f"{made}, {events} events, {len(cuts)} cuts: {wrong} wrong")
    server.end()
    subprocess.run([sys.executable, "-m", "leap_cli", "jobs", "worker", "--shutdown"], env=variables, check=False)
    return 1 if wrong or len(jobs) != len(ids) else 0


if __name__ == "__main__":
    sys.exit(main())
