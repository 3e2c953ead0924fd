"""How fast a loaded model is on this machine: the same short work for every model."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ..errors import GenerationStats, LeapGenerationError
from ..system.dataclass import dataclass
from .options import GenerationOptions
from .responses import Complete
from .runner import ModelRunner
from .streams import last_of

PROMPT, SHORT_PROMPT, ANSWER = 512, 32, 64
"""Tokens of the long prompt, of a short one and of an answer."""
TOGETHER = 8
"""Answers at once; the runner needs as many slots, and a context of ``CONTEXT`` tokens."""
CONTEXT = 1024


@dataclass(frozen=True)
class Speed:
    """Tokens a second: ``prefill`` of a prompt of 512 tokens, ``decode`` of one answer, ``batch`` of eight answers at
    once together, prompts included. ``first_token``: seconds to the first token of an answer to a prompt of 32."""

    prefill: float
    decode: float
    batch: float
    first_token: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(runner: ModelRunner, repeat: int = 3, on_step: Callable[[str], object] = lambda step: None) -> Speed:
    """Medians of ``repeat`` measurements. The prompts are random tokens, so nothing of one is found in the cache for
    the next, and what would end an answer is ruled out."""
    bench = _Bench(runner)
    bench.answer(SHORT_PROMPT, 2)  # the first one pays for what is made at first use
    found: dict[str, list[float]] = {"prefill": [], "decode": [], "batch": [], "first_token": []}
    for n in range(repeat):
        on_step(f"measuring {runner.model_id}: {n + 1} of {repeat}")
        stats = bench.answer(PROMPT, 1)
        computed = stats.prompt_tokens - stats.cached_prompt_tokens
        found["prefill"].append(computed / stats.time_to_first_token)
        stats = bench.answer(SHORT_PROMPT, ANSWER)
        found["decode"].append(stats.token_per_second)
        found["first_token"].append(stats.time_to_first_token)
        found["batch"].append(bench.together())
    return Speed(**{name: statistics.median(values) for name, values in found.items()})


class _Bench:
    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._words = runner.tokenize("The quick brown fox jumps over the lazy dog while seven rivers run to the sea")
        self._chance = random.Random(1)

    def answer(self, prompt: int, length: int) -> GenerationStats:
        """One answer to a new prompt of so many tokens."""
        stats = self._end(self._start(prompt, length)).stats
        if stats is None:
            raise LeapGenerationError(f"{self._runner.model_id} counts no tokens")
        return stats

    def together(self) -> float:
        """Tokens a second of several answers at once."""
        began = time.perf_counter()
        streams = [self._start(SHORT_PROMPT, ANSWER // 2) for _ in range(TOGETHER)]
        ends = [self._end(stream) for stream in streams]
        tokens = sum(end.stats.completion_tokens for end in ends if end.stats is not None)
        return tokens / (time.perf_counter() - began)

    def _start(self, prompt: int, length: int) -> Any:
        tokens: Sequence[int] = self._chance.choices(self._words, k=prompt)
        options = GenerationOptions(max_tokens=length, rng_seed=1, ignore_eos=True)
        return self._runner.start_text(tokens, options)

    def _end(self, stream: Any) -> Complete:
        return last_of(stream)
