"""The options that let a model call functions, shared by the commands that generate; and where tools are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from leap_core.system.dataclass import dataclass

from ..framework.arguments import absolute
from ..framework.environment import Environment
from ..framework.interrupts import raising_on_interrupt
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Output, printable

if TYPE_CHECKING:
    from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
    from leap_core.conversation.runner import ModelRunner
    from leap_core.tools.policy import FunctionPolicy
    from leap_core.tools.sources import ConfiguredTools

MOST_ROUNDS = 1000
FOLD_TOOLS = option(
    "--tool-search",
    type=click.IntRange(1),
    is_flag=False,
    flag_value=2000,
    metavar="[N]",
    help="If tool declarations exceed N tokens (2000), list each tool in one line and let the model search for "
    "those it needs.",
)

_OPTIONS = (
    option("--tool", multiple=True, metavar="NAME", help="Let the model call this tool of leap tools list."),
    option(
        "--tools-file",
        "--tools",
        "tools_file",
        multiple=True,
        type=click.Path(dir_okay=False),
        saved=absolute,
        help="Load tools from this Python file or JSON declarations; all of them are offered unless --tool "
        "selects some.",
    ),
    option(
        "--tool-choice",
        metavar="WHEN",
        help="Tool choice: the model decides (auto, default), any tool (required), one tool by name, or none.",
    ),
    option("--allow-tool", multiple=True, metavar="NAME", help="Run this tool without confirmation."),
    option("--show-calls", is_flag=True, help="Show tool calls and results on stderr."),
    option(
        "--max-tool-iterations",
        type=click.IntRange(1, MOST_ROUNDS),
        help="Limit the rounds of tool calls in one answer; 8 by default. Exit code 7 at the limit.",
    ),
    FOLD_TOOLS,
)


@dataclass(frozen=True)
class Tools:
    """What the flags ask for. ``choice`` is the tool_choice of the options, ``allowed`` what runs without asking,
    ``rounds`` the most rounds of calls in one answer where that was given, ``fold`` the tokens of declarations above
    which they are folded."""

    functions: Sequence[LeapFunction] = ()
    policy: FunctionPolicy | None = None
    allowed: Sequence[str] = ()
    choice: str | None = None
    show_calls: bool = False
    rounds: int | None = None
    fold: int | None = None

    def folding(self, runner: ModelRunner) -> ModelRunner:
        """The runner, with the tools folded where that is wanted."""
        if self.fold is None:
            return runner
        from leap_core.conversation.wrapping import wrapped
        from leap_core.tools.deferred_tools import FoldingRunner

        return wrapped(runner, fold=partial(FoldingRunner, most_tokens=self.fold))


def _build(arguments: Arguments) -> Tools:
    """Raises LeapToolError for tools that are not there."""
    env, names, files = arguments.env, arguments["tool"], arguments["tools_file"]
    allowed, choice, rounds = arguments["allow_tool"], arguments["tool_choice"], arguments["max_tool_iterations"]
    if not names and not files:
        if allowed:
            raise click.UsageError(f"--allow-tool {allowed[0]} needs tools: give --tool or --tools-file")
        if choice not in (None, "auto", "none"):
            raise click.UsageError(f"--tool-choice {choice} needs tools: give --tool or --tools-file")
        return Tools(choice=choice, rounds=rounds)
    from leap_core.tools.sources import choose

    from_files = configured_tools(env).functions_of_files(files, names, Output(env).warning)
    if names:
        functions = choose(names, [*from_files, *known_tools(env)])
    else:
        functions = choose([function.name for function in from_files], from_files)
    choose(allowed, functions)
    policy = replace(_policy(env, functions, rounds).allowing(allowed), ask=asker(env))
    return Tools(functions, policy, allowed, choice, arguments["show_calls"], rounds, arguments["tool_search"])


TOOLS = OptionGroup("tools", "Tools", _OPTIONS, _build)


def choose_tools(names: Sequence[str], before: Tools, env: Environment) -> Tools:
    """The tools of these names in the place of those ``before``. Raises LeapToolError for one that is not there."""
    from leap_core.tools.sources import choose

    functions = choose(names, [*before.functions, *known_tools(env)])
    ask = before.policy.ask if before.policy is not None else asker(env)
    policy = replace(_policy(env, functions, before.rounds).allowing(before.allowed), ask=ask)
    return replace(before, functions=functions, policy=policy)


def limit_rounds(tools: Tools, rounds: int | None, env: Environment) -> Tools:
    """The same tools with at most so many rounds of calls in one answer; None is what is configured."""
    if tools.policy is None:
        return replace(tools, rounds=rounds)
    limit = rounds if rounds is not None else read_policy(env, tools.functions).rounds
    return replace(tools, rounds=rounds, policy=replace(tools.policy, rounds=limit))


def configured_tools(env: Environment) -> ConfiguredTools:
    """The tools of this user, with ``[tools]`` of the configuration."""
    from leap_core.system.configuration import read_table
    from leap_core.tools.sources import ConfiguredTools

    table = read_table(env.directories.config_file).get("tools", {})
    if not isinstance(table, dict):
        raise click.UsageError(f"{env.directories.config_file}: tools must be a table")
    return ConfiguredTools(env.directories.config, env.cwd, table)


def known_tools(env: Environment) -> list[LeapFunction]:
    """Registered commands, leap's own tools, then those of plugins."""
    from leap_core.system.configuration import naming_file
    from leap_core.tools.sources import plugin_functions

    with naming_file(env.directories.config_file):
        functions = configured_tools(env).functions()
    taken = [function.name for function in functions]
    return [*functions, *plugin_functions(env.directories, taken, partial(Output(env).warning, once=True))]


def read_policy(env: Environment, functions: Sequence[LeapFunction]) -> FunctionPolicy:
    """What the configuration says of these functions."""
    from leap_core.system.configuration import naming_file

    with naming_file(env.directories.config_file):
        return configured_tools(env).policy(functions)


def _policy(env: Environment, functions: Sequence[LeapFunction], rounds: int | None) -> FunctionPolicy:
    policy = read_policy(env, functions)
    return policy if rounds is None else replace(policy, rounds=rounds)


def asker(env: Environment) -> Callable[[LeapFunction, LeapFunctionCall], bool] | None:
    """Asks at the terminal, showing the exact call; None without a terminal. "a" allows a tool for the rest, Ctrl-C
    ends the answer."""
    if not (env.stdin_is_terminal and env.stderr_is_terminal):
        return None
    always: set[str] = set()

    def ask(function: LeapFunction, call: LeapFunctionCall) -> bool:
        if function.name in always:
            return True
        from leap_core.conversation.calls.pythonic import write_calls

        env.stderr.write(f"the model calls {printable(write_calls([call])[1:-1])}\n")
        env.stderr.flush()
        try:
            with raising_on_interrupt():
                answer = env.read_typed_line("run it? [y]es, [n]o, [a]lways: ").strip().lower()
        except EOFError:
            env.stderr.write("\n")
            return False
        if answer in ("a", "always"):
            always.add(function.name)
        return answer in ("y", "yes", "a", "always")

    return ask
