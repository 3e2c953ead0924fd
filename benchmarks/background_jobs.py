"""How quickly jobs begin and stop, and how many can be submitted.

    python benchmarks/background_jobs.py [--model bench-q4_0.gguf] [--jobs 100] [--submits 10000]

A worker is started in a directory of its own. Submit to running is the time between the two moments that the table
keeps. Cancel to stopped is the time that ``JobsClient.cancel`` takes: it returns when nothing runs any more. The model
(the built-in one, or a larger one whose prefill takes long) is warm.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness import end_tokens, sized, words

from jobs.client import JobsClient
from jobs.table.job import Job, NewJob, State
from leap_core.conversation.options import GenerationOptions
from leap_core.models.builtin import model_path

ENDLESS = GenerationOptions(temperature=0.0, logit_bias={token: -1e9 for token in end_tokens(model_path())})
CANCELS = sized(10)


def row(claim: str, values: Sequence[float], target: float | None) -> None:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    median = statistics.median(ordered)
    limit = "" if target is None else f"p95 <= {target:g}"
    print(f"| {claim} | {median:.1f} | {p95:.1f} | {ordered[-1]:.1f} | {limit} |", flush=True)


def milliseconds_until_running(jobs: JobsClient, count: int, model: str) -> list[float]:
    found = []
    for _ in range(count):
        id = jobs.generate("Hi", model=model, options=GenerationOptions(max_tokens=1))
        job = jobs.wait(id)
        assert job.started is not None and job.state is State.SUCCEEDED, job
        found.append((job.started - job.created) * 1000)
        time.sleep(0.03)
    return found


def cancel(jobs: JobsClient, prompt: str, model: str, context: int | None, *, decoding: bool) -> float:
    """Milliseconds from the request to the end of a job that is decoding, or computing its prompt."""
    loading = {"context_size": context} if context else {}
    id = jobs.generate(prompt, model=model, options=ENDLESS, loading=loading)
    while jobs.get(id).state is not State.RUNNING or (decoding and not jobs.events(id)):
        time.sleep(0.005)
    time.sleep(0.3)
    assert decoding or not jobs.events(id), "the prompt was too short to catch it while it was computed"
    begun = time.perf_counter()
    job: Job = jobs.cancel(id)
    taken = (time.perf_counter() - begun) * 1000
    assert job.state is State.CANCELLED, job
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="builtin", help="for cancelling during prefill: one that takes its time")
    parser.add_argument(
        "--prompt-tokens", type=int, default=3500, help="of the prompt that is cancelled (default 3500)"
    )
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--submits", type=int, default=10_000)
    given = parser.parse_args()
    model = given.model if given.model == "builtin" else str(Path(given.model).absolute())
    with tempfile.TemporaryDirectory() as home:
        os.environ["LEAP_HOME"] = home
        with JobsClient() as jobs:
            jobs.wait(jobs.generate("Hi", options=GenerationOptions(max_tokens=1)))
            print("\n| claim (ms) | median | p95 | worst | target |\n|---|---|---|---|---|")
            row(f"submit to running, {given.jobs} jobs", milliseconds_until_running(jobs, given.jobs, "builtin"), 100)
            row(
                "cancel to stopped, decoding",
                [cancel(jobs, "Count.", "builtin", None, decoding=True) for _ in range(CANCELS)],
                200,
            )
            if model != "builtin":
                jobs.wait(
                    jobs.generate(
                        "Hi", model=model, loading={"context_size": 4096}, options=GenerationOptions(max_tokens=1)
                    )
                )
                prompts = [words(given.prompt_tokens, seed=n) for n in range(CANCELS)]
                values = [cancel(jobs, prompt, model, 4096, decoding=False) for prompt in prompts]
                row(f"cancel to stopped, in the prefill of {given.prompt_tokens} tokens", values, 200)
            jobs.stop_worker()
        with JobsClient(autostart=False) as jobs:
            job = jobs.generation("Hi")
            submit(jobs, [job], given.submits, "one at a time")
            submit(jobs, [job] * given.submits, 1, "in one call")


def submit(jobs: JobsClient, work: list[NewJob], times: int, how: str) -> None:
    begun = time.perf_counter()
    for _ in range(times):
        jobs.submit(work)
    taken = time.perf_counter() - begun
    count = len(work) * times
    print(f"{count} submits {how}: {taken:.2f} s, {count / taken:.0f} a second, each on the disk when it returns")


if __name__ == "__main__":
    main()
