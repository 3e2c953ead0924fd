"""Sixteen requests at once against one after another, against llama-batched-bench, and a shared prefix.

python benchmarks/parallel.py bench-q4_0.gguf --llama-cpp DIRECTORY
"""

from __future__ import annotations

import threading
import time
from itertools import count

from harness import (
    Row,
    alternate,
    answer,
    arguments,
    llama_batched_bench,
    options,
    report,
    runner,
    sized,
    user,
    words,
)

from leap_core.conversation.messages import ChatMessage
from leap_core.inference.runner import InProcessRunner

AT_ONCE, PROMPT, REPLY = 16, 64, sized(64)
TEMPLATE = 12
"""Tokens of a prompt that are the chat template's."""
SHARING, PREFIX = sized(64), 500
seeds = count(1)


def all_at_once(model: InProcessRunner, prompts: list[list[ChatMessage]], reply: int) -> tuple[float, int]:
    """Seconds, and computed prompt tokens, of all prompts from as many threads."""
    computed = []

    def one(messages: list[ChatMessage]) -> None:
        stats = answer(model, messages, options(reply)).complete.stats
        assert stats is not None
        computed.append(stats.prompt_tokens - stats.cached_prompt_tokens)

    threads = [threading.Thread(target=one, args=(prompt,)) for prompt in prompts]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started, sum(computed)


def fresh_prompts() -> list[list[ChatMessage]]:
    return [[user(words(PROMPT - TEMPLATE, seed=next(seeds)))] for _ in range(AT_ONCE)]


def main() -> None:
    given = arguments(__doc__ or "")
    rows = []
    with runner(given.model, threads=given.threads, slots=AT_ONCE, context=1024) as model:

        def together() -> float:
            return AT_ONCE * REPLY / all_at_once(model, fresh_prompts(), REPLY)[0]

        def one_by_one() -> float:
            started = time.perf_counter()
            for prompt in fresh_prompts():
                answer(model, prompt, options(REPLY))
            return AT_ONCE * REPLY / (time.perf_counter() - started)

        def batched_bench(*more: str) -> float:
            sizes = {"at_once": AT_ONCE, "prompt": PROMPT, "reply": REPLY}
            record = llama_batched_bench(given.llama_cpp, given.model, "-t", str(given.threads), *more, **sizes)
            return AT_ONCE * REPLY / float(record["t"])

        def one_cache() -> float:
            return batched_bench("-kvu")  # laid out as leap's, so that prompts can share what begins alike

        sides = [together, one_by_one] + ([batched_bench, one_cache] if given.llama_cpp else [])
        ours, alone, *rest = alternate(given.repeat, *sides)
        claim = f"{AT_ONCE} requests of {PROMPT}+{REPLY} tokens, answer tokens/s, prompts included"
        rows.append(Row(claim, "at once", ours, "one by one", alone, ">= 2.7"))
        if rest:
            rows.append(Row(claim, "at once", ours, "llama-batched-bench", rest[0], ">= 0.95"))
            rows.append(Row(claim, "at once", ours, "llama-batched-bench -kvu", rest[1], ">= 0.95"))
    with runner(given.model, threads=given.threads, slots=AT_ONCE, context=1024) as model:
        system = ChatMessage("system", words(PREFIX, seed=4242))
        size = model.get_prompt_tokens_size([system])
        prompts = [[system, user(words(16, seed=next(seeds)))] for _ in range(SHARING)]
        shared, computed = all_at_once(model, prompts, 4)
        apart = [[ChatMessage("system", words(PREFIX, seed=next(seeds))), prompt[1]] for prompt in prompts]
        separate, all_computed = all_at_once(model, apart, 4)
        print(
            f"\n{SHARING} requests, prefix of about {size} tokens: computed {computed} tokens, without sharing "
            f"{all_computed}"
        )
        rows.append(Row(f"{SHARING} requests with one prefix, seconds", "shared", shared, "apart", separate, "< 1"))
        rows.append(Row("computed prompt tokens", "shared", computed, "apart", all_computed, "< 1"))
    report(f"Parallel, {given.model.name}, {given.threads} threads", rows)


if __name__ == "__main__":
    main()
