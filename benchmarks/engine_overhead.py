"""What the processor does for a token beside computing it: the real scheduler over a context that computes nothing.

    python benchmarks/engine_overhead.py smol.gguf [--requests 1,16,64,128] [--tokens 100]

``llama_decode`` returns at once and the logits are made, so that every microsecond is leap's own. Printed is
processor time a token, in microseconds, by part. ``logits``: copying the made logits, which is this benchmark's and not
leap's. ``plan``: planning a step and building its batch. ``place``: following the cells of the cache. ``sample``: from
logits to tokens, masks of schemas included. ``rest``: the other work of the compute thread, mostly admitting requests,
noting and delivering tokens. ``readers``: the threads that read the answers; for the server the event loop too. Its
clients run in a process of their own, which is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from harness import SHORT

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import CacheOptions, GenerationOptions, ModelLoadingOptions
from leap_core.conversation.streams import last_of
from leap_core.errors import LeapConstraintError
from leap_core.inference.llama.context import LlamaContext
from leap_core.inference.runner import InProcessRunner
from leap_core.server.access import AccessCheck
from leap_core.server.application import Server, build_app, listen
from leap_core.server.endpoints.generation import GenerationEndpoints
from leap_core.server.models.loaded_model import LoadRequest
from leap_core.server.models.loaded_models import LoadedModels

SCHEMA = {"type": "array", "items": {"type": "integer"}, "minItems": 1000}
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.8, "top_p": 0.95, "min_p": 0.05, "top_k": 40},
    "schema": {
        "temperature": 0.8,
        "top_p": 0.95,
        "min_p": 0.05,
        "top_k": 40,
        "json_schema_constraint": json.dumps(SCHEMA),
    },
}
DIFFERENT = 7
"""Different rows of logits."""


class Clock:
    """Processor time of the compute thread, by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.steps = 0

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, with its time added up."""

        def wrapped(*given: Any, **named: Any) -> Any:
            begun = time.thread_time()
            try:
                return call(*given, **named)
            finally:
                self.add(part, begun)

        return wrapped

    def add(self, part: str, begun: float) -> None:
        """Count the time since ``begun``."""
        self.seconds[part] = self.seconds.get(part, 0.0) + time.thread_time() - begun


class MadeLogits:
    """llama.cpp's library for one context, in which a decode computes nothing. All that leap does around it is done."""

    def __init__(self, context: LlamaContext, clock: Clock) -> None:
        self._context, self._clock, self._lib = context, clock, context._lib
        vocabulary = context.model.n_tokens
        self._rows = np.random.default_rng(0).normal(0.0, 2.5, (DIFFERENT, vocabulary)).astype(np.float32)
        self._rows[:, sorted(context.model.eog_tokens)] = -100.0
        self._logits = np.zeros((context.batch_size if context.slots == 1 else context.slots, vocabulary), np.float32)
        self._turn = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lib, name)

    def llama_decode(self, _context: object, batch: Any) -> int:
        """Make a row of logits for each position that asks for one."""
        begun = time.thread_time()
        wanted = np.flatnonzero(np.ctypeslib.as_array(batch.logits, (batch.n_tokens,)))
        for row in range(len(wanted)):
            self._turn += 1
            self._logits[row] = self._rows[self._turn % DIFFERENT]
        self._places = {place: row for row, place in enumerate(wanted.tolist())}
        self._clock.steps += 1
        self._clock.add("logits", begun)
        return 0

    def llama_get_logits_ith(self, _context: object, index: int) -> int:
        """The address of a row."""
        return self._logits[self._places[index]].ctypes.data

    def llama_state_seq_set_data_ext(self, *_given: object) -> int:
        """Nothing is in memory, so nothing is put back."""
        return 1


def measured(runner: InProcessRunner) -> Clock:
    """The runner's context computes nothing, and its scheduler is timed."""
    clock = Clock()
    engine: Any = runner.scheduler
    context = engine._context
    context._lib = made = MadeLogits(context, clock)
    context._logits_address = made.llama_get_logits_ith
    context.decode = clock.timed("place", context.decode)
    timed = [(engine._planner, name, "plan") for name in ("going_on", "build")]
    sampling = ((engine, "_sample", "sample"), (engine, "_sample_together", "sample"))
    for owner, name, part in (*timed, *sampling, (engine, "step", "all")):
        setattr(owner, name, clock.timed(part, getattr(owner, name)))
    return clock


def prompt(number: int) -> ChatMessage:
    return ChatMessage("user", f"Write down as many words as you know, and begin with word {number}.")


def options(kind: str, tokens: int) -> GenerationOptions:
    return GenerationOptions(
        max_tokens=tokens, rng_seed=1, repetition_penalty=1.0, repetition_detection=False, **KINDS[kind]
    )


def by_library(runner: InProcessRunner, kind: str, requests: int, tokens: int) -> None:
    """As many answers at once, each read by a thread of its own."""

    def one(number: int) -> None:
        with suppress(LeapConstraintError):  # the array is cut after so many tokens
            last_of(runner.start([prompt(number)], (), options(kind, tokens)))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


CLIENTS = """
import http.client, json, sys, threading
port, requests, body = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def one(number):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    text = f"Write down as many words as you know, and begin with word {number}."
    asked = json.loads(body) | {"messages": [{"role": "user", "content": text}]}
    connection.request("POST", "/v1/chat/completions", json.dumps(asked), {"content-type": "application/json"})
    answer = connection.getresponse().read()
    assert answer.rstrip().endswith(b"[DONE]") or b"was cut at max_tokens" in answer, answer[-200:]
threads = [threading.Thread(target=one, args=(number,)) for number in range(requests)]
[each.start() for each in threads]
[each.join() for each in threads]
"""


class Served:
    """The runner behind ``leap serve``'s application, in this process."""

    def __init__(self, runner: InProcessRunner) -> None:
        self._runner = runner
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(20.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(20.0)

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        models = LoadedModels(lambda _model, _options: self._runner)
        listener = listen("127.0.0.1", 0)
        app = build_app(models, GenerationEndpoints(models))
        server = Server.of(AccessCheck(app, token=None))
        serving = asyncio.create_task(server.serve([listener]))
        await models.load(LoadRequest("builtin"))
        self.port = listener.getsockname()[1]
        self._ready.set()
        await self._ending.wait()
        server.end()
        await serving

    def ask(self, kind: str, requests: int, tokens: int) -> None:
        """As many answers at once, streamed to clients in another process."""
        asked = dict(KINDS[kind])
        schema = asked.pop("json_schema_constraint", None)
        body = {"model": "builtin", "stream": True, "max_tokens": tokens, "seed": 1, **asked}
        if schema is not None:
            described = {"name": "numbers", "schema": json.loads(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": described}
        command = [sys.executable, "-c", CLIENTS, str(self.port), str(requests), json.dumps(body)]
        subprocess.run(command, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF; its vocabulary decides what sampling costs")
    parser.add_argument("--requests", default="1,4" if SHORT else "1,16,64,128")
    parser.add_argument("--tokens", type=int, default=8 if SHORT else 100)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--repeat", type=int, default=1 if SHORT else 3, help="the least of so many runs is printed")
    parser.add_argument("--ways", default="library,server")
    given = parser.parse_args()
    print("| way | requests | kind | us a token | us a step | logits | plan | place | sample | rest | readers |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for requests in map(int, given.requests.split(",")):
        loading = ModelLoadingOptions(
            context_size=512, slots=requests, cache_options=CacheOptions(enabled=False), cpu_threads=1
        )
        runner = InProcessRunner(given.model, "builtin", loading)
        with runner, Served(runner) as served:
            clock = measured(runner)
            for way in given.ways.split(","):
                for kind in given.kinds.split(","):
                    run = by_library if way == "library" else lambda _, *what: served.ask(*what)
                    run(runner, kind, requests, 2)
                    best: list[float] = []
                    for _ in range(given.repeat):
                        clock.seconds.clear()
                        clock.steps = 0
                        begun = time.process_time()
                        run(runner, kind, requests, given.tokens)
                        whole = time.process_time() - begun
                        best = min(best or [1e9], row(clock, whole, requests * given.tokens))
                    cells = " | ".join(f"{value:.0f}" for value in best)
                    print(f"| {way} | {requests} | {kind} | {cells} |", flush=True)


def row(clock: Clock, whole: float, tokens: int) -> list[float]:
    """The columns of the table."""
    spent = clock.seconds
    spent["place"] -= spent["logits"]
    parts = [spent.get(part, 0.0) for part in ("logits", "plan", "place", "sample")]
    rest = spent["all"] - sum(parts)
    readers = whole - spent["all"]
    by_token = [1e6 * seconds / tokens for seconds in (*parts, rest, readers)]
    return [1e6 * whole / tokens, 1e6 * whole / clock.steps, *by_token]


if __name__ == "__main__":
    main()
