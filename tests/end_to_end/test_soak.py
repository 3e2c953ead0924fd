"""Many requests of mixed length over one model, some cancelled, some seeded: every answer is the one it gives alone."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from leap_core import Complete, GenerationFinishReason, GenerationOptions, Leap, ModelLoadingOptions, ModelRunner
from tests.support.lengths import lengths

SLOTS = 8
SYSTEMS = (None, "You are a helpful assistant.", "Answer in one sentence, and be kind.")
QUESTIONS = (
    "What is the capital of {country}?",
    "Repeat after me: {words}",
    "Count to {number}.",
    "My name is {name}. Nice to meet you!",
    "What is {number} + 17?",
    "Extract the person: {name} is {number} years old and lives in {country}.",
)

Request = tuple[str | None, str, GenerationOptions]


def requests(count: int) -> list[Request]:
    rng = random.Random(12)
    made = []
    for n in range(count):
        text = rng.choice(QUESTIONS).format(
            country=rng.choice(("France", "Japan", "Kenya", "Peru")),
            words=" ".join(rng.choices(("red", "green", "lamp", "river", "seven"), k=rng.randrange(2, 12))),
            number=rng.randrange(3, 90),
            name=rng.choice(("Ada", "Bo", "Chidi")),
        )
        sampling = {"temperature": 0.7, "rng_seed": n} if n % 5 == 0 else {"temperature": 0.0}
        options = GenerationOptions(max_tokens=rng.randrange(5, 160), **sampling)  # type: ignore[arg-type]
        made.append((rng.choice(SYSTEMS), text, options))
    return made


def answer(runner: ModelRunner, request: Request, stop_after: int = 0) -> Complete:
    system, text, options = request
    stream = runner.create_conversation(system).generate_response(text, options)
    for n, response in enumerate(stream, 1):
        if n == stop_after:
            stream.stop()
        if isinstance(response, Complete):
            return response
    raise AssertionError("the stream ended without Complete")


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(600)
@lengths(24, 200, "count")
def test_every_answer_equals_the_one_generated_alone(count: int) -> None:
    asked = requests(count)
    with Leap.load("builtin", ModelLoadingOptions(slots=1, cpu_threads=1)) as alone:
        expected = [answer(alone, request).full_message for request in asked]
    found: dict[int, Complete] = {}
    stops = {n: random.Random(n).randrange(1, 12) for n in range(0, count, 6)}
    memory: list[int] = []
    queue = list(enumerate(asked))
    guard = threading.Lock()

    with Leap.load("builtin", ModelLoadingOptions(slots=SLOTS, cpu_threads=1)) as runner:

        def work() -> None:
            while True:
                with guard:
                    if not queue:
                        return
                    n, request = queue.pop(0)
                found[n] = answer(runner, request, stop_after=stops.get(n, 0))
                memory.append(resident_bytes())

        workers = [threading.Thread(target=work) for _ in range(SLOTS + 4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not runner.scheduler._running()  # type: ignore[attr-defined]
        assert not runner.scheduler._waiting  # type: ignore[attr-defined]

    assert len(found) == count
    different = []
    for n, message in enumerate(expected):
        reply = found[n].full_message
        if found[n].finish_reason is GenerationFinishReason.INTERRUPTED:
            same = message.text.startswith(reply.text)
        else:
            same = reply == message
        if not same:
            different.append((asked[n][1], message.text, reply.text))
    # Seeded sampling may tip where a batch rounds a probability differently; greedy answers are firm.
    assert len(different) <= max(1, count // 50), different
    half = memory[len(memory) // 2 :]
    assert max(half[len(half) // 2 :]) - half[0] < 16 * 1024**2
