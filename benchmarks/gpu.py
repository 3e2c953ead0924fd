"""leap on a GPU beside llama.cpp's own programs: one stream, prompts, many at once, and the servers.

    python benchmarks/gpu.py MODEL.gguf... [--llama-cpp DIRECTORY] [--parts decode,prefill,wave,steady,server,caches]

llama-bench, llama-batched-bench and llama-server are taken from DIRECTORY, or from the PATH; where one is missing,
leap's figure stands alone. Both sides have the same layers on the GPU and take turns; each loads the model anew, so
that they do not share the card's memory. leap runs the engine in use (``leap engine list``). A machine without a GPU
runs it too, on the processor.

- decode: tokens a second after the first, of one answer after so many tokens, sampled and greedy.
- prefill: prompt tokens a second of a prompt never seen before.
- wave: requests that come together, answer tokens a second, prompts included. steady: the same where a request comes
  whenever one ends, with answers of different lengths; llama-batched-bench knows waves alone, so its wave is beside it.
- server: answer tokens a second of ``leap serve`` and llama-server, streamed to so many clients.
- caches: leap with one cache that all sequences share, as it has it, beside one with cells for each sequence alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from harness import (
    SHORT,
    Row,
    alternate,
    answer,
    leap_serve,
    llama_batched_bench,
    llama_bench,
    report,
    runner,
    sized,
    user,
    words,
)
from prefill import prefill_speed

from leap_core.conversation.options import GenerationOptions
from leap_core.inference.llama import context as context_module
from leap_core.inference.llama.devices import all_gpus
from leap_core.inference.llama.library import library
from leap_core.inference.runner import InProcessRunner

PROMPT, REPLY, PREFIX = 64, sized(128), 500
DEPTHS, PROMPTS = ((0,), (512,)) if SHORT else ((0, 512, 4096), (512, 2048))
ROUNDS = 1 if SHORT else 4
SAMPLED: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95, "min_p": 0.05, "top_k": 40}
KINDS: dict[str, dict[str, Any]] = {"sampled": SAMPLED, "greedy": {"temperature": 0.0}}
PARTS = ("decode", "prefill", "wave", "steady", "server", "caches")
seeds = count(1)


class Side:
    """One model, and the programs of llama.cpp that are there."""

    def __init__(self, model: Path, given: argparse.Namespace) -> None:
        self.model, self.given = model, given
        layers = given.gpu_layers
        self.flags = ("-ngl", "99" if layers in ("auto", "-1") else layers)
        self.layers: int | str = layers if layers == "auto" else int(layers)

    def program(self, name: str) -> Path | None:
        """The directory of a program."""
        found = shutil.which(name, path=self.given.llama_cpp)
        return None if found is None else Path(found).parent

    @contextmanager
    def leap(self, slots: int = 1, context: int = 8192) -> Iterator[InProcessRunner]:
        """The model in this process, warmed up."""
        with runner(self.model, threads=None, slots=slots, context=context, n_gpu_layers=self.layers) as loaded:
            engine: Any = loaded.scheduler
            engine._eog = frozenset()  # no answer ends early; a bias would keep the device from picking candidates
            answers(loaded, [8] * min(slots, 4), [4])
            yield loaded

    def row(self, claim: str, leap: Callable[[], float], name: str, peer: Callable[[Path], float], goal: str) -> Row:
        """leap's figure beside that of a program."""
        directory = self.program(name)
        if directory is None:
            return Row(claim, "leap", alternate(self.given.repeat, leap)[0], f"{name} (not found)", float("nan"), goal)
        ours, theirs = alternate(self.given.repeat, leap, partial(peer, directory))
        return Row(claim, "leap", ours, name, theirs, goal)


def options(max_tokens: int, kind: str = "sampled") -> GenerationOptions:
    return GenerationOptions(
        max_tokens=max_tokens, rng_seed=1, repetition_penalty=1.0, repetition_detection=False, **KINDS[kind]
    )


def answers(model: InProcessRunner, prompts: Sequence[int], replies: Sequence[int], prefix: str = "") -> float:
    """Answer tokens a second of prompts of so many tokens after ``prefix``, all that fit at once. The lengths of the
    answers are taken in turns."""

    def one(number: int) -> int:
        message = user(prefix + words(prompts[number], seed=next(seeds)))
        stats = answer(model, [message], options(replies[number % len(replies)])).complete.stats
        assert stats is not None
        return stats.completion_tokens

    with ThreadPoolExecutor(model.scheduler.activity().slots) as pool:
        begun = time.perf_counter()
        return sum(pool.map(one, range(len(prompts)))) / (time.perf_counter() - begun)


def decode(side: Side) -> Iterator[Row]:
    for depth in DEPTHS:

        def bench(directory: Path, depth: int = depth) -> float:
            flags = ("-p", "0", "-n", str(REPLY), "-d", str(depth), *side.flags)
            return float(llama_bench(directory, side.model, *flags)[0]["avg_ts"])

        for kind in KINDS:

            def leap(depth: int = depth, kind: str = kind) -> float:
                message = user(words(max(8, depth), seed=next(seeds)))
                with side.leap() as model:
                    return answer(model, [message], options(REPLY, kind)).decode_speed

            yield side.row(f"decode at depth {depth}, {kind}, tokens/s", leap, "llama-bench", bench, ">= 0.97")


def prefill(side: Side) -> Iterator[Row]:
    for tokens in PROMPTS:

        def bench(directory: Path, tokens: int = tokens) -> float:
            flags = ("-p", str(tokens), "-n", "0", *side.flags)
            return float(llama_bench(directory, side.model, *flags)[0]["avg_ts"])

        def leap(tokens: int = tokens) -> float:
            with side.leap() as model:
                prefill_speed(model, tokens)
                return prefill_speed(model, tokens)

        yield side.row(f"prefill of {tokens} tokens, tokens/s", leap, "llama-bench", bench, ">= 0.90")


def wave(side: Side, at_once: int, prefix: str = "") -> float:
    """Answer tokens a second of requests that come together; all begin with ``prefix``."""
    with side.leap(at_once, 1024) as model:
        return answers(model, [PROMPT] * at_once, [REPLY], prefix)


def steady(side: Side, at_once: int) -> float:
    """Answer tokens a second where a request comes whenever one ends."""
    with side.leap(at_once, 1024) as model:
        return answers(model, [PROMPT] * at_once * ROUNDS, [REPLY * part // 3 for part in (2, 3, 4)])


def many(side: Side, measure: Callable[[Side, int], float], name: str) -> Iterator[Row]:
    for at_once in side.given.at_once:

        def bench(directory: Path, at_once: int = at_once, flags: tuple[str, ...] = ()) -> float:
            sizes = {"at_once": at_once, "prompt": PROMPT, "reply": REPLY}
            record = llama_batched_bench(directory, side.model, *side.flags, *flags, **sizes)
            return at_once * REPLY / float(record["t"])

        leap = partial(measure, side, at_once)
        claim = f"{at_once} at once, {name}, tokens/s"
        yield side.row(claim, leap, "llama-batched-bench", partial(bench, flags=("-kvu",)), ">= 0.85")
        if side.program("llama-batched-bench") is not None:
            yield side.row(f"{claim}; it without -kvu", leap, "llama-batched-bench", bench, "-")


@contextmanager
def own_cells() -> Iterator[None]:
    """Contexts of leap give each sequence cells of its own; a prefix that is shared is then copied."""
    real = library()

    class Library:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def llama_init_from_model(self, model: Any, params: Any) -> Any:
            params.kv_unified = False
            return real.llama_init_from_model(model, params)

    whole = mock.patch.object(context_module, "library", Library)
    with whole, mock.patch.object(context_module, "room_for_states", lambda _model, _slots: 0):
        yield


def caches(side: Side) -> Iterator[Row]:
    def apart(measure: Callable[[Side, int], float], at_once: int) -> float:
        with own_cells():
            return measure(side, at_once)

    prefix = words(PREFIX, seed=0) + " "
    for name, measure in (("one wave", wave), ("steady", steady), ("one prefix", partial(wave, prefix=prefix))):
        for at_once in side.given.at_once:
            shared, own = alternate(
                side.given.repeat, partial(measure, side, at_once), partial(apart, measure, at_once)
            )
            yield Row(f"{at_once} at once, {name}, tokens/s", "one cache", shared, "cells of their own", own, "-")


CLIENTS = """
import http.client, json, sys, threading, time, urllib.parse
url, clients, rounds, body = urllib.parse.urlparse(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
tokens = []
def one(number):
    connection = http.client.HTTPConnection(url.netloc)
    for turn in range(rounds):
        text = f"Write down as many words as you know, and begin with word {number * rounds + turn}."
        asked = json.loads(body) | {"messages": [{"role": "user", "content": text}]}
        headers = {"content-type": "application/json"}
        connection.request("POST", url.path + "/chat/completions", json.dumps(asked), headers)
        answer = connection.getresponse().read().decode()
        events = answer.split("data: ")
        usages = [json.loads(event).get("usage") for event in events if event.startswith("{")]
        found = [usage["completion_tokens"] for usage in usages if usage]
        assert found, answer[-500:]
        tokens.append(found[-1])
threads = [threading.Thread(target=one, args=(number,)) for number in range(clients)]
begun = time.perf_counter()
[each.start() for each in threads]
[each.join() for each in threads]
assert len(tokens) == clients * rounds
print(sum(tokens) / (time.perf_counter() - begun))
"""


def ask(side: Side, url: str, model: str) -> float:
    """Answer tokens a second that clients in another process get."""
    body = {"model": model, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": REPLY}
    asked = json.dumps({**body, **SAMPLED})
    command = [sys.executable, "-c", CLIENTS, url, str(side.given.clients), str(ROUNDS), asked]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def servers(side: Side) -> Iterator[Row]:
    clients = side.given.clients

    def leap() -> float:
        flags = ("--slots", str(clients), "--context-size", "1024", "--gpu-layers", side.given.gpu_layers)
        with leap_serve(str(side.model), *flags) as url:
            return ask(side, url, name_at(url))

    def llama_server(directory: Path) -> float:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        url = f"http://127.0.0.1:{port}/v1"
        flags = ("-np", str(clients), "-c", str(clients * 1024), "-fa", "on", "-kvu", "--host", "127.0.0.1")
        command = [str(directory / "llama-server"), "-m", str(side.model), *flags, "--port", port, *side.flags]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                return ask(side, url, name_at(url))
            finally:
                process.terminate()

    claim = f"server, {clients} clients, tokens/s"
    yield side.row(claim, leap, "llama-server", llama_server, ">= 3")


def name_at(url: str) -> str:
    """The name of a server's model, once that has answered."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        with suppress(OSError, LookupError):  # no server yet, no model yet, or 503 while it is loaded
            with urllib.request.urlopen(f"{url}/models") as models:
                name = str(json.load(models)["data"][0]["id"])
            asked = {"model": name, "max_tokens": 4, "messages": [{"role": "user", "content": "warm up"}]}
            headers = {"content-type": "application/json"}
            urllib.request.urlopen(
                urllib.request.Request(f"{url}/chat/completions", json.dumps(asked).encode(), headers)
            ).close()
            return name
        time.sleep(0.1)
    raise SystemExit(f"no model answers at {url}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+", help="GGUF files")
    parser.add_argument("--llama-cpp", help="directory of llama.cpp's programs (default: the PATH)")
    parser.add_argument("--gpu-layers", default="auto", help="layers on the GPU: a number, -1 for all, auto (default)")
    at_once = "2" if SHORT else "16,64,128"
    parser.add_argument("--at-once", type=lambda text: [int(each) for each in text.split(",")], default=at_once)
    parser.add_argument("--clients", type=int, default=2 if SHORT else 64)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--repeat", type=int, default=1 if SHORT else 3, help="measurements of each side (default 3)")
    given = parser.parse_args()
    cards = ", ".join(device.description for device in all_gpus()) or "no GPU"
    measured: dict[str, Callable[[Side], Iterator[Row]]] = {
        "decode": decode,
        "prefill": prefill,
        "wave": partial(many, measure=wave, name="one wave"),
        "steady": partial(many, measure=steady, name="steady"),
        "server": servers,
        "caches": caches,
    }
    for model in given.models:
        side = Side(model.resolve(), given)
        for part in given.parts.split(","):
            report(f"{part}, {model.name}, {cards}", list(measured[part](side)))


if __name__ == "__main__":
    main()
