"""What the engine's benchmarks share: the model, prompts of an exact length, timing, and the table with both sides.

Every ratio is measured side by side in one run: the two sides take turns, and the medians are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for what benchmarks take from tests and scripts

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import CacheOptions, GenerationOptions, ModelLoadingOptions
from leap_core.conversation.responses import Complete, MessageResponse
from leap_core.conversation.runner import ModelRunner
from leap_core.inference.llama.model import LlamaModel
from leap_core.inference.runner import InProcessRunner

SHORT = bool(os.environ.get("LEAP_BENCHMARK_SHORT"))
"""Whether it only has to run, with nothing measured that is worth anything: as the suite does with every benchmark."""
_ends: dict[Path, frozenset[int]] = {}


def sized(count: int) -> int:
    """``count``, or what is left of it in the short form."""
    return max(2, count // 32) if SHORT else count


def arguments(description: str, **extra: dict[str, Any]) -> argparse.Namespace:
    """The command line of a benchmark: the model, repetitions, and where llama.cpp's own programs lie."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF file; benchmarks/make_model.py makes one of LFM2-350M's shape")
    parser.add_argument("--repeat", type=int, default=1 if SHORT else 5, help="measurements of each side (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="threads of both sides (default 2)")
    parser.add_argument("--llama-cpp", type=Path, help="directory of llama-bench and llama-batched-bench")
    for name, settings in extra.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    given = parser.parse_args()
    end_tokens(given.model)
    return given


def end_tokens(model: Path) -> frozenset[int]:
    """The tokens that end an answer of the model; of those read so far ``options`` rules them out."""
    if model not in _ends:
        loaded = LlamaModel(model)
        _ends[model] = loaded.eog_tokens
        loaded.close()
    return _ends[model]


@contextmanager
def runner(
    model: Path,
    *,
    threads: int | None,
    slots: int = 1,
    context: int = 4096,
    cache: CacheOptions | None = None,
    **more: Any,
) -> Iterator[InProcessRunner]:
    """The model in this process; ``more`` are other fields of ModelLoadingOptions."""
    end_tokens(model)
    context = min(context, 2048) if SHORT else context
    options = ModelLoadingOptions(
        context_size=context, cpu_threads=threads, slots=slots, cache_options=cache or CacheOptions(), **more
    )
    with InProcessRunner(model, "benchmark", options) as loaded:
        assert isinstance(loaded, InProcessRunner)
        yield loaded


def words(tokens: int, seed: int = 0) -> str:
    """``tokens`` tokens of text, give or take one, in the vocabulary of make_model.py's models: a word and a space are
    two. In others it is about as many. Fewer in the short form."""
    tokens = sized(tokens)
    rng = random.Random(seed)
    return " ".join("".join(rng.choices(string.ascii_lowercase, k=2)) for _ in range(max(1, tokens // 2)))


def options(max_tokens: int, **given: Any) -> GenerationOptions:
    """Default sampling, with the end of the answer ruled out so that every run has the same length."""
    return GenerationOptions(
        max_tokens=max_tokens,
        logit_bias={token: -1e9 for ends in _ends.values() for token in ends},
        rng_seed=1,
        **given,
    )


@dataclass
class Answer:
    """One timed answer. Times are seconds from the request on."""

    first: float
    total: float
    complete: Complete

    @property
    def decode_speed(self) -> float:
        """Tokens a second after the first."""
        assert self.complete.stats is not None
        return self.complete.stats.token_per_second


def answer(model: ModelRunner, messages: Sequence[ChatMessage], asked: GenerationOptions) -> Answer:
    """Generate through the whole public path, ``Conversation.generate_response``."""
    conversation = model.create_conversation_from_history(messages[:-1])
    started = time.perf_counter()
    first = 0.0
    last: MessageResponse | None = None
    for response in conversation.generate_response(messages[-1], asked):
        first = first or time.perf_counter() - started
        last = response
    assert isinstance(last, Complete)
    return Answer(first, time.perf_counter() - started, last)


def user(text: str) -> ChatMessage:
    """A user's message."""
    return ChatMessage("user", text)


def alternate(repeat: int, *sides: Callable[[], float]) -> list[float]:
    """Medians of what the sides return, measured in turns."""
    found: list[list[float]] = [[] for _ in sides]
    for _ in range(repeat):
        for values, side in zip(found, sides, strict=True):
            values.append(side())
    return [statistics.median(values) for values in found]


@dataclass
class Row:
    """One claim: both sides, and their ratio against its target."""

    claim: str
    left_name: str
    left: float
    right_name: str
    right: float
    target: str
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    """Of the machine, over the minute before both sides were measured to their end."""

    @property
    def ratio(self) -> float:
        return self.left / self.right


def figure(value: float, form: str) -> str:
    """A number, or a dash where nothing was measured."""
    return "-" if math.isnan(value) else format(value, form)


def report(title: str, rows: Sequence[Row]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| claim | one side | other side | ratio | target | load |\n|---|---|---|---|---|---|")
    for row in rows:
        sides = f"{row.left_name}: {row.left:.4g} | {row.right_name}: {figure(row.right, '.4g')}"
        print(f"| {row.claim} | {sides} | {figure(row.ratio, '.3f')} | {row.target} | {row.load:.1f} |", flush=True)


def llama_bench(directory: Path, model: Path, *flags: str) -> list[dict[str, Any]]:
    """Run llama-bench and return its records."""
    command = [str(directory / "llama-bench"), "-m", str(model), "-o", "json", "-fa", "1", "-r", "1", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    records = json.loads(done.stdout)
    assert isinstance(records, list)
    return records


def llama_batched_bench(
    directory: Path, model: Path, *flags: str, at_once: int, prompt: int, reply: int
) -> dict[str, Any]:
    """Run llama-batched-bench once and return its record."""
    context = max(4096, at_once * -(-(prompt + reply) // 256) * 256)
    sizes = f"-c {context} -b 2048 -ub 512 -npp {prompt} -ntg {reply} -npl {at_once} -fa on --output-format jsonl"
    command = [str(directory / "llama-batched-bench"), "-m", str(model), *sizes.split(), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    record = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert isinstance(record, dict)
    return record


@contextmanager
def leap_serve(model: str = "builtin", *options: str) -> Iterator[str]:
    """The base URL of a server of a model."""
    command = [sys.executable, "-m", "leap_cli", "serve", model, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
