"""What a warm model is worth: the first token, start-up, speed through the host, and many clients at once.

    python benchmarks/host.py bench-q4_0.gguf [--repeat 5]

``leap generate`` runs as a process of its own, with the host and with ``--no-host``; the same request goes to the same
host by curl. Start-up is what the Python client needs beyond curl until the first token of a one-token answer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from harness import Row, alternate, answer, arguments, options, report, runner, sized, user, words

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.runner import ModelRunner
from leap_core.protocols.host.lookup import keep_warm, runner_of
from leap_core.protocols.host.model_host import ModelHost

PROMPT, REPLY, CLIENTS = 200, sized(128), sized(8)
SHORT, ONE_TOKEN = ("--max-tokens", "8"), ("--max-tokens", "1", "--no-stream")
CONTEXT = 2048
ROOT = Path(__file__).parent.parent
seeds = count(1)


def first_byte(command: Sequence[str], variables: dict[str, str], text: str = "") -> float:
    """Seconds from the start of a process until something is on its stdout."""
    begun = time.perf_counter()
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(text.encode())
        process.stdin.close()
        assert process.stdout.read(1), "the command said nothing"
        found = time.perf_counter() - begun
        process.stdout.read()
    return found


def generate(model: Path, threads: int, *flags: str) -> list[str]:
    """Leap's command for one answer of a few tokens."""
    sampling = ["--temperature", "0", "--format", "jsonl"]
    loading = ["--context-size", str(CONTEXT), "--threads", str(threads)]
    return [sys.executable, "-m", "leap_cli", "generate", "-m", str(model), *loading, *sampling, *flags]


def speed_of(asked: ModelRunner) -> float:
    """Tokens a second of one answer."""
    return answer(asked, [user(words(PROMPT, seed=next(seeds)))], options(REPLY)).decode_speed


def seconds_for(asked: ModelRunner, at_once: bool) -> float:
    """Seconds that CLIENTS answers take, each asked by a thread."""
    prompts = [[user(words(32, seed=next(seeds)))] for _ in range(CLIENTS)]

    def one(messages: list[ChatMessage]) -> None:
        answer(asked, messages, options(REPLY))

    begun = time.perf_counter()
    threads = [threading.Thread(target=one, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
        if not at_once:
            thread.join()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def main() -> None:
    given = arguments(__doc__ or "")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what follows is left in order
    model = given.model.resolve()
    with tempfile.TemporaryDirectory(prefix="leap-benchmark-") as home:
        variables = {**os.environ, "LEAP_HOME": home, "PYTHONPATH": str(ROOT)}
        try:
            host, held = keep_warm(
                str(model), variables=variables, context_size=CONTEXT, cpu_threads=given.threads, keep_alive=900
            )
            rows = _rows(model, given.threads, given.repeat, host, held, variables)
        finally:
            command = [sys.executable, "-m", "leap_cli", "unload", "--all"]
            subprocess.run(command, env=variables, capture_output=True, check=False, start_new_session=True)
    report(f"The warm host, {given.model.name}, {given.threads} threads", rows)


def _rows(
    model: Path, threads: int, repeat: int, host: ModelHost, held: dict[str, object], variables: dict[str, str]
) -> list[Row]:
    warm = runner_of(host, held)

    def prompt() -> str:
        return words(PROMPT, seed=next(seeds))

    def first_token(flag: str, text: str) -> float:
        return first_byte(generate(model, threads, flag, *SHORT), variables, text)

    known = prompt()
    first_token("--host", known)  # the host computes it once
    cold, again = alternate(repeat, lambda: first_token("--no-host", known), lambda: first_token("--host", known))
    fresh = alternate(repeat, lambda: first_token("--host", prompt()))[0]
    claim = f"first token of leap generate, {PROMPT}-token prompt, s"
    first_tokens = [
        Row(f"{claim}, asked before", "cold", cold, "warm", again, ">= 5"),
        Row(f"{claim}, never seen", "cold", cold, "warm", fresh, "-"),
    ]
    report("So far", first_tokens)
    same = "Say hello."  # a known prompt: nothing is computed but its last token
    asked = {"model": held["model"], "messages": [{"role": "user", "content": same}], "max_tokens": 1}
    curl = ["curl", "-sN", "-H", f"Authorization: Bearer {host.files.read_token()}", "-d", json.dumps(asked)]
    curl.append(f"http://127.0.0.1:{host.state.port}/v1/chat/completions")
    by_leap, by_curl = alternate(
        repeat * 3,
        lambda: first_byte(generate(model, threads, "--host", *ONE_TOKEN, same), variables),
        lambda: first_byte(curl, variables),
    )
    print(
        f"leap generate with the host {by_leap * 1000:.0f} ms, curl {by_curl * 1000:.0f} ms: start-up of the client "
        f"{(by_leap - by_curl) * 1000:.0f} ms (target <= 150)"
    )
    together, one_by_one = alternate(
        max(3, repeat // 2), lambda: seconds_for(warm, True), lambda: seconds_for(warm, False)
    )
    at_once = Row(f"{CLIENTS} answers of {REPLY} tokens, s", "one by one", one_by_one, "at once", together, ">= 2")
    report("So far", [at_once])
    through = [speed_of(warm) for _ in range(repeat)]
    host.unload(None)
    with runner(model, threads=threads, slots=8) as inside:  # one after the other: two pools of threads would disturb
        direct = [speed_of(inside) for _ in range(repeat)]
    return [
        *first_tokens,
        Row("decode, tokens/s", "through the host", _median(through), "in process", _median(direct), ">= 0.95"),
        at_once,
    ]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
