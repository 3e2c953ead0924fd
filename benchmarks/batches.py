"""A batch at the default concurrency against the same prompts one after another, against llama-server, and what the
journal costs.

    python benchmarks/batches.py bench-q4_0.gguf [--lines 200] [--tokens 64] [--llama-server PATH]

Both sides answer the same prompts, each of its own length, with the end of the answer ruled out, so that every answer
has the same number of tokens. The journal's cost is measured with the built-in model, whose lines are the shortest:
with a journal and fsync once a second against none, in turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from harness import EOG_TOKENS, Row, alternate, report, words

from jobs.batch.journal import Journal
from jobs.batch.output_file import OutputFile, OutputStream
from jobs.batch.requests import Line, RequestReader, check_lines
from jobs.batch.run import Batch
from jobs.batch.settings import DEFAULT_CONCURRENCY
from leap_core.loading import Leap
from leap_core.options import GenerationOptions, ModelLoadingOptions
from leap_core.runner import ModelRunner

PORT = 18_099


class _Kept:
    """A runner that a batch does not unload."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner

    def __enter__(self) -> ModelRunner:
        return self._runner

    def __exit__(self, *_: object) -> None:
        pass


def prompts(count: int) -> list[str]:
    return [words(8 + 2 * (n % 8), seed=n) for n in range(count)]


def lines_of(texts: Sequence[str]) -> list[Line]:
    rows = [json.dumps({"id": f"id-{n}", "prompt": text}).encode() for n, text in enumerate(texts)]
    return check_lines(rows, RequestReader())[0]


def reader(tokens: int) -> RequestReader:
    bias = {token: -1e9 for token in EOG_TOKENS}
    return RequestReader(GenerationOptions(temperature=0.0, max_tokens=tokens, logit_bias=bias))


def seconds(
    runner: ModelRunner, lines: Sequence[Line], tokens: int, concurrency: int, directory: Path | None = None
) -> float:
    """One batch; with a directory it is journalled there."""
    sink = OutputStream(lambda _line: None) if directory is None else OutputFile(directory / "out.jsonl")
    journal = None if directory is None else Journal(directory / "out.jsonl.journal")
    begun = time.perf_counter()
    batch = Batch(lines, reader(tokens), "benchmark", sink, journal, concurrency=concurrency)
    progress = batch.run(lambda: _Kept(runner), threading.Event())  # type: ignore[arg-type,return-value]
    taken = time.perf_counter() - begun
    assert progress.succeeded == len(lines) and not progress.reused
    if journal is not None:
        journal.close()
    return taken


def side_by_side(model: Path, work: Sequence[Line], tokens: int, threads: int, repeat: int) -> list[float]:
    """Seconds at the default concurrency, and one after another."""
    with ExitStack() as stack:
        sides = []
        for concurrency in (DEFAULT_CONCURRENCY, 1):
            options = ModelLoadingOptions(slots=concurrency, cpu_threads=threads, context_size=2048)
            runner = stack.enter_context(Leap.load(model, options))
            seconds(runner, work[:2], 4, concurrency)
            sides.append(partial(seconds, runner, work, tokens, concurrency))
        return alternate(repeat, *sides)


def journal_rows(repeat: int, lines: int) -> list[Row]:
    work = lines_of(prompts(lines))
    with Leap.load("builtin", ModelLoadingOptions(slots=DEFAULT_CONCURRENCY)) as runner:

        def with_journal() -> float:
            with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
                return seconds(runner, work, 32, DEFAULT_CONCURRENCY, Path(directory))

        seconds(runner, work[:32], 32, DEFAULT_CONCURRENCY)
        kept, bare = alternate(repeat, with_journal, lambda: seconds(runner, work, 32, DEFAULT_CONCURRENCY))
    return [Row("cost of the journal", "with (s)", kept, "without (s)", bare, "<= 1.02")]


def server_seconds(program: Path, model: Path, texts: Sequence[str], tokens: int, threads: int) -> float:
    """The same prompts through llama-server's parallel slots."""
    slots = DEFAULT_CONCURRENCY
    command = [str(program), "-m", str(model), "-np", str(slots), "-c", str(slots * 2048), "-t", str(threads)]
    command += ["--port", str(PORT), "--no-webui", "-fa", "on"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for_server()

        def ask(text: str) -> None:
            bias = [[token, False] for token in EOG_TOKENS]
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0}
            data = json.dumps({**body, "logit_bias": bias, "cache_prompt": True}).encode()
            headers = {"Content-Type": "application/json"}
            asked = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/chat/completions", data, headers)
            with urllib.request.urlopen(asked) as answer:
                assert json.load(answer)["usage"]["completion_tokens"] == tokens

        begun = time.perf_counter()
        with ThreadPoolExecutor(slots) as pool:
            list(pool.map(ask, texts))
        return time.perf_counter() - begun
    finally:
        server.terminate()
        server.wait()


def _wait_for_server() -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health") as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("llama-server does not come up")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="made by benchmarks/make_model.py")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer (default 64)")
    parser.add_argument("--threads", type=int, default=2, help="threads of all sides (default 2)")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each side (default 3)")
    parser.add_argument("--llama-server", type=Path, help="the program of llama.cpp")
    parser.add_argument("--only-journal", action="store_true")
    given = parser.parse_args()
    rows = journal_rows(given.repeat, given.lines * 2)
    if not given.only_journal:
        texts = prompts(given.lines)
        work = lines_of(texts)
        together, alone = side_by_side(given.model, work, given.tokens, given.threads, given.repeat)
        claim = f"{given.lines} prompts at {DEFAULT_CONCURRENCY} against one after another"
        rows.insert(0, Row(claim, "one by one (s)", alone, "together (s)", together, ">= 2.5"))
        if given.llama_server:
            server = server_seconds(given.llama_server, given.model, texts, given.tokens, given.threads)
            rows.insert(1, Row("against llama-server's slots", "llama-server (s)", server, "leap (s)", together, "-"))
    report("Batches", rows)


if __name__ == "__main__":
    main()
