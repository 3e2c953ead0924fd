"""``leap launch``: coding agents on a local model, each with settings of its own for that run."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapOptionsError, LeapUnavailableError
from leap_core.protocols.host.agents import AGENTS, AgentEndpoint
from leap_core.system.dataclass import dataclass

from ...completion.value_types import ModelName
from ...framework.click_classes import format_option, leap_command
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...options.first_use import have_here
from ...options.loading import (
    configured_keep_alive,
    configured_model,
    installed_models,
    model_reference,
    naming_the_default,
)
from ...options.tools import FOLD_TOOLS

if TYPE_CHECKING:
    from leap_core.models.resolving import LocalModel

MOST_CONTEXT = 32768
"""Of a context that is made for an agent, unless it needs more."""
FOLDED = 1000
"""Tokens of declarations that are proposed where a model cannot hold all."""


class AgentName(click.Choice[str]):
    """An agent by its name, or by its project's, such as claude-code."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(super().convert(str(value).removesuffix("-code").removesuffix("-cli"), param, ctx))


@dataclass(frozen=True)
class LaunchArguments:
    """What is typed after ``leap launch``."""

    agent: str | None
    arguments: tuple[str, ...]
    model: str | None
    context_size: int | None
    tool_search: int | None
    print_env: bool
    dry_run: bool
    format: str


@leap_command("launch", into=LaunchArguments)
@click.argument("agent", required=False, type=AgentName([*AGENTS]))
@click.argument("arguments", metavar="[-- ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "--model", type=ModelName(), help="Model for the agent.")
@click.option(
    "--context-size", type=click.IntRange(512), help="Context window in tokens, instead of what the agent needs."
)
@FOLD_TOOLS
@click.option("--print-env", is_flag=True, help="Print the agent's environment variables for a shell; do not start it.")
@click.option("--dry-run", is_flag=True, help="Print what would be started; do nothing.")
@format_option("names")
def command(env: Environment, /, args: LaunchArguments) -> None:
    """Start a coding AGENT on a local model, which stays loaded for it; the exit code is the agent's.

    The agent has a configuration of its own in leap's data directory; yours is not changed. Without AGENT, list the
    known agents, what they need and whether they are installed.
    """
    from leap_core.protocols.host.lookup import staying_warm
    from leap_core.server.models.loaded_model import DEFAULT_KEEP_ALIVE

    output = Output(env, args.format)
    if args.agent is None:
        if args.arguments or args.print_env or args.dry_run:
            raise click.UsageError(f"name an agent: {', '.join(AGENTS)}")
        _list(env, output, args.model, args.tool_search)
        return
    chosen = AGENTS[args.agent]
    program = shutil.which(chosen.program, path=env.variables.get("PATH"))
    if program is None and not (args.print_env or args.dry_run):
        raise LeapUnavailableError(f"{chosen.program} is not installed", hint=f"`{chosen.installs}` installs it")
    reference = model_reference(env, args.model)
    with naming_the_default(env, args.model):
        size = args.context_size or _context(args.agent, _local(env, reference), args.tool_search)
        if args.dry_run:
            _describe(env, args, reference, size, [program or chosen.program, *args.arguments])
            return
        kept = configured_keep_alive(env)
        loading = {
            "tool_search": args.tool_search,
            "keep_alive": 0 if args.print_env else DEFAULT_KEEP_ALIVE if kept is None else kept,
        }
        endpoint = _open(env, output, args.agent, reference, size, loading)
    variables = chosen.configure(endpoint)
    if args.print_env:
        for name, value in variables.items():
            output.text(f"export {name}={shlex.quote(value)}\n")
        output.note(f"{endpoint.model} stays loaded until `leap unload {endpoint.model}`")
        return
    assert program is not None
    loading["context_size"] = endpoint.context
    with staying_warm(reference, loading, variables=env.variables, cwd=env.cwd):
        code = _run([program, *args.arguments], {**env.variables, **variables}, env.cwd)
    raise click.exceptions.Exit(code)


def _list(env: Environment, output: Output, model: str | None, fold: int | None) -> None:
    from leap_core.errors import LeapModelNotFoundError

    reference = model or configured_model(env) or next(iter(installed_models(env)), "builtin")
    trained = 0
    with suppress(*(() if model else (LeapModelNotFoundError, LeapOptionsError))):
        trained = _trained(_local(env, reference))
    records = [
        {
            "agent": name,
            "installed": shutil.which(agent.program, path=env.variables.get("PATH")) is not None,
            "first_request": agent.text + agent.tools,
            "needs": agent.needs(fold),
            "fits": trained >= agent.needs(fold),
            "install": agent.installs,
        }
        for name, agent in AGENTS.items()
    ]
    if output.format is Format.TEXT:
        records = [
            {**each, **{name: "yes" if each[name] else "no" for name in ("installed", "fits")}} for each in records
        ]
    output.records(records, ["agent", "installed", "first_request", "needs", "fits", "install"], name="agent")
    output.note(f"needs: tokens of context; fits: whether {reference} can hold them ({trained} tokens)")


def _local(env: Environment, reference: str) -> LocalModel:
    """The files of a model of this machine. Raises LeapOptionsError for a remote model."""
    from leap_core.models.resolving import LocalModel, Registry

    have_here(env, reference)
    found = Registry(env.variables, env.cwd).find(reference)
    if not isinstance(found, LocalModel):
        raise LeapOptionsError("model", f"{reference} is a remote model: configure the agent with its URL")
    return found


def _trained(local: LocalModel) -> int:
    from leap_core.inference.gguf.header import read_gguf_header

    return read_gguf_header(local.path).context_length or 0


def _context(name: str, local: LocalModel, fold: int | None) -> int:
    """Tokens of context for an agent. Raises LeapOptionsError where the model cannot hold what it needs."""
    needed, trained = AGENTS[name].needs(fold), _trained(local)
    if trained and trained < needed:
        folded = AGENTS[name].needs(FOLDED)
        hint = "`leap launch` lists agents that need less, and --context-size N tries it all the same"
        if fold is None and folded <= trained:
            hint = f"with --tool-search {FOLDED} it needs {folded}"
        raise LeapOptionsError("model", f"{name} needs {needed} tokens and {local.model_id} holds {trained}; {hint}")
    return min(trained, max(needed, MOST_CONTEXT)) if trained else needed


def _open(
    env: Environment, output: Output, name: str, reference: str, size: int, loading: Mapping[str, Any]
) -> AgentEndpoint:
    """Have the model warm with a context of ``size`` tokens, or as it is where that is enough, at an address that stays
    when the host is started anew."""
    from leap_core.protocols.host.lookup import keep_warm
    from leap_core.protocols.host.model_host import ModelHost

    host = ModelHost.running(env.variables)
    held = None if host is None else host.find(reference, str(env.cwd))
    needs = AGENTS[name].needs(loading["tool_search"])
    host, model = keep_warm(
        reference,
        variables=env.variables,
        cwd=env.cwd,
        on_progress=lambda seconds: output.progress(f"loading {reference} … {seconds:.0f} s"),
        context_size=None if held is not None and held["model"]["context_size"] >= needs else size,
        **loading,
    )
    host.keep_address()
    output.note(f"{model['model']} is loaded with a context of {model['context_size']} tokens; {name} needs {needs}")
    directory = env.directories.data / "agents" / name
    return AgentEndpoint(
        f"http://127.0.0.1:{host.state.port}", host.token, model["model"], model["context_size"], directory
    )


def _describe(env: Environment, args: LaunchArguments, reference: str, size: int, command_line: list[str]) -> None:
    output, name = Output(env, args.format), str(args.agent)
    about: dict[str, Any] = {
        "agent": name,
        "command": shlex.join(command_line),
        "model": reference,
        "needs": AGENTS[name].needs(args.tool_search),
        "context_size": size,
        "directory": str(env.directories.data / "agents" / name),
    }
    if output.format is Format.TEXT:
        output.text("".join(f"{key}: {value}\n" for key, value in about.items()))
    else:
        output.record(about, name="agent")


def _run(command_line: list[str], variables: Mapping[str, str], cwd: Path) -> int:
    """Run a program with this terminal. Ctrl-C is the program's; its exit code, 128 and the signal that ended it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            command_line,
            env=dict(variables),
            cwd=cwd,
            preexec_fn=None if os.name == "nt" else lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        code = process.wait()
    except OSError as error:
        raise LeapUnavailableError(f"{command_line[0]} cannot be started: {error.strerror}") from None
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code
