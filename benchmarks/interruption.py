"""Stopping in a prefill, decoding beside a busy process, and starting a new process from a snapshot on disk.

python benchmarks/interruption.py bench-q4_0.gguf --llama-cpp DIRECTORY
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

from harness import SHORT, Row, answer, arguments, llama_bench, options, report, runner, sized, user, words

from leap_core.inference.runner import InProcessRunner

seeds = count(1)
CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from harness import answer, options, runner, user, words
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import CacheOptions
cache = CacheOptions(path=Path(sys.argv[4]), enabled=True)
with runner(Path(sys.argv[2]), threads=int(sys.argv[3]), cache=cache) as model:
    messages = [ChatMessage("system", words(1000, seed=99)), user(words(20, seed=int(sys.argv[5])))]
    got = answer(model, messages, options(4))
    stats = got.complete.stats
    print(stats.time_to_first_token, stats.cached_prompt_tokens / stats.prompt_tokens)
"""


def stop_seconds(model: InProcessRunner, after: float) -> float:
    """From ``stop()`` in the middle of a prefill of 2,000 tokens to Complete."""
    stream = model.create_conversation().generate_response(user(words(2000, seed=next(seeds))), options(8))
    asked = [0.0]

    def stop() -> None:
        asked[0] = time.perf_counter()
        stream.stop()

    timer = threading.Timer(after, stop)
    timer.start()
    for _ in stream:
        pass
    return time.perf_counter() - asked[0]


def spin() -> None:
    while True:
        pass


def busy_and_quiet(model: InProcessRunner, tokens: int) -> tuple[float, float]:
    """Tokens a second with one core taken by another process, and with none."""
    quiet = answer(model, [user(words(8, seed=next(seeds)))], options(tokens)).decode_speed
    hog = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    hog.start()
    try:
        time.sleep(0.5)
        busy = answer(model, [user(words(8, seed=next(seeds)))], options(tokens)).decode_speed
    finally:
        hog.kill()
        hog.join()
    return busy, quiet


def child_first_token(model: Path, threads: int, cache: Path) -> tuple[float, float]:
    """Time to the first token in a new process with a system prompt of 1,000 tokens, and the cache's share of it."""
    script = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(model), str(threads), str(cache)]
    done = subprocess.run([*script, str(next(seeds))], capture_output=True, text=True, check=True)
    seconds, cached = done.stdout.split()
    return float(seconds), float(cached)


def main() -> None:
    given = arguments(__doc__ or "")
    rows = []
    with runner(given.model, threads=given.threads) as model:
        answer(model, [user("warm up")], options(8))
        stops = [stop_seconds(model, 0.2 + 0.15 * n) for n in range(given.repeat)]
        rows.append(Row("stop in a prefill of 2,000 tokens, worst, ms", "leap", max(stops) * 1e3, "limit", 50, "<= 1"))
        pairs = [busy_and_quiet(model, sized(400)) for _ in range(given.repeat)]
        busy, quiet = (sorted(side)[len(side) // 2] for side in zip(*pairs, strict=True))
        rows.append(Row("decode with one of two cores taken, tokens/s", "busy", busy, "quiet", quiet, ">= 0.6"))
    if given.llama_cpp:
        flags = ("-p", "0", "-n", "128", "-t", str(given.threads))
        free = float(llama_bench(given.llama_cpp, given.model, *flags)[0]["avg_ts"])
        hog = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
        hog.start()
        time.sleep(0.5)
        taken = float(llama_bench(given.llama_cpp, given.model, *flags)[0]["avg_ts"])
        hog.kill()
        rows.append(Row("the same, llama-bench, tokens/s", "busy", taken, "quiet", free, "(for comparison)"))
    with tempfile.TemporaryDirectory() as directory:
        without, cached = child_first_token(given.model, given.threads, Path(directory))
        again = [child_first_token(given.model, given.threads, Path(directory)) for _ in range(given.repeat)]
        assert SHORT or (cached < 0.1 and all(found > 0.8 for _, found in again)), (cached, again)
        seconds = sorted(first for first, _ in again)[len(again) // 2]
        claim = "new process, system prompt of 1,000 tokens, seconds to the first token"
        rows.append(Row(claim, "snapshot on disk", seconds, "without", without, "<= 0.10"))
    report(f"Interruption and snapshots, {given.model.name}, {given.threads} threads", rows)


if __name__ == "__main__":
    main()
