"""What choosing the number of threads while running costs and brings: leap's governor against two threads always, on
one loaded model, in turns; at several depths, and while another process takes a core.

    python benchmarks/threads.py bench-q4_0.gguf
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness import SHORT, Row, alternate, answer, arguments, options, report, runner, sized, user, words

from leap_core.inference.engine.threads import ThreadGovernor
from leap_core.inference.runner import InProcessRunner

TOKENS = sized(128)
DEPTHS = (0, 512) if SHORT else (0, 512, 2048, 4096)


class FixedThreads(ThreadGovernor):
    """As many as there may be, always."""

    def threads_for_long_step(self) -> int:
        return self.threads

    def observe(self, size: int, seconds: float, computing: float) -> None:
        """Nothing is learnt."""


def spin() -> None:
    while True:
        pass


@contextmanager
def busy_core() -> Iterator[None]:
    """Another process that computes."""
    process = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    process.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        process.kill()
        process.join()


def main() -> None:
    settings = arguments(__doc__ or "")
    rows = []
    with runner(settings.model, threads=settings.threads, context=5000) as model:
        governor = ThreadGovernor(settings.threads)
        fixed = FixedThreads(settings.threads, free=lambda cores: cores)

        def speed(chosen: ThreadGovernor, text: str, tokens: int = TOKENS) -> float:
            model.scheduler._governor = chosen
            return answer(model, [user(text)], options(tokens)).decode_speed

        for depth in DEPTHS:
            text = words(max(8, depth))
            speed(fixed, text, 2)  # the prompt is read once
            ours, theirs = alternate(
                settings.repeat, lambda text=text: speed(governor, text), lambda text=text: speed(fixed, text)
            )
            rows.append(Row(f"decode at depth {depth}, tokens/s", "governor", ours, "fixed", theirs, ">= 0.98"))
        rows += with_a_busy_core(model, governor, fixed, settings.repeat)
    report(f"Threads, {settings.model.name}, {settings.threads} threads", rows)


def with_a_busy_core(model: InProcessRunner, governor: ThreadGovernor, fixed: ThreadGovernor, repeat: int) -> list[Row]:
    """Both while another process takes a core, and with none."""

    def speed(chosen: ThreadGovernor) -> float:
        model.scheduler._governor = chosen
        return answer(model, [user(words(8))], options(TOKENS)).decode_speed

    def busy(chosen: ThreadGovernor) -> float:
        with busy_core():
            return speed(chosen)

    quiet, ours, theirs = alternate(repeat, lambda: speed(fixed), lambda: busy(governor), lambda: busy(fixed))
    claim = "decode while another process takes a core, tokens/s"
    return [
        Row(claim, "governor", ours, "quiet", quiet, ">= 0.6"),
        Row(claim, "governor", ours, "fixed", theirs, "> 1"),
    ]


if __name__ == "__main__":
    main()
