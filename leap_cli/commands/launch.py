"""``leap launch``: coding agents on a local model, each with settings of its own for that run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapError, LeapOptionsError, LeapUnavailableError
from leap_core.system.dataclass import dataclass

from ..completion.value_types import ModelName
from ..framework.click_classes import format_option, leap_command
from ..framework.environment import Environment
from ..framework.output import Format, Output
from ..options.loading import configured_model, installed_models, model_reference, naming_the_default
from ..options.tools import FOLD_TOOLS

if TYPE_CHECKING:
    from leap_core.models.resolving import LocalModel

ROOM = 4096
"""Tokens for a task, what tools bring back, and answers, beside an agent's first request."""
MOST_CONTEXT = 32768
"""Of a context that is made for an agent, unless it needs more."""
FOLDED = 1000
"""Tokens of declarations that are proposed where a model cannot hold all."""
STAY_SECONDS = 60.0
"""Between two calls that keep the model warm."""


@dataclass(frozen=True)
class Endpoint:
    """What an agent speaks to: the host's ``root`` (http://127.0.0.1:PORT), its ``key``, the ``model`` and the tokens
    of its ``context``; ``directory`` is the agent's own, for files."""

    root: str
    key: str
    model: str
    context: int
    directory: Path


Files = dict[str, str]


@dataclass(frozen=True)
class Agent:
    """``program`` and what ``installs`` it. ``text`` and ``tools``: the tokens of its first request, without and with
    what it declares. ``variables`` of its process, and ``files`` of its directory, by their names."""

    program: str
    installs: str
    text: int
    tools: int
    variables: Callable[[Endpoint], dict[str, str]]
    files: Callable[[Endpoint], Files] = lambda _: {}

    def needs(self, fold: int | None) -> int:
        """Tokens of context for a first task; ``fold``: with declarations folded above so many."""
        return self.text + (self.tools if fold is None else min(self.tools, fold)) + ROOM


def _claude(endpoint: Endpoint) -> dict[str, str]:
    models = dict.fromkeys(
        (
            "ANTHROPIC_MODEL",
            "CLAUDE_CODE_SUBAGENT_MODEL",
            *(f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in CLAUDE_SIZES),
        ),
        endpoint.model,
    )
    quiet = ("DISABLE_ERROR_REPORTING", "DISABLE_FEEDBACK_COMMAND", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")
    return {
        "ANTHROPIC_BASE_URL": endpoint.root,
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_AUTH_TOKEN": endpoint.key,
        **models,
        "CLAUDE_CONFIG_DIR": str(endpoint.directory),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it changes with each request, and nothing after it would be reused
        "CLAUDE_CODE_TOTAL_TOKENS_REMINDER": "off",
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(endpoint.context),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **dict.fromkeys(quiet, "1"),
    }


CLAUDE_SIZES = ("OPUS", "SONNET", "HAIKU")


def _codex_files(endpoint: Endpoint) -> Files:
    catalogue = endpoint.directory / "models.json"
    model = {
        "slug": endpoint.model,
        "display_name": endpoint.model,
        "context_window": endpoint.context,
        "shell_type": "default",
        "visibility": "list",
        "supported_in_api": True,
        "priority": 1,
        "truncation_policy": {"mode": "tokens", "limit": endpoint.context // 4},
        "input_modalities": ["text"],
        "base_instructions": CODEX_INSTRUCTIONS,
        "support_verbosity": False,
        "default_verbosity": None,
        "supports_parallel_tool_calls": False,
        "supports_reasoning_summaries": False,
        "supported_reasoning_levels": [],
        "experimental_supported_tools": [],
    }
    config = {"model": endpoint.model, "model_provider": "leap", "model_catalog_json": str(catalogue)}
    provider = {"name": "leap", "base_url": f"{endpoint.root}/v1", "wire_api": "responses", "env_key": "LEAP_AGENT_KEY"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in config.items()]
    lines += ["", "[model_providers.leap]", *(f"{name} = {json.dumps(value)}" for name, value in provider.items())]
    return {"config.toml": "\n".join(lines) + "\n", catalogue.name: json.dumps({"models": [model]}, indent=1)}


CODEX_INSTRUCTIONS = (
    "You are a coding agent in a terminal. You read files, run commands and change files with the tools that you have, "
    "one step at a time, and say in few words what you did. Answer without a tool where none is needed."
)


def _opencode(endpoint: Endpoint) -> dict[str, str]:
    limit = {"context": endpoint.context, "output": endpoint.context // 4}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "leap",
        "options": {"baseURL": f"{endpoint.root}/v1", "apiKey": endpoint.key},
        "models": {endpoint.model: {"name": endpoint.model, "limit": limit}},
    }
    config = {
        "provider": {"leap": provider},
        "model": f"leap/{endpoint.model}",
        "autoupdate": False,
        "share": "disabled",
    }
    places = {"CONFIG": "config", "DATA": "data", "STATE": "state", "CACHE": "cache"}
    own = {f"XDG_{name}_HOME": str(endpoint.directory / place) for name, place in places.items()}
    own["npm_config_cache"] = str(endpoint.directory / "cache" / "npm")
    return {**own, "OPENCODE_CONFIG_CONTENT": json.dumps(config)}


def _pi_files(endpoint: Endpoint) -> Files:
    model = {"id": endpoint.model, "contextWindow": endpoint.context, "maxTokens": endpoint.context // 4}
    provider = {
        "baseUrl": f"{endpoint.root}/v1",
        "api": "openai-completions",
        "apiKey": endpoint.key,
        "models": [model],
    }
    settings = {"defaultProvider": "leap", "defaultModel": endpoint.model}
    return {
        "models.json": json.dumps({"providers": {"leap": provider}}, indent=1),
        "settings.json": json.dumps(settings),
    }


def _openai(endpoint: Endpoint) -> dict[str, str]:
    return {"OPENAI_BASE_URL": f"{endpoint.root}/v1", "OPENAI_API_KEY": endpoint.key, "OPENAI_MODEL": endpoint.model}


def _qwen_files(_endpoint: Endpoint) -> Files:
    auth = {"security": {"auth": {"selectedType": "openai"}}, "privacy": {"usageStatisticsEnabled": False}}
    return {"settings.json": json.dumps({**auth, "general": {"disableAutoUpdate": True}})}


def _aider(endpoint: Endpoint) -> dict[str, str]:
    return {
        "OPENAI_API_BASE": f"{endpoint.root}/v1",
        "OPENAI_API_KEY": endpoint.key,
        "AIDER_MODEL": f"openai/{endpoint.model}",
        "AIDER_MODEL_METADATA_FILE": str(endpoint.directory / "metadata.json"),
        "AIDER_ANALYTICS": "false",
        "AIDER_CHECK_UPDATE": "false",
        "AIDER_SHOW_MODEL_WARNINGS": "false",
    }


def _aider_files(endpoint: Endpoint) -> Files:
    about = {"max_input_tokens": endpoint.context, "max_output_tokens": endpoint.context // 4, "mode": "chat"}
    about |= {"litellm_provider": "openai", "input_cost_per_token": 0, "output_cost_per_token": 0}
    return {"metadata.json": json.dumps({f"openai/{endpoint.model}": about})}


AGENTS = {
    "pi": Agent(
        "pi",
        "npm install -g @earendil-works/pi-coding-agent",
        630,
        770,
        lambda endpoint: {"PI_CODING_AGENT_DIR": str(endpoint.directory), "PI_OFFLINE": "1"},
        _pi_files,
    ),
    "aider": Agent("aider", "pipx install aider-chat", 600, 0, _aider, _aider_files),
    "opencode": Agent("opencode", "npm install -g opencode-ai", 2200, 5400, _opencode),
    "codex": Agent(
        "codex",
        "npm install -g @openai/codex",
        4600,
        4300,
        lambda endpoint: {"CODEX_HOME": str(endpoint.directory), "LEAP_AGENT_KEY": endpoint.key},
        _codex_files,
    ),
    "qwen": Agent(
        "qwen",
        "npm install -g @qwen-code/qwen-code",
        9100,
        7100,
        lambda endpoint: {**_openai(endpoint), "QWEN_HOME": str(endpoint.directory)},
        _qwen_files,
    ),
    "claude": Agent(
        "claude",
        "npm install -g @anthropic-ai/claude-code",
        3100,
        17000,
        _claude,
        lambda _: {".claude.json": json.dumps({"hasCompletedOnboarding": True})},
    ),
}
"""By the names that people type; the tokens were counted with SmolLM2's vocabulary in November 2026."""


class AgentName(click.Choice[str]):
    """An agent by its name, or by its project's, such as claude-code."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(super().convert(str(value).removesuffix("-code").removesuffix("-cli"), param, ctx))


@leap_command("launch")
@click.argument("agent", required=False, type=AgentName([*AGENTS]))
@click.argument("arguments", metavar="[-- ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "--model", type=ModelName(), metavar="MODEL", help="Have this model answer the agent.")
@click.option(
    "--context-size",
    type=click.IntRange(512),
    metavar="N",
    help="Hold this many tokens of prompt and answer together, whatever the agent needs.",
)
@FOLD_TOOLS
@click.option("--print-env", is_flag=True, help="Print the agent's variables for a shell, and do not start it.")
@click.option("--dry-run", is_flag=True, help="Say what would be started, and do nothing.")
@format_option("names")
@click.pass_obj
def command(
    env: Environment,
    /,
    agent: str | None,
    arguments: tuple[str, ...],
    model: str | None,
    context_size: int | None,
    fold_tools: int | None,
    print_env: bool,
    dry_run: bool,
    format: str,
) -> None:
    """Start a coding AGENT on a local model, which is kept warm for it; its exit code is leap's.

    The agent has a configuration of its own in leap's data directory; yours stays as it is. Without AGENT, list those
    that are known, what they need and whether they are installed.
    """
    output = Output(env, format)
    if agent is None:
        if arguments or print_env or dry_run:
            raise click.UsageError(f"name an agent: {', '.join(AGENTS)}")
        _list(env, output, model, fold_tools)
        return
    chosen = AGENTS[agent]
    program = shutil.which(chosen.program, path=env.variables.get("PATH"))
    if program is None and not (print_env or dry_run):
        raise LeapUnavailableError(f"{chosen.program} is not installed", hint=f"`{chosen.installs}` installs it")
    reference = model_reference(env, model)
    with naming_the_default(env, model):
        size = context_size or _context(agent, _local(env, reference), fold_tools)
        if dry_run:
            _describe(
                env, output, agent, chosen.needs(fold_tools), reference, size, [program or chosen.program, *arguments]
            )
            return
        endpoint = _open(env, output, agent, reference, size, fold_tools, stays=print_env)
    _write(endpoint.directory, chosen.files(endpoint))
    variables = chosen.variables(endpoint)
    if print_env:
        for name, value in variables.items():
            output.text(f"export {name}={shlex.quote(value)}\n")
        output.note(f"{endpoint.model} stays warm until `leap unload {endpoint.model}`")
        return
    assert program is not None
    stay_warm = _Warmth(env, reference)
    try:
        code = _run([program, *arguments], {**env.variables, **variables}, env.cwd)
    finally:
        stay_warm.end()
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
    """The files of a model of this machine. Raises LeapOptionsError for one that answers elsewhere."""
    from leap_core.models.resolving import LocalModel, Registry

    found = Registry(env.variables, env.cwd).find(reference)
    if not isinstance(found, LocalModel):
        raise LeapOptionsError("model", f"{reference} answers elsewhere; an agent can be pointed there itself")
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
            hint = f"with --fold-tools {FOLDED} it needs {folded}"
        raise LeapOptionsError("model", f"{name} needs {needed} tokens and {local.model_id} holds {trained}; {hint}")
    return min(trained, max(needed, MOST_CONTEXT)) if trained else needed


def _open(
    env: Environment, output: Output, name: str, reference: str, size: int, fold: int | None, *, stays: bool
) -> Endpoint:
    """Have the model warm with a context of ``size`` tokens, or as it is where that is enough."""
    from leap_core.protocols.host.connection import ModelHost
    from leap_core.protocols.host.lookup import keep_warm

    host = ModelHost.running(env.variables)
    held = None if host is None else host.find(reference, str(env.cwd))
    enough = held is not None and held["model"]["context_size"] >= AGENTS[name].needs(fold)
    host, model = keep_warm(
        reference,
        variables=env.variables,
        cwd=env.cwd,
        on_progress=lambda seconds: output.progress(f"loading {reference} … {seconds:.0f} s"),
        context_size=None if enough else size,
        fold_tools=fold,
        keep_alive=0 if stays else None,
    )
    directory = env.directories.data / "agents" / name
    output.note(
        f"{model['model']} is warm with {model['context_size']} tokens; {name} needs {AGENTS[name].needs(fold)}"
    )
    return Endpoint(f"http://127.0.0.1:{host.state.port}", host.token, model["model"], model["context_size"], directory)


class _Warmth:
    """Restarts the keep-alive timer of a model for as long as an agent runs."""

    def __init__(self, env: Environment, reference: str) -> None:
        self._env, self._reference = env, reference
        self._ended = threading.Event()
        threading.Thread(target=self._stay, name="leap-launch", daemon=True).start()

    def _stay(self) -> None:
        from leap_core.protocols.host.lookup import keep_warm

        while not self._ended.wait(STAY_SECONDS):
            with suppress(LeapError):  # the agent tells what does not answer
                keep_warm(self._reference, variables=self._env.variables, cwd=self._env.cwd)

    def end(self) -> None:
        """The timer runs on."""
        self._ended.set()


def _write(directory: Path, files: Files) -> None:
    """Write an agent's files, readable for their user alone: they hold the key of this life of the host."""
    from leap_core.system.files import replacing

    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in files.items():
        if name.startswith(".") and (directory / name).exists():
            continue  # what the agent itself goes on writing
        with replacing(directory / name, mode=0o600) as file:
            file.write(text.encode())


def _describe(
    env: Environment, output: Output, name: str, needed: int, reference: str, size: int, command_line: list[str]
) -> None:
    about: dict[str, Any] = {
        "agent": name,
        "command": shlex.join(command_line),
        "model": reference,
        "needs": needed,
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
