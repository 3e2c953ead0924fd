"""Another engine beside the default one: decode and prefill, and of fifty greedy texts those that are equal.

python benchmarks/engines.py model.gguf --engine NAME|DIRECTORY
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness import SHORT, Row, alternate, answer, arguments, options, report, runner, user, words

from leap_core.conversation.options import GenerationOptions

TOKENS = 16 if SHORT else 128
PROMPTS = [
    f"{ask} {thing}."
    for ask in (
        "Explain in two sentences",
        "Write a short poem about",
        "List three facts about",
        "Translate to French:",
    )
    for thing in (
        "the sea",
        "a red fox",
        "bread",
        "the moon",
        "a train",
        "winter",
        "iron",
        "a library",
        "rain",
        "chess",
    )
] + [f"What is {n} times {n + 3}?" for n in range(11, 21)]


def serve(pipe: Connection, engine: str | None, path: Path, threads: int) -> None:
    """Answer questions of the other process over one engine: texts, or speeds."""
    if engine is not None:
        os.environ["LEAP_ENGINE"] = engine
    else:
        os.environ.pop("LEAP_ENGINE", None)
    with runner(path, threads=threads) as model:
        while (asked := _next(pipe)) is not None:
            kind, text = asked
            if kind == "text":
                greedy = GenerationOptions(temperature=0.0, max_tokens=TOKENS // 2)
                pipe.send(answer(model, [user(text)], greedy).complete.full_message.text)
                continue
            stats = answer(model, [user(text)], options(TOKENS if kind == "decode" else 1)).complete.stats
            assert stats is not None
            prefill = (stats.prompt_tokens - stats.cached_prompt_tokens) / stats.time_to_first_token
            pipe.send(stats.token_per_second if kind == "decode" else prefill)


def _next(pipe: Connection) -> tuple[str, str] | None:
    """What is asked next; None once the other end is closed."""
    try:
        asked: tuple[str, str] = pipe.recv()
    except EOFError:
        return None
    return asked


class Side:
    """One engine in a process of its own."""

    def __init__(self, engine: str | None, path: Path, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=serve, args=(there, engine, path, threads), daemon=True)
        self._process.start()
        there.close()
        self.name = engine or "default"
        self.ask("text", "Hello")

    def ask(self, kind: str, text: str) -> Any:
        try:
            self._pipe.send((kind, text))
            return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            sys.exit(f"engines.py: the engine {self.name} ended with exit code {self._process.exitcode}")


def main() -> None:
    given = arguments(__doc__ or "", engine={"required": True, "help": "a name of leap engine list, or a folder"})
    default, other = (Side(name, given.model, given.threads) for name in (None, given.engine))
    rows, label = [], Path(given.engine).name
    for kind, depth in (("decode", 8), ("decode", 512), ("prefill", 1016)):
        counter = iter(range(10_000))
        sides = [partial(_speed, side, kind, depth, counter) for side in (other, default)]
        ours, theirs = alternate(given.repeat, *sides)
        claim = f"{kind} at {depth} tokens, tokens/s"
        rows.append(Row(claim, label, ours, "default", theirs, "reported"))
    report(f"Engines, {given.model.name}, {given.threads} threads", rows)
    prompts = PROMPTS[: 4 if SHORT else len(PROMPTS)]
    pairs = [(prompt, *(side.ask("text", prompt) for side in (default, other))) for prompt in prompts]
    different = [(prompt, *texts) for prompt, *texts in pairs if texts[0] != texts[1]]
    print(f"\n{len(pairs) - len(different)} of {len(pairs)} greedy texts are equal")
    for prompt, first, second in different:
        place = next((n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
        start = min(len(first), len(second)) if place is None else place
        print(
            f"  {prompt!r}: from character {start} on {first[start : start + 24]!r} and {second[start : start + 24]!r}"
        )


def _speed(side: Side, kind: str, depth: int, counter: Any) -> float:
    return float(side.ask(kind, words(depth, seed=next(counter) if kind == "prefill" else 0)))


if __name__ == "__main__":
    main()
