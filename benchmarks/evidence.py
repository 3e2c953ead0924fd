"""What evidence costs: extraction from the same texts with places and confidences and without, side by side.

    python benchmarks/evidence.py LFM2.5-350M.gguf

Without randomness the answers are equal, and only the time differs. Each extraction reads its whole text, which begins
with a number of its own, so that nothing computed before is used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

from harness import Row, alternate, arguments, report, runner, sized, user

from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.runner import ModelRunner
from leap_core.tasks.task_fields import read_task

TARGET = "<= 1.05"
SCHEMA = "name, city, date, total int, customer, number int"
FILLER = "The weather was fine and nothing else was said about the matter of the day. "
TEXT = (
    "number: {number}\ncustomer: Ann Lindberg\n"
    + "{filler}"
    + "\nAnn Lindberg of Oslo paid on 3 May 2026.\ntotal: 4711\n"
)
SAME = GenerationOptions(temperature=0.0, max_tokens=96, complete_json=True)


def sides(
    model: ModelRunner, filler: str, numbers: Iterator[int], *, evidence: bool
) -> tuple[Callable[[], float], Callable[[], float]]:
    """Seconds of one extraction on the clock, and of the processor."""
    task, _ = read_task({"task": "extract", "schema": SCHEMA, "evidence": evidence})

    def measured(clock: Callable[[], float]) -> Callable[[], float]:
        def extract() -> float:
            text = TEXT.format(number=next(numbers), filler=filler)
            started = clock()
            task.complete(model, user(text), name="text", overrides=SAME)
            return clock() - started

        return extract

    return measured(time.perf_counter), measured(time.process_time)


def main() -> None:
    given = arguments(__doc__ or "")
    rows, numbers = [], count(1000)
    with runner(given.model, threads=given.threads, context=8192) as model:
        for name, size in (("a sentence", 0), ("1 kB", 1000), ("5 kB", 5000)):
            filler = FILLER * (sized(size) // len(FILLER))
            with_it, without = (sides(model, filler, numbers, evidence=evidence) for evidence in (True, False))
            without[0]()
            for kind, unit in ((0, "s"), (1, "CPU s")):
                left, right = alternate(given.repeat, with_it[kind], without[kind])
                rows.append(Row(f"{name}, {unit}", "with evidence", left, "without", right, TARGET))
    report("Evidence", rows)


if __name__ == "__main__":
    main()
