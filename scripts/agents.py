"""Coding agents against leap: three turns with a tool and one that is cancelled, each agent through `leap launch`.

    python scripts/agents.py [--path DIRECTORY] [AGENT ...] [--tool-search N] [--prompt-speed 20]

Agents are those of `leap launch` that are on the path. Their prompts are read by llama.cpp (a model with random weights
and a long context), so what is reused is real; what comes back is scripted: a call of the agent's shell, then a
sentence that repeats its result. For each agent: the tokens of its first request, the share of the first request of
each later turn that was reused, what was left out of its requests, and whether its home is as it was. With
``--prompt-speed`` the engine sleeps before each decode, so that no agent gets more tokens a second: none may time out.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from leap_core import Chunk, Complete, FunctionCalls, LeapFunctionCall, ModelLoadingOptions
from leap_core.conversation.generator import Functions, Generation, MaybeOptions, Messages
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import GenerationFinishReason, MessageResponse
from leap_core.conversation.runner import ModelRunner, PassingRunner
from leap_core.conversation.streams import last_of
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.models.resolving import LocalModel, resolve_local
from leap_core.opening import load_as_made
from leap_core.protocols.host.host_state import HostFiles, HostState
from leap_core.server.access import AccessCheck
from leap_core.server.application import Server, build_app, listen
from leap_core.server.endpoints.generation import GenerationEndpoints
from leap_core.server.endpoints.management import ManagementEndpoints
from leap_core.server.metrics import RequestLog
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.system.directories import Directories
from leap_core.system.locks import locked
from leap_core.system.processes import start_time
from tests.support.random_models import Shape, write_random_model

SHAPE = Shape(2, 64, 2, 1, 128, frozenset({1}), 4096, 262_144)
SHELLS = {"bash": "command", "Bash": "command", "exec_command": "cmd", "run_shell_command": "command"}
SLOW = "slowly"
TURNS = ("Run echo with turn-1.", "Run echo with turn-2.", "Run echo with turn-3.")
TURN_SECONDS, CANCEL_SECONDS = 240, 60
COMMANDS = {
    "pi": (["-p"], ["-c", "-p"]),
    "opencode": (["run"], ["run", "-c"]),
    "codex": (
        ["exec", "--skip-git-repo-check", "-s", "danger-full-access"],
        ["exec", "resume", "--last", "--skip-git-repo-check", "-c", 'sandbox_mode="danger-full-access"'],
    ),
    "qwen": (["--yolo"], ["--yolo", "-c"]),
    "claude": (["--allowedTools", "Bash", "-p"], ["-c", "--allowedTools", "Bash", "-p"]),
    "aider": (
        ["--yes-always", "--no-git", "--message"],
        ["--yes-always", "--no-git", "--restore-chat-history", "--message"],
    ),
}
"""How each agent begins a conversation with a prompt, and goes on with it."""


@dataclass
class Seen:
    """The requests of one agent: prompts with the tokens read and reused, and generations that were stopped."""

    requests: list[tuple[str, int, int]] = field(default_factory=list)
    stopped: int = 0


SEEN = Seen()
SLOWED_TURN_SECONDS = 3600
PROMPT_SPEED = 0.0
"""Tokens a second, 0 for as fast as the machine."""


class Following(PassingRunner):
    """Reads prompts with the real engine, and answers by the rule above."""

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        asked = replace(options or GenerationOptions(), max_tokens=1, tool_choice=None, think_budget=None)
        read = last_of(self._runner.start(messages, functions, asked))
        stats = read.stats
        assert stats is not None
        text = next((each.text for each in reversed(messages) if each.role.value == "user"), "")
        SEEN.requests.append((text, stats.prompt_tokens - stats.cached_prompt_tokens, stats.cached_prompt_tokens))
        shell = next((each.name for each in functions if each.name in SHELLS), None)
        last = messages[-1]
        turn = next((turn for turn in (1, 2, 3) if f"turn-{turn}" in text), 0)
        if SLOW in text:
            return Scripted((Chunk("and so on "),) * 600, read, pause=0.05)
        if last.role.value == "tool" and not last.text.startswith('[{"name"'):  # a result, and no declaration
            return Scripted((Chunk(f"It printed: {last.text.strip()[:200]}"),), read)
        if shell is not None and turn:
            arguments = {SHELLS[shell]: f"echo leap-{turn}", "description": "Prints a word."}
            known = {each.name for f in functions if f.name == shell for each in f.parameters}
            call = LeapFunctionCall(shell, {name: value for name, value in arguments.items() if name in known})
            return Scripted((FunctionCalls((call,)),), read)
        return Scripted((Chunk(f"Without a tool: leap-{turn}."),), read)


class Scripted(Generation):
    """These pieces as an answer, with the counts of what was read."""

    def __init__(self, pieces: tuple[MessageResponse, ...], read: Complete, pause: float = 0.0) -> None:
        self._pieces, self._read, self._pause = iter(pieces), read, pause
        self._stopped = self._ended = False
        self._said: list[MessageResponse] = []

    def __next__(self) -> MessageResponse:
        piece = None if self._stopped else next(self._pieces, None)
        if piece is not None:
            time.sleep(self._pause)
            self._said.append(piece)
            return piece
        if self._ended:
            raise StopIteration
        self._ended = True
        text = "".join(each.text for each in self._said if isinstance(each, Chunk))
        calls = tuple(call for each in self._said if isinstance(each, FunctionCalls) for call in each.function_calls)
        message = ChatMessage("assistant", text, function_calls=calls or None)
        reason = GenerationFinishReason.INTERRUPTED if self._stopped else GenerationFinishReason.STOP
        return Complete(message, reason, self._read.stats)

    def stop(self) -> None:
        SEEN.stopped += not self._ended
        self._stopped = True

    def close(self) -> None:
        self.stop()


def load(local: LocalModel, options: ModelLoadingOptions) -> ModelRunner:
    template = read_gguf_header(resolve_local("builtin").path).chat_template
    runner = load_as_made(local, replace(options, chat_template=template))
    if PROMPT_SPEED:
        slow_down(runner.scheduler._context)
    return Following(runner)


def slow_down(context: Any) -> None:
    """Have each decode begin late, unless it is aborted."""
    decode = context.decode

    def late(**given: Any) -> int:
        until = time.monotonic() + context._batch.count / PROMPT_SPEED
        while time.monotonic() < until and not context.is_aborting:
            time.sleep(0.01)
        code: int = decode(**given)
        return code

    context.decode = late


def host(directories: Directories) -> Iterator[None]:
    """A model host of this data directory, in this process, that `leap launch` finds."""
    files, ready, ended = HostFiles.of(directories), threading.Event(), threading.Event()

    async def run() -> None:
        listener = listen("127.0.0.1", 0)
        state = HostState(os.getpid(), start_time(os.getpid()), listener.getsockname()[1], "agents")
        token = files.publish(state)
        models = LoadedModels(load)
        answering = GenerationEndpoints(models)
        management = ManagementEndpoints(models, answering, lambda: None)
        app = build_app(models, answering, management.routes())
        server = Server.of(RequestLog(AccessCheck(app, token=token, stamp="agents"), answering.metrics))
        serving = asyncio.create_task(server.serve([listener]))
        ready.set()
        await asyncio.to_thread(ended.wait)
        await models.close()
        server.end()
        await serving

    directories.run.mkdir(parents=True, exist_ok=True)
    with locked(files.alive):
        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        ready.wait()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            files.withdraw()


def digest(directory: Path) -> str:
    """Of all names and contents below a directory."""
    parts = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        parts.update(str(path.relative_to(directory)).encode())
        parts.update(path.read_bytes() if path.is_file() else b"/")
    return parts.hexdigest()


def launch(agent: str, model: Path, more: list[str], arguments: list[str], variables: dict[str, str], cwd: Path) -> Any:
    command = [sys.executable, "-m", "leap_cli", "launch", agent, "-m", str(model), *more, "--", *arguments]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def measure(agent: str, model: Path, more: list[str], home: Path, work: Path, variables: dict[str, str]) -> str:
    """A row of the table."""
    begin, go_on = COMMANDS[agent]
    before = digest(home)
    through, reused, first = [], [], 0
    for turn, prompt in enumerate(TURNS, 1):
        SEEN.requests.clear()
        process = launch(agent, model, more, [*(begin if turn == 1 else go_on), prompt], variables, work)
        try:
            output, _ = process.communicate(timeout=SLOWED_TURN_SECONDS if PROMPT_SPEED else TURN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0] + "\n(it did not end)"
        own = [each for each in SEEN.requests if f"turn-{turn}" in each[0] and "leap-" not in each[0]]
        good = process.returncode == 0 and f"leap-{turn}" in output
        through.append(good)
        if not good:
            print(f"--- {agent}, turn {turn}, exit code {process.returncode}:\n{output[-1500:]}", file=sys.stderr)
        if own:
            _, read, kept = max(own, key=lambda each: each[1] + each[2])
            first = first or read + kept
            if turn > 1:
                reused.append(kept / (read + kept))
    SEEN.stopped, SEEN.requests[:] = 0, []
    process = launch(agent, model, more, [*begin, f"Count {SLOW}."], variables, work)
    deadline = time.monotonic() + CANCEL_SECONDS
    while not any(SLOW in text for text, *_ in SEEN.requests) and (PROMPT_SPEED or time.monotonic() < deadline):
        time.sleep(0.1)
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.communicate(timeout=CANCEL_SECONDS)
        cancelled = "yes" if SEEN.stopped else "no"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        cancelled = "no"
    same = "yes" if digest(home) == before else "no"
    shares = ", ".join(f"{share:.1%}" for share in reused) or "-"
    return f"| {agent} | {first} | {sum(through)} of {len(TURNS)} | {shares} | {cancelled} | {same} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("agents", nargs="*", metavar="AGENT", help=", ".join(COMMANDS))
    parser.add_argument("--path", default="", help="where agents are, beside PATH")
    parser.add_argument("--tool-search", metavar="N")
    parser.add_argument("--prompt-speed", type=float, default=0.0, metavar="N", help="at most N tokens a second")
    arguments = parser.parse_args()
    global PROMPT_SPEED
    PROMPT_SPEED = arguments.prompt_speed
    more = ["--context-size", str(SHAPE.context // 2)]
    more += [] if arguments.tool_search is None else ["--tool-search", arguments.tool_search]
    path = os.pathsep.join(filter(None, [arguments.path and str(Path(arguments.path).resolve()), os.environ["PATH"]]))
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        home, work = root / "home", root / "work"
        home.mkdir()
        work.mkdir()
        (home / ".profile").write_text("# mine\n")
        (work / "README.md").write_text("# A project\n")
        variables = {
            "PATH": path,
            "HOME": str(home),
            "LEAP_HOME": str(root / "leap"),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
        }
        variables |= {"LEAP_TRY_MODELS": "0"} | (
            {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
        )
        os.environ["LEAP_HOME"] = variables["LEAP_HOME"]
        model = write_random_model(root / "long.gguf", SHAPE)
        serving = host(Directories.from_environment(variables))
        next(serving)
        try:
            print(
                "| agent | tokens of its first request | turns with a tool | reused on turns two and three | ", end=""
            )
            print("cancelled | home as before |\n|---|---|---|---|---|---|")
            for agent in arguments.agents or COMMANDS:
                print(measure(agent, model, more, home, work, variables), flush=True)
        finally:
            serving.close()


if __name__ == "__main__":
    main()
