"""What probabilities cost: decoding one sequence with ``top_logprobs=5`` against the same without, side by side.

    python benchmarks/logprobs.py bench-q4_0.gguf

Three measures: tokens a second on the clock; the processor's time a token, which other programs disturb less; and the
part of it that noting the probabilities takes, alone, which they hardly disturb.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from harness import Row, alternate, answer, arguments, options, report, runner, sized, user, words

from leap_core.conversation.runner import ModelRunner
from leap_core.inference.engine.sampler import ScoreRecorder

TOKENS = sized(128)
DEPTH = 256


def sides(model: ModelRunner, top: int | None) -> tuple[Callable[[], float], Callable[[], float]]:
    """Answers of one kind: their speed, and their processor time a token in milliseconds."""
    asked = options(TOKENS, temperature=0.0) if top is None else options(TOKENS, temperature=0.0, top_logprobs=top)

    def speed() -> float:
        return answer(model, [user(words(DEPTH))], asked).decode_speed

    def processor_time() -> float:
        started = time.process_time()
        answer(model, [user(words(DEPTH))], asked)
        return (time.process_time() - started) * 1000 / TOKENS

    return speed, processor_time


def noting(vocabulary: int) -> float:
    """Milliseconds of the processor for one token's five likeliest and its own probability."""
    logits = np.random.default_rng(1).normal(0, 4, (20, vocabulary)).astype(np.float32)
    recorder = ScoreRecorder(5)
    times = []
    for _ in range(20):
        started = time.process_time()
        for row in logits:
            recorder.before_mask(row)
            recorder.chosen(7, None)
        times.append((time.process_time() - started) * 1000 / len(logits))
    return statistics.median(times)


def main() -> None:
    given = arguments(__doc__ or "")
    with runner(given.model, threads=given.threads) as model:
        plain, scored = sides(model, None), sides(model, 5)
        plain[0](), scored[0]()
        alone = noting(model.model.n_tokens)
        with_speed, speed = alternate(given.repeat, scored[0], plain[0])
        with_time, processor = alternate(given.repeat, scored[1], plain[1])
    rows = [
        Row("decoding, tokens a second", "top_logprobs=5", with_speed, "without", speed, ">= 0.95"),
        Row("processor time a token, ms", "top_logprobs=5", with_time, "without", processor, "<= 1.05"),
        Row("noting alone, ms a token", "noting", alone, "decoding", processor, "<= 0.05"),
    ]
    report(f"Probabilities, {given.model.name}, {given.threads} threads", rows)


if __name__ == "__main__":
    main()
