"""A batch at the default concurrency against the same prompts one after another, against llama-server, and what the
journal costs.

    python benchmarks/batches.py bench-q4_0.gguf [--lines 200] [--tokens 64] [--llama-server PATH]

Both sides answer the same prompts, each of its own length, with the end of the answer ruled out, so that every answer
has the same number of tokens. The journal's cost is the time that the batch waited for it, fsync every second included;
with the built-in model, whose lines take the least time, it weighs the most.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

from harness import Row, alternate, end_tokens, report, words

from leap_core.batch.input.line_index import LineIndex, check_lines
from leap_core.batch.input.lines import RequestReader
from leap_core.batch.input.rows import InputRows
from leap_core.batch.journal.journal import Journal
from leap_core.batch.journal.line_result import LineResult
from leap_core.batch.options import LIMITS
from leap_core.batch.output.output_file import OutputFile
from leap_core.batch.run import Batch
from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
from leap_core.conversation.runner import ModelRunner
from leap_core.models.builtin import model_path
from leap_core.opening import Leap

PORT = 18_099
CONCURRENCY: int = LIMITS["concurrency"].default


class TimedJournal(Journal):
    """A journal that knows how many seconds its batch waited for it."""

    seconds = 0.0

    def append(self, result: LineResult) -> int:
        begun = time.perf_counter()
        place = super().append(result)  # and syncs once a second
        self.seconds += time.perf_counter() - begun
        return place


def prompts(count: int) -> list[str]:
    return [words(8 + 2 * (n % 8), seed=n) for n in range(count)]


def lines_of(texts: Sequence[str], asked: RequestReader) -> LineIndex:
    rows = [json.dumps({"id": f"id-{n}", "prompt": text}).encode() + b"\n" for n, text in enumerate(texts)]
    return check_lines(InputRows("-", stdin=io.BytesIO(b"".join(rows))), asked).index


def reader(model: str, tokens: int) -> RequestReader:
    bias = {token: -1e9 for token in end_tokens(file_of(model))}
    return RequestReader(GenerationOptions(temperature=0.0, max_tokens=tokens, logit_bias=bias))


def file_of(model: str) -> Path:
    return model_path() if model == "builtin" else Path(model)


def batch(
    runner: ModelRunner, lines: LineIndex, asked: RequestReader, concurrency: int, directory: Path
) -> tuple[float, float]:
    """Seconds of one batch with its output and journal in the directory, and those that the journal took of them."""
    journal = TimedJournal(directory / "out.jsonl.journal")
    begun = time.perf_counter()
    sink = OutputFile(directory / "out.jsonl")
    work = Batch(lines, asked, "benchmark", sink, journal, concurrency=concurrency)
    progress = work.run(lambda: nullcontext(runner), threading.Event())
    taken = time.perf_counter() - begun
    assert progress.succeeded == len(lines) and not progress.reused
    journal.close()
    return taken, journal.seconds


def side_by_side(
    model: str, texts: Sequence[str], tokens: int, threads: int, repeat: int
) -> tuple[float, float, float]:
    """Medians of the seconds at the default concurrency, of its journal's, and of those one after another."""
    journalled: list[float] = []
    asked = reader(model, tokens)
    work = lines_of(texts, asked)
    with ExitStack() as stack:
        sides = []
        for concurrency in (CONCURRENCY, 1):
            options = ModelLoadingOptions(slots=concurrency, cpu_threads=threads, context_size=2048)
            runner = stack.enter_context(Leap.load(model, options))

            def timed(lines: LineIndex, runner: ModelRunner = runner, concurrency: int = concurrency) -> float:
                with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
                    taken, in_journal = batch(runner, lines, asked, concurrency, Path(directory))
                if concurrency > 1:
                    journalled.append(in_journal)
                return taken

            timed(work.without(range(2, len(work))))
            sides.append(partial(timed, work))
        journalled.clear()
        together, alone = alternate(repeat, *sides)
    return together, statistics.median(journalled), alone


def rows_for(model: str, texts: Sequence[str], tokens: int, threads: int, repeat: int) -> list[Row]:
    """What batching wins with a model, and what the journal costs."""
    together, in_journal, alone = side_by_side(model, texts, tokens, threads, repeat)
    name = Path(model).name
    claim = f"{name}: {len(texts)} prompts at {CONCURRENCY} against one after another"
    return [
        Row(claim, "one by one (s)", alone, "together (s)", together, ">= 2.5"),
        Row(f"{name}: cost of the journal", "all (s)", together, "but it (s)", together - in_journal, "<= 1.02"),
    ]


def server_seconds(program: Path, model: Path, texts: Sequence[str], tokens: int, threads: int) -> float:
    """The same prompts through llama-server's parallel slots."""
    slots = CONCURRENCY
    command = [str(program), "-m", str(model), "-np", str(slots), "-c", str(slots * 2048), "-t", str(threads)]
    command += ["--port", str(PORT), "--no-webui", "-fa", "on"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for_server()

        def ask(text: str) -> None:
            bias = [[token, False] for token in end_tokens(model)]
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
    parser.add_argument("model", type=Path, help="a GGUF file; benchmarks/make_model.py makes one of LFM2-350M's shape")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer (default 64)")
    parser.add_argument("--threads", type=int, default=2, help="threads of all sides (default 2)")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each side (default 3)")
    parser.add_argument("--llama-server", type=Path, help="the program of llama.cpp")
    given = parser.parse_args()
    texts = prompts(given.lines)
    rows = rows_for(str(given.model.resolve()), texts, given.tokens, given.threads, given.repeat)
    if given.llama_server:
        server = server_seconds(given.llama_server, given.model, texts, given.tokens, given.threads)
        rows.append(Row("against llama-server's slots", "llama-server (s)", server, "leap (s)", rows[0].right, "-"))
    rows += rows_for("builtin", texts, given.tokens // 2, given.threads, given.repeat)
    report("Batches", rows)


if __name__ == "__main__":
    main()
