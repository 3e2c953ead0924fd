"""A chat prompt every few seconds beside a batch, over one model: how long the chat waits for its first token, how fast
the batch is over the rest of the time, and whether each line says what it says alone.

    python benchmarks/priorities.py --model MODEL.gguf

"Before" is the same mix with all requests of one level. Before and after run in turns in one process; the chat on an
idle machine is measured between them. ``--agent-tokens``: an agent asks too, with a prompt of about so many tokens
that is a sentence longer each time; its time is not that of chats. ``--computes-nothing``: the engine of
``engine_overhead.py``, whose texts depend on the order of steps and are not the same twice.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine_overhead import measured

from leap_core import GenerationOptions, Leap, ModelLoadingOptions, ModelRunner
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.priority import BATCH, INTERACTIVE
from leap_core.conversation.responses import Complete
from leap_core.conversation.streams import last_of
from leap_core.inference.runner import InProcessRunner

TOPICS = ("rivers", "bread", "bridges", "owls", "winter", "trains", "salt", "maps", "bees", "glass")
CONTEXT = 2048


@dataclass
class Mix:
    """What was measured in one run."""

    first_tokens: list[float] = field(default_factory=list)
    chat_seconds: float = 0.0
    texts: dict[int, str] = field(default_factory=dict)
    tokens: int = 0
    seconds: float = 0.0
    preemptions: int = 0


def show(name: str, value: float | str) -> None:
    print(f"{name}: {value if isinstance(value, str) else f'{value:.3g}'}", flush=True)


def line(n: int) -> list[ChatMessage]:
    about = TOPICS[n % len(TOPICS)]
    return [ChatMessage("user", f"Number {n}. Write three sentences about {about} for a book of {about}.")]


def options(seed: int, tokens: int, priority: int) -> GenerationOptions:
    return GenerationOptions(temperature=0.7, rng_seed=seed, max_tokens=tokens, priority=priority)


def chat(runner: ModelRunner, n: int, priority: int = INTERACTIVE) -> tuple[float, float]:
    """Seconds to the first token of a chat, and to its end."""
    prompt = [ChatMessage("user", f"Chat {n}: what is the capital of France, and what is it known for?")]
    return timed(runner, prompt, options(n, 24, priority))


def agent_turn(runner: ModelRunner, n: int, tokens: int, priority: int) -> tuple[float, float]:
    """The same of a turn of an agent."""
    sentence = "The river runs under a bridge of stone, and bread is sold beside it. "
    prompt = [ChatMessage("user", sentence * (tokens // 16) + f"And then came number {n}. " * n)]
    return timed(runner, prompt, options(n, 24, priority))


def timed(runner: ModelRunner, prompt: list[ChatMessage], asked: GenerationOptions) -> tuple[float, float]:
    """Seconds to the first token of an answer, and to its end."""
    start = time.perf_counter()
    first = 0.0
    for response in runner.start(prompt, (), asked):
        first = first or time.perf_counter() - start
        if isinstance(response, Complete):
            break
    return first, time.perf_counter() - start


def batch(runner: ModelRunner, lines: range, threads: int, priority: int, tokens: int) -> Mix:
    """Answer lines, as many at once as ``threads``."""
    mix, left, guard = Mix(), iter(lines), threading.Lock()

    def work() -> None:
        while True:
            with guard:
                n = next(left, None)
            if n is None:
                return
            complete = last_of(runner.start(line(n), (), options(n, tokens, priority)))
            with guard:
                mix.texts[n] = complete.full_message.text
                mix.tokens += complete.stats.completion_tokens if complete.stats is not None else 0

    start = time.perf_counter()
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    mix.seconds = time.perf_counter() - start
    return mix


def mixed(runner: ModelRunner, lines: range, given: argparse.Namespace, priority: int) -> Mix:
    """A batch of this priority, and a chat every few seconds until it ends."""
    over = threading.Event()
    first_tokens: list[float] = []
    busy = 0.0

    def ask() -> None:
        nonlocal busy
        n = 0
        while not over.wait(given.every):
            first, seconds = chat(runner, n)
            first_tokens.append(first)
            busy += seconds
            n += 1

    def work() -> None:
        n = 0
        while given.agent_tokens and not over.wait(given.every):
            agent_turn(runner, n % 20, given.agent_tokens, priority)
            n += 1

    activity = runner.activity()
    before = activity.preemptions if activity is not None else 0
    askers = [threading.Thread(target=ask), threading.Thread(target=work)]
    for asker in askers:
        asker.start()
    mix = batch(runner, lines, given.slots + 2, priority, given.tokens)
    over.set()
    for asker in askers:
        asker.join()
    activity = runner.activity()
    mix.first_tokens, mix.chat_seconds = first_tokens, busy
    mix.preemptions = (activity.preemptions if activity is not None else 0) - before
    return mix


def p95(values: list[float]) -> float:
    return sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)] if values else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=48, help="Most tokens of a line.")
    parser.add_argument("--every", type=float, default=2.0, help="Seconds between two chats.")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--chats", type=int, default=10, help="Chats on an idle machine.")
    parser.add_argument("--agent-tokens", type=int, default=0, help="Of a turn of an agent; 0 for no agent.")
    parser.add_argument("--context-size", type=int, default=CONTEXT)
    parser.add_argument("--computes-nothing", action="store_true")
    given = parser.parse_args()
    loading = ModelLoadingOptions(slots=given.slots, context_size=given.context_size)

    def load() -> ModelRunner:
        if not given.computes_nothing:
            return Leap.load(given.model, loading)
        runner = InProcessRunner(given.model, "model", loading)
        measured(runner)
        return runner

    measure(given, range(given.lines), load)


def measure(given: argparse.Namespace, lines: range, load: Callable[[], ModelRunner]) -> None:
    runner = load()
    idle = [chat(runner, n)[0] for n in range(given.chats)]
    alone = batch(runner, lines, given.slots + 2, BATCH, given.tokens)
    before = mixed(runner, lines, given, INTERACTIVE)
    after = mixed(runner, lines, given, BATCH)
    idle += [chat(runner, n + given.chats)[0] for n in range(given.chats)]
    again = batch(runner, lines, given.slots + 2, BATCH, given.tokens)
    runner.unload()
    speed = (alone.tokens + again.tokens) / (alone.seconds + again.seconds)
    show("first token of a chat on an idle machine, median, s", statistics.median(idle))
    show("the same, p95", p95(idle))
    show("a batch alone, tokens/s", speed)
    for name, mix in (("before", before), ("after", after)):
        rest = mix.tokens / (mix.seconds - min(mix.chat_seconds, mix.seconds * 0.9))
        show(f"{name}: chats", len(mix.first_tokens))
        show(f"{name}: first token of a chat, median, s", statistics.median(mix.first_tokens or [0.0]))
        show(f"{name}: the same, p95", p95(mix.first_tokens))
        show(f"{name}: p95 beside p95 idle", p95(mix.first_tokens) / p95(idle))
        show(f"{name}: seconds of a chat, mean", mix.chat_seconds / max(1, len(mix.first_tokens)))
        show(f"{name}: batch, tokens/s of all the time, beside alone", mix.tokens / mix.seconds / speed)
        show(f"{name}: batch, tokens/s outside of chats, beside alone", rest / speed)
        show(f"{name}: preemptions", mix.preemptions)
        same = sum(mix.texts[n] == alone.texts[n] == again.texts[n] for n in lines)
        show(f"{name}: texts as alone", f"{same} of {len(lines)}")


if __name__ == "__main__":
    main()
