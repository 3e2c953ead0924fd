"""Decoding one sequence through ``Conversation.generate_response`` with default sampling, against llama-bench at the
same depth and against ``llama_cpp.Llama.create_chat_completion`` with the same sampling.

    python benchmarks/decode.py bench-q4_0.gguf --llama-cpp DIRECTORY

Each side has a process of its own: two pools of OpenMP threads in one process slow each other down.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness import (
    Row,
    alternate,
    answer,
    arguments,
    end_tokens,
    llama_bench,
    options,
    report,
    runner,
    sized,
    user,
    words,
)

TOKENS = sized(128)
DEPTHS = (0, 512)
SAMPLING = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0}


def serve_leap(pipe: Connection, path: Path, threads: int) -> None:
    """Answer every text received with the speed of decoding its reply, tokens a second."""
    with runner(path, threads=threads) as model:
        while True:
            pipe.send(answer(model, [user(pipe.recv())], options(TOKENS)).decode_speed)


def serve_wrapper(pipe: Connection, path: Path, threads: int) -> None:
    """The same by the usual Python wrapper."""
    import llama_cpp

    peer: Any = llama_cpp.Llama(str(path), n_ctx=4096, n_threads=threads, n_batch=512, flash_attn=True, verbose=False)
    bias = {str(token): -1e9 for token in end_tokens(path)}
    while True:
        messages = [{"role": "user", "content": pipe.recv()}]
        peer.reset()
        first, count = 0.0, 0
        for _ in peer.create_chat_completion(messages, max_tokens=TOKENS, stream=True, logit_bias=bias, **SAMPLING):
            count += 1
            if count == 2:  # the first piece holds only the role
                first = time.perf_counter()
        pipe.send((count - 3) / (time.perf_counter() - first))


def until_closed(serve: Callable[[Connection, Path, int], None], pipe: Connection, path: Path, threads: int) -> None:
    """Serve until the other end is closed."""
    with suppress(EOFError):
        serve(pipe, path, threads)


def in_a_process(serve: Callable[[Connection, Path, int], None], path: Path, threads: int) -> Callable[[str], float]:
    """Start a side; the function that is returned sends it a text and returns its speed."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=until_closed, args=(serve, there, path, threads), daemon=True)
    process.start()
    there.close()  # or its end would never be seen

    def measure(text: str) -> float:
        try:
            here.send(text)
            return float(here.recv())
        except (EOFError, OSError):
            process.join()
            name = serve.__name__.removeprefix("serve_")
            sys.exit(f"decode.py: the side {name} ended with exit code {process.exitcode}")

    measure("warm up")
    return measure


def main() -> None:
    given = arguments(__doc__ or "")
    rows = []
    leap = in_a_process(serve_leap, given.model, given.threads)
    wrapper = in_a_process(serve_wrapper, given.model, given.threads)
    for depth in DEPTHS:
        text = words(max(8, depth))

        def bench(depth: int = depth) -> float:
            flags = ("-p", "0", "-n", str(TOKENS), "-d", str(depth), "-t", str(given.threads))
            return float(llama_bench(given.llama_cpp, given.model, *flags)[0]["avg_ts"])

        sides = [partial(leap, text), partial(wrapper, text)]
        ours, theirs, *rest = alternate(given.repeat, *sides, *([bench] if given.llama_cpp else []))
        claim = f"decode at depth {depth}, tokens/s"
        rows.append(Row(claim, "leap", ours, "llama_cpp.Llama", theirs, ">= 1.4"))
        if rest:
            rows.append(Row(claim, "leap", ours, "llama-bench", rest[0], ">= 0.95"))
    report(f"Decode, {given.model.name}, {given.threads} threads", rows)


if __name__ == "__main__":
    main()
