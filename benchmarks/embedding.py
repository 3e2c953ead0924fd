"""Tokens embedded a second: leap against llama-bench, and against llama.cpp's calls made by hand.

    python benchmarks/make_model.py encoder-q4_0.gguf --pooling cls
    python benchmarks/embedding.py encoder-q4_0.gguf --llama-cpp DIRECTORY

leap's side is ``EmbeddingRunner.embed`` from text to unit vectors; llama-bench (``-p N -embd 1``) and the calls by hand
(``llama_decode`` over batches of the same tokens) only compute.
"""

from __future__ import annotations

import time

from harness import Row, alternate, arguments, llama_bench, report, words

from leap_core.in_process.embedding_runner import InProcessEmbeddingRunner
from leap_core.llama.embedding_context import EmbeddingContext
from leap_core.options import ModelLoadingOptions

MOST_TOKENS = 512
SIZES = (512, 64)
"""Tokens of a text."""
TOKENS = 2048
"""Of all texts of a measurement together."""


def text_of(size: int, seed: int, runner: InProcessEmbeddingRunner) -> str:
    """A text of ``size`` tokens at most, and few less."""
    text = words(2 * size, seed)
    while (count := runner.count_tokens([text])[0]) > size:
        text = text[: int(len(text) * size / count)].rstrip()
    return text


def main() -> None:
    given = arguments(__doc__ or "")
    options = ModelLoadingOptions(cpu_threads=given.threads, context_size=MOST_TOKENS)
    with InProcessEmbeddingRunner(given.model, "benchmark", options) as runner:
        pooling = runner.model.pooling or "mean"
        by_hand = EmbeddingContext(
            runner.model, pooling=pooling, most_tokens=MOST_TOKENS, most_texts=32, threads=given.threads
        )
        for size in SIZES:
            texts = [text_of(size, seed, runner) for seed in range(TOKENS // size)]
            tokens = [runner.model.tokenize(text, parse_special=False, add_special=True) for text in texts]
            total = sum(map(len, tokens))
            calls = [tokens[n : n + MOST_TOKENS // size] for n in range(0, len(tokens), MOST_TOKENS // size)]

            def leap(texts: list[str] = texts, total: int = total) -> float:
                begun = time.perf_counter()
                runner.embed_tokens(texts) if pooling == "none" else runner.embed(texts)
                return total / (time.perf_counter() - begun)

            def hand(calls: list[list[list[int]]] = calls, total: int = total) -> float:
                begun = time.perf_counter()
                for call in calls:
                    by_hand.embed(call)
                return total / (time.perf_counter() - begun)

            def bench(size: int = size) -> float:
                flags = ("-p", str(size), "-n", "0", "-t", str(given.threads), "-embd", "1")
                return float(llama_bench(given.llama_cpp, given.model, *flags)[0]["avg_ts"])

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
