"""Tokens embedded a second: leap against llama-bench, and against llama.cpp's calls made by hand.

    python benchmarks/make_model.py encoder-q4_0.gguf --pooling cls
    python benchmarks/embedding.py encoder-q4_0.gguf --llama-cpp DIRECTORY

leap's side is ``EmbeddingRunner.embed`` from text to unit vectors; llama-bench (``-p N -embd 1``) and the calls by hand
(``llama_decode`` over batches of the same tokens) only compute.
"""

from __future__ import annotations

import os
import time

from harness import Row, alternate, arguments, llama_bench, report, words

from leap_core.conversation.options import ModelLoadingOptions
from leap_core.inference.embedding_runner import InProcessEmbeddingRunner
from leap_core.inference.llama.embedding_context import EmbeddingContext

MOST_TOKENS = 512
SIZES = (512, 64)
"""Tokens of a text."""


def text_of(size: int, seed: int, runner: InProcessEmbeddingRunner) -> str:
    """A text of ``size`` tokens at most, and few less."""
    text = words(2 * size, seed)
    while (count := runner.count_tokens([text])[0]) > size:
        text = text[: int(len(text) * size / count)].rstrip()
    return text


def processor_seconds() -> float:
    """Of this process and of the programs that it has run."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    given = arguments(
        __doc__ or "",
        tokens={"type": int, "default": 2048, "help": "of all texts of a measurement together (default 2048)"},
        processor_time={"action": "store_true", "help": "by processor seconds: for a machine that others use too"},
    )
    clock = processor_seconds if given.processor_time else time.perf_counter
    options = ModelLoadingOptions(cpu_threads=given.threads, context_size=MOST_TOKENS)
    with InProcessEmbeddingRunner(given.model, "benchmark", options) as runner:
        pooling = runner.model.pooling or "mean"
        by_hand = EmbeddingContext(
            runner.model, pooling=pooling, most_tokens=MOST_TOKENS, most_texts=32, threads=given.threads
        )
        for size in SIZES:
            texts = [text_of(size, seed, runner) for seed in range(given.tokens // size)]
            tokens = [runner.model.tokenize(text, parse_special=False, add_special=True) for text in texts]
            total = sum(map(len, tokens))
            calls = [tokens[n : n + MOST_TOKENS // size] for n in range(0, len(tokens), MOST_TOKENS // size)]

            def leap(texts: list[str] = texts, total: int = total) -> float:
                begun = clock()
                runner.embed_tokens(texts) if pooling == "none" else runner.embed(texts)
                return total / (clock() - begun)

            def hand(calls: list[list[list[int]]] = calls, total: int = total) -> float:
                begun = clock()
                for call in calls:
                    by_hand.embed(call)
                return total / (clock() - begun)

            def bench(size: int = size) -> float:
                """The model's loading and the warm-up are taken off by a run of fewer repetitions."""
                flags = ("-p", str(size), "-n", "0", "-t", str(given.threads), "-embd", "1")
                if not given.processor_time:
                    return float(llama_bench(given.llama_cpp, given.model, *flags)[0]["avg_ts"])
                more, seconds = max(1, given.tokens // size), []
                for repetitions in (1, 1 + more):
                    begun = clock()
                    llama_bench(given.llama_cpp, given.model, *flags, "-r", str(repetitions))
                    seconds.append(clock() - begun)
                return more * size / (seconds[1] - seconds[0])

            leap()
            sides = [leap, hand, *([bench] if given.llama_cpp else [])]
            ours, *others = alternate(given.repeat, *sides)
            rows = [
                Row(f"texts of {size} tokens, tokens/s", "leap", ours, name, theirs, ">= 0.9")
                for name, theirs in zip(("calls by hand", "llama-bench"), others, strict=False)
            ]
            report(f"Embeddings, {given.model.name}, {pooling}, {given.threads} threads", rows)
        by_hand.close()


if __name__ == "__main__":
    main()
