"""The claims of speed in one sitting: runs the benchmarks of the engine, the server and the start, one after another,
and prints one table. ``--write`` puts its rows into README.md, in the place of the same claims.

    python benchmarks/run_all.py smol.gguf --llama-cpp DIRECTORY [--parts decode,start] [--repeat 5] [--write]

Both sides of each ratio take turns. llama.cpp's programs (llama-bench, llama-batched-bench, llama-completion,
llama-server) are taken from DIRECTORY; claims whose other side is missing are left out.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness import SHORT, alternate
from host import first_byte, generate

HERE = Path(__file__).resolve().parent
README, BEGIN, END = HERE / "README.md", "<!-- run_all.py writes from here", "<!-- to here -->"
HEAD = "| claim | command | leap | other side | ratio | goal | revision | load |\n|---|---|---|---|---|---|---|---|\n"
ROW = re.compile(r"\| (.+?) \| (.+?): (\S+) \| (.+?): (\S+) \| (\S+) \| (.+?) \| (\S+) \|")
PROMPT = "What is the capital of France?"
CROWD = "16 requests of 64+64 tokens, answer tokens/s, prompts included, at once"
GOALS = {
    ("decode at depth 0, tokens/s", "llama-bench"): ">= 0.95",
    ("decode at depth 512, tokens/s", "llama-bench"): ">= 1",
    ("decode at depth 0, tokens/s", "llama_cpp.Llama"): ">= 1.03",
    ("decode at depth 512, tokens/s", "llama_cpp.Llama"): ">= 1.03",
    ("prefill of 1,024 tokens, tokens/s", "llama-bench"): ">= 0.97",
    (CROWD, "llama-batched-bench"): ">= 1.15",
    (CROWD, "llama-batched-bench -kvu"): ">= 1.15",
}
"""Those that differ from what a benchmark prints."""
CLIENT_GOALS = {1: ">= 0.97", 8: ">= 1.2", 16: ">= 1.3"}
ENGINE_GOALS = {
    ("1", "sampled"): "<= 60",
    ("1", "greedy"): "<= 40",
    ("64", "sampled"): "<= 43",
    ("64", "greedy"): "<= 24",
}


@dataclass
class Claim:
    """A line of the table. ``command``: what measures it again."""

    claim: str
    command: str
    leap: str
    other: str
    ratio: str
    goal: str
    load: str = field(default_factory=lambda: f"{os.getloadavg()[0]:.1f}")

    def line(self, revision: str) -> str:
        cells = (self.claim, f"`{self.command}`", self.leap, self.other, self.ratio, self.goal, revision, self.load)
        return f"| {' | '.join(cells)} |"


def run(command: Sequence[str]) -> str:
    """What a benchmark printed; its exit code may say that a target was missed."""
    print("$", shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        print(f"run_all.py: {command[1]} printed nothing (exit code {done.returncode})", file=sys.stderr)
    return done.stdout


def script(name: str, given: argparse.Namespace, *flags: str) -> list[Claim]:
    """The claims of a benchmark that prints them as ``harness.report`` does."""
    beside = ("--llama-cpp", str(given.llama_cpp)) if given.llama_cpp else ()
    path = str(HERE / f"{name}.py")
    printed = run([sys.executable, path, str(given.model), "--repeat", str(given.repeat), *beside, *flags])
    return claims_in(printed, f"{name}.py {given.model.name}" + " --llama-cpp DIRECTORY" * bool(beside))


def claims_in(printed: str, command: str) -> list[Claim]:
    """The rows of ``harness.report``."""
    found = []
    for claim, left, value, right, other, ratio, goal, load in ROW.findall(printed):
        name = claim if left == "leap" else f"{claim}, {left}"
        found.append(Claim(name, command, value, f"{right} {other}", ratio, GOALS.get((name, right), goal), load))
    return found


def clients(given: argparse.Namespace) -> list[Claim]:
    """``leap serve`` beside llama-server."""
    server = given.llama_cpp and given.llama_cpp / "llama-server"
    if not server or not server.exists():
        return []
    numbers = [1] if SHORT else [1, 8, 16]
    options = ["--clients", *map(str, numbers), "--rounds", str(given.repeat), "--threads", str(given.threads)]
    path = HERE.parent / "scripts" / "serve_beside.py"
    printed = run([sys.executable, str(path), str(given.model), "--llama-server", str(server), *options])
    rows = {(int(cells[0]), cells[1]): cells[2:] for line in printed.splitlines()[1:] if (cells := line.split())}
    found = []
    for number in numbers:
        if (number, "leap") in rows and (number, "llama-server") in rows:
            ours, theirs = rows[number, "leap"], rows[number, "llama-server"]
            for column, unit, goal in (
                (0, "tokens/s", CLIENT_GOALS[number]),
                (1, "seconds to the first token", "<= 1"),
            ):
                ratio = f"{float(ours[column]) / float(theirs[column]):.3f}"
                claim = f"{number} client{'s' * (number > 1)} over HTTP, {unit}"
                command = f"serve_beside.py {given.model.name} --clients {number}"
                found.append(Claim(claim, command, ours[column], f"llama-server {theirs[column]}", ratio, goal))
    return found


def engine(given: argparse.Namespace) -> list[Claim]:
    """leap's own time for a token, of which nothing is computed."""
    numbers = "1" if SHORT else "1,64"
    options = ["--requests", numbers, "--ways", "library", "--kinds", "sampled,greedy"]
    printed = run([sys.executable, str(HERE / "engine_overhead.py"), str(given.model), *options])
    found = []
    for line in printed.splitlines()[2:]:
        _, requests, kind, microseconds, *_ = line.strip("| ").split(" | ")
        claim = f"leap's own processor time a token, {requests} at once, {kind}, us"
        command = f"engine_overhead.py {given.model.name} --requests {requests}"
        found.append(Claim(claim, command, microseconds, "–", "–", ENGINE_GOALS[requests, kind]))
    return found


def start(given: argparse.Namespace) -> list[Claim]:
    """A cold start to the first byte, and the processor time of commands beside importing click."""
    with tempfile.TemporaryDirectory(prefix="leap-benchmark-") as home:
        variables = {**os.environ, "LEAP_HOME": home, "PYTHONPATH": str(HERE.parent)}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed leap is compiled
        python = (sys.executable, "-c", "import click")
        leap = (sys.executable, "-m", "leap_cli")
        cold = generate(given.model, given.threads, "--no-host", "--max-tokens", "1", PROMPT)
        model = ("-m", str(given.model), "--max-tokens", "1", PROMPT)
        found: list[Claim] = []

        def claim(name: str, form: str, sides: list[Callable[[], float]], other: str, goal: str) -> None:
            for side in sides:  # compiles byte code, reads files, starts the model server
                side()
            ours, theirs = alternate(given.repeat * 3, *sides)
            values = format(ours, form), f"{other} {theirs:{form}}", f"{ours / theirs:.2f}"
            found.append(Claim(name, f"run_all.py {given.model.name} --parts start", *values, goal))

        completion = given.llama_cpp and given.llama_cpp / "llama-completion"
        if completion and completion.exists():
            words = ["-p", PROMPT, "-n", "8", "-no-cnv", "--no-warmup", "-t", str(given.threads), "-c", "2048"]
            theirs = [str(completion), "-m", str(given.model), *words, "--no-display-prompt"]
            sides = [partial(first_byte, cold, variables), partial(first_byte, theirs, variables)]
            claim("cold start to the first byte, s", ".3f", sides, "llama-completion", "<= 1.1")
        base = partial(processor_time, python, variables)
        helped = partial(processor_time, [*leap, "--help"], variables)
        claim("processor time of `leap --help`, s", ".3f", [helped, base], "importing click", "<= 1.15")
        try:
            processor_time([*leap, "load", str(given.model)], variables)
            warm = partial(processor_time, [*leap, "generate", "--host", *model], variables)
            claim("processor time of a warm prompt, s", ".3f", [warm, base], "importing click", "<= 2")
        finally:
            subprocess.run([*leap, "unload", "--all"], env=variables, capture_output=True, check=False)
    return found


def processor_time(command: Sequence[str], variables: dict[str, str]) -> float:
    """Of one run, children of its own included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


PARTS: dict[str, Callable[[argparse.Namespace], list[Claim]]] = {
    "decode": lambda given: script("decode", given),
    "prefill": lambda given: script("prefill", given),
    "crowd": lambda given: script("parallel", given),
    "stop": lambda given: script("interruption", given),
    "clients": clients,
    "start": start,
    "engine": engine,
}


def merged(page: str, lines: Sequence[str]) -> str:
    """The page with these rows: each takes the place of the row of its claim and its other side, or comes last."""
    begin, end = page.index(BEGIN), page.index(END)
    begin = page.index("\n", begin) + 1
    rows = {key(line): line for line in page[begin:end].splitlines()[2:] if line.startswith("|")}
    rows |= {key(line): line for line in lines}
    return f"{page[:begin]}{HEAD}{''.join(f'{line}{chr(10)}' for line in rows.values())}{page[end:]}"


def key(line: str) -> tuple[str, str]:
    """The claim, and the other side without its figures."""
    cells = [each.strip() for each in line.strip("|").split(" | ")]
    return cells[0], re.sub(r" ?(\d|–).*", "", cells[3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama-cpp", type=Path, help="directory of llama.cpp's programs")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of the parts, separated by commas")
    parser.add_argument("--repeat", type=int, default=1 if SHORT else 5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="put the rows into README.md")
    given = parser.parse_args()
    parts = given.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    asked = ["git", "-C", str(HERE), "rev-parse", "--short=8", "HEAD"]
    revision = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    begun, lines = time.perf_counter(), list[str]()
    print(HEAD, end="", flush=True)
    for part in parts:
        found = [claim.line(revision) for claim in PARTS[part](given)]
        print("\n".join(found), flush=True)
        lines += found
        if given.write:
            README.write_text(merged(README.read_text("utf-8"), found), "utf-8")
    print(f"run_all.py: {len(lines)} claims in {time.perf_counter() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
