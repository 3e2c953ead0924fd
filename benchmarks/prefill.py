"""Prefill of 1,024 tokens and of a second turn: against llama-bench, and against a full prefill.

python benchmarks/prefill.py bench-q4_0.gguf --llama-cpp DIRECTORY
"""

from __future__ import annotations

from itertools import count

from harness import Row, alternate, answer, arguments, llama_bench, options, report, runner, user, words

from leap_core.conversation.messages import ChatMessage
from leap_core.inference.runner import InProcessRunner

seeds = count(1)


def prefill_speed(model: InProcessRunner, tokens: int) -> float:
    """Prompt tokens a second of a prompt never seen before, to the first sampled token; those that every prompt of the
    model begins with (a default system prompt) are restored and not counted."""
    stats = answer(model, [user(words(tokens, seed=next(seeds)))], options(1)).complete.stats
    assert stats is not None
    return (stats.prompt_tokens - stats.cached_prompt_tokens) / stats.time_to_first_token


def history(seed: int) -> list[ChatMessage]:
    """About 2,000 tokens in eight messages."""
    roles = ("user", "assistant")
    return [ChatMessage(roles[n % 2], words(250, seed=seed * 100 + n)) for n in range(8)]


def turn_times(model: InProcessRunner) -> tuple[float, float, float, float]:
    """Seconds to the first token: the whole history, then going on, regenerating, and editing the last message."""
    first = [*history(next(seeds)), user("and then what happens next")]
    whole = answer(model, first, options(16))
    going_on = answer(model, [*first, whole.complete.full_message, user("tell me more of that")], options(16))
    again = answer(model, first, options(16))
    edited = answer(model, [*first[:-1], user("no wait something else")], options(16))
    return whole.first, going_on.first, again.first, edited.first


def main() -> None:
    given = arguments(__doc__ or "")
    rows = []
    with runner(given.model, threads=given.threads) as model:

        def bench() -> float:
            flags = ("-p", "1024", "-n", "0", "-t", str(given.threads))
            record = llama_bench(given.llama_cpp, given.model, *flags)[0]
            return float(record["avg_ts"])

        sides = [lambda: prefill_speed(model, 1016)] + ([bench] if given.llama_cpp else [])
        ours, *rest = alternate(given.repeat, *sides)
        for theirs in rest:
            rows.append(Row("prefill of 1,024 tokens, tokens/s", "leap", ours, "llama-bench", theirs, ">= 0.97"))
        found = [turn_times(model) for _ in range(given.repeat)]
    middle = [sorted(column)[len(column) // 2] for column in zip(*found, strict=True)]
    for name, seconds in zip(("continue", "regenerate", "edit the last message"), middle[1:], strict=True):
        claim = f"second turn after 2,000 tokens, {name}: seconds to the first token"
        rows.append(Row(claim, "second turn", seconds, "full prefill", middle[0], "<= 0.05"))
    report(f"Prefill, {given.model.name}, {given.threads} threads", rows)


if __name__ == "__main__":
    main()
