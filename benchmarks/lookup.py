"""What prompt lookup brings: answers that return their prompt with small changes, that quote it, and that share nothing
with it, with and without. The texts are set, since the model's weights are random; sampling costs what it always does.

    python benchmarks/lookup.py bench-q4_0.gguf --threads 1

Tokens a second of processor time: with one thread other processes change it little.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from harness import Row, alternate, arguments, report, sized

from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
from leap_core.inference.engine.repetition import PromptLookup
from leap_core.inference.engine.request import PromptTokens, Request, SequenceEnd, Tokens
from leap_core.inference.engine.sampler import RUNTIME_DEFAULTS, Sampler
from leap_core.inference.runner import InProcessRunner

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from leap_core.inference.constraints.token_constraints import TokenConstraint

PROMPT, TOKENS = 256, sized(160)
COMMON = 3000
"""Tokens that make up a text, the first ones more often than the later ones, as words do."""


class Given(Sampler):
    """Samples like any, and says a given text."""

    def __init__(self, text: list[int]) -> None:
        super().__init__(GenerationOptions(rng_seed=1).with_defaults(RUNTIME_DEFAULTS))
        self._text = iter(text)

    def sample(self, logits: NDArray[float32], constraint: TokenConstraint | None = None) -> int:
        super().sample(logits, constraint)
        return next(self._text)


def text(dice: random.Random, count: int, common: int) -> list[int]:
    return [100 + min(common, int(dice.paretovariate(0.6))) for _ in range(count)]


def cases(dice: random.Random, prompt: list[int], common: int) -> dict[str, list[int]]:
    """Answers by kind."""
    fresh = text(dice, TOKENS, common)
    edited = [token if dice.random() > 0.06 else fresh[n] for n, token in enumerate(prompt[:TOKENS])]
    quoting = [token if n // 24 % 2 else fresh[n] for n, token in enumerate(prompt[:TOKENS])]
    return {"an edited text": edited, "quotations": quoting, "nothing of the prompt": fresh}


def main() -> None:
    settings = arguments(__doc__ or "")
    rows = []
    with (
        InProcessRunner(settings.model, "plain", loading(settings.threads, lookup=False)) as plain,
        InProcessRunner(settings.model, "lookup", loading(settings.threads, lookup=True)) as looking,
    ):
        assert isinstance(plain, InProcessRunner) and isinstance(looking, InProcessRunner)
        dice = random.Random(1)
        common = min(COMMON, plain.model.n_tokens - 200)
        prompt = text(dice, PROMPT, common)
        for name, answer in cases(dice, prompt, common).items():

            def speed(runner: InProcessRunner, lookup: bool, answer: list[int] = answer) -> float:
                request = Request(
                    PromptTokens((Tokens(tuple(prompt)),)),
                    Given(answer),
                    max_tokens=TOKENS,
                    lookup=PromptLookup() if lookup else None,
                )
                runner.scheduler.submit(request)
                first = request.events.get()
                assert not isinstance(first, SequenceEnd), first.error
                start = time.process_time()
                while not isinstance(request.events.get(), SequenceEnd):
                    pass
                return (TOKENS - 1) / (time.process_time() - start)

            sides = (lambda speed=speed: speed(looking, True)), (lambda speed=speed: speed(plain, False))
            ours, theirs = alternate(settings.repeat, *sides)
            target = ">= 1.3" if name == "an edited text" else ">= 0.97"
            rows.append(Row(f"{name}, tokens/s of processor time", "lookup", ours, "plain", theirs, target))
    report(f"Prompt lookup, {settings.model.name}, {settings.threads} threads", rows)


def loading(threads: int, *, lookup: bool) -> ModelLoadingOptions:
    return ModelLoadingOptions(context_size=1024, cpu_threads=threads, slots=1, prompt_lookup=lookup)


if __name__ == "__main__":
    main()
