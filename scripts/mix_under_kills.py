"""A batch in the background, chats, and an agent with long turns over one warm model, while its host and the worker
of the jobs are killed by SIGKILL in turns.

    python scripts/mix_under_kills.py                       # 200 lines, ten kills of each, turns of 8,000 tokens
    python scripts/mix_under_kills.py --lines 24 --kills 1 --agent-tokens 600
    python scripts/mix_under_kills.py --model smol.gguf --agent-tokens 1500 --context-size 2048

Without ``--model`` it is one with random weights and a long context. A model's texts have to be reproducible, as those
of Q8_0 and Q4_1 are. The exit code is 1 unless each line has one result, in order and with the text of a run alone, and
each chat and turn is answered, with the text that it has alone, or refused with an error of leap's.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jobs.client.client import JobsClient
from leap_core import ChatMessage, GenerationOptions
from leap_core.conversation.streams import last_of
from leap_core.errors import LeapError
from leap_core.protocols.host.lookup import end_host, keep_warm, runner_of
from leap_core.protocols.host.model_host import ModelHost
from tests.support.random_models import Shape, write_random_model

SHAPE = Shape(2, 64, 2, 1, 128, frozenset({0, 1}), 1024, 32_768)
WORDS = "the river runs under a bridge of stone and bread is sold beside it in winter "


class Mix:
    """One model, kept warm in ``folder``, and what was asked of it."""

    def __init__(self, folder: Path, model: Path, given: argparse.Namespace) -> None:
        self.folder, self.model, self.given = folder, model, given
        self.variables = {**os.environ, "LEAP_HOME": str(folder / "home")}
        self.over = threading.Event()
        self.longest = 0
        """Tokens of the longest prompt."""
        self.answers: dict[str, str] = {}
        self.refused: list[str] = []
        self.faults: list[str] = []

    def leap(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "leap_cli", *arguments]
        done = subprocess.run(command, env=self.variables, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{arguments}: {done.returncode}\n{done.stderr}")
        return done.stdout

    def batch(self, output: str, *more: str) -> str:
        """Answer the lines with each line's own seed."""
        size = ("--context-size", str(self.given.context_size), "--threads", "1")
        asked = ("--max-tokens", str(self.given.tokens), "--concurrency", "4", "--format", "plain")
        return self.leap("batch", "in.jsonl", "-m", str(self.model), *size, *asked, "-o", output, *more).strip()

    def ask(self, prompt: str) -> str:
        """The answer of the warm model; a host that was killed is started again."""
        loading = {"context_size": self.given.context_size, "cpu_threads": 1, "slots": 2, "keep_alive": 0.0}
        host, model = keep_warm(str(self.model), variables=self.variables, **loading)
        complete = last_of(
            runner_of(host, model).start(
                [ChatMessage("user", prompt)], (), GenerationOptions(temperature=1.0, rng_seed=1, max_tokens=8)
            )
        )
        self.longest = max(self.longest, complete.stats.prompt_tokens if complete.stats else 0)
        return complete.full_message.text

    def keep_asking(self, prompt: Callable[[int], str], every: float) -> None:
        n = 0
        while not self.over.wait(every):
            try:
                self.answers[prompt(n)] = self.ask(prompt(n))
            except LeapError as error:
                self.refused.append(str(error))
                if not error.message or "\n" in error.message:
                    self.faults.append(f"no clear error: {error!r}")
            except Exception as error:
                self.faults.append(f"a chat failed with {error!r}")
            n += 1


def chat_prompt(n: int) -> str:
    return f"Chat {n}: what is the capital of France?"


def run(mix: Mix) -> dict[str, Any]:
    """Run the mix; what was seen."""
    given = mix.given

    def turn(n: int) -> str:
        """Each turn of the agent is the one before with some words more."""
        text = WORDS * (given.agent_characters // len(WORDS) + 1)
        return text[: given.agent_characters] + f" turn {n % 5}" * (n % 5)

    rows = (
        {"custom_id": f"line-{n}", "prompt": f"Line {n}.", "seed": n, "temperature": 1.0} for n in range(given.lines)
    )
    (mix.folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mix.batch("alone.jsonl", "--no-host")
    mix.ask("Are you there?")
    kills: Counter[str] = Counter()
    began = time.monotonic()
    id = mix.batch("mixed.jsonl", "--background")
    askers = [
        threading.Thread(target=mix.keep_asking, args=(chat_prompt, given.every)),
        threading.Thread(target=mix.keep_asking, args=(turn, 2 * given.every)),
    ]
    for asker in askers:
        asker.start()
    with JobsClient(mix.variables) as client:
        try:
            while not (job := client.get(id)).state.is_final and time.monotonic() - began < given.timeout:
                client.ensure_worker()
                done = int((job.progress or {}).get("done", 0))
                if kills.total() < 2 * given.kills and done >= given.lines * (kills.total() + 1) // (
                    2 * given.kills + 2
                ):
                    kill(mix, client, "host" if kills.total() % 2 == 0 else "worker", kills)
                time.sleep(0.1)
        finally:
            mix.over.set()
            for asker in askers:
                asker.join()
            seconds = time.monotonic() - began
            differ = sum(text != mix.ask(prompt) for prompt, text in list(mix.answers.items())[:20])
            client.stop_worker()
            end_host(mix.variables)
    return report(mix, job.state.value, kills) | {"answers_that_differ": differ, "seconds": round(seconds, 1)}


def kill(mix: Mix, client: JobsClient, which: str, kills: Counter[str]) -> None:
    host = ModelHost.running(mix.variables)
    pid = client.worker()["pid"] if which == "worker" else host.state.pid if host is not None else None
    if pid:
        os.kill(pid, signal.SIGKILL)
        kills[which] += 1


def report(mix: Mix, state: str, kills: Counter[str]) -> dict[str, Any]:
    def results(name: str) -> list[tuple[str, str]]:
        lines = (mix.folder / name).read_text("utf-8").splitlines() if (mix.folder / name).exists() else []
        return [(row["custom_id"], row.get("text", "")) for row in map(json.loads, lines)]

    alone, mixed = results("alone.jsonl"), results("mixed.jsonl")
    return {
        "state": state,
        "kills": dict(kills),
        "lines_once_in_order": [name for name, _ in mixed] == [f"line-{n}" for n in range(mix.given.lines)],
        "texts_as_alone": sum(one == other for one, other in zip(alone, mixed, strict=False)),
        "prompts_answered": len(mix.answers),
        "tokens_of_the_longest": mix.longest,
        "refused": dict(Counter(mix.refused)),
        "faults": mix.faults,
        "load_average": os.getloadavg()[0],
    }


def main() -> int:
    """0 when all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--context-size", type=int, default=16_384)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=32, help="most tokens of a line")
    parser.add_argument("--kills", type=int, default=10, help="of the host, and as many of the worker")
    parser.add_argument("--agent-tokens", type=int, default=8000, help="of a turn of the agent, about")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two chats")
    parser.add_argument("--timeout", type=float, default=1800.0)
    given = parser.parse_args()
    given.agent_characters = int(given.agent_tokens * (1.5 if given.model is None else 4))
    with tempfile.TemporaryDirectory(prefix="leap-mix-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        model = (
            write_random_model(folder / "long.gguf", SHAPE, "q8_0") if given.model is None else given.model.resolve()
        )
        seen = run(Mix(folder, model, given))
    print(json.dumps(seen, indent=2))
    right = seen["state"] == "succeeded" and seen["lines_once_in_order"] and seen["texts_as_alone"] == given.lines
    return int(not (right and seen["prompts_answered"] and not seen["faults"] and not seen["answers_that_differ"]))


if __name__ == "__main__":
    sys.exit(main())
