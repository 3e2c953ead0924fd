"""The options that let a model call functions, shared by the commands that generate; and where tools are found."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leap_core.errors import LeapOptionsError

from ..framework.environment import Environment
from ..framework.interrupts import raising_on_interrupt
from ..framework.output import one_line

if TYPE_CHECKING:
    from leap_core.functions import LeapFunction, LeapFunctionCall
    from leap_core.messages import ChatMessage
    from leap_core.options import GenerationOptions
    from leap_core.runner.conversation import Conversation
    from leap_core.runner.streams import Stream
    from leap_core.tools.policy import FunctionPolicy
    from leap_core.tools.sources import CommandRegistry

    from ..answers.show import Calls

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def tool_flags(function: Decorated) -> Decorated:
    """Add the flags; the function receives tool, tools_file, tool_choice, allow_tool and show_calls."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option("--tool", multiple=True, metavar="NAME", help="Let the model call this tool (see leap tools list)."),
    click.option(
        "--tools-file",
        "--tools",
        "tools_file",
        multiple=True,
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Tools of a Python file, or declarations as JSON; all of them unless --tool names some.",
    ),
    click.option("--tool-choice", metavar="WHEN", help="auto (default), required, none, or a tool's name."),
    click.option("--allow-tool", multiple=True, metavar="NAME", help="Run this tool without asking."),
    click.option("--show-calls", is_flag=True, help="Show calls and their results on stderr."),
)


@dataclass
class Tools:
    """What the flags ask for. ``choice`` is the tool_choice of the options, ``allowed`` what runs without asking."""

    functions: list[LeapFunction] = field(default_factory=list)
    policy: FunctionPolicy | None = None
    allowed: Sequence[str] = ()
    choice: str | None = None
    show_calls: bool = False

    def calls(self) -> Calls | None:
        """How calls are shown: None, as the answer, where some tools are only declared."""
        from ..answers.show import Calls

        runnable = self.functions and all(function.call is not None for function in self.functions)
        return Calls(self.show_calls) if runnable else None

    def respond(
        self, conversation: Conversation, message: ChatMessage | str | None, options: GenerationOptions
    ) -> Stream:
        """The answer to ``message``, or to the history as it is, with the calls that it takes."""
        if not self.functions:
            return conversation.generate_response(message, options)
        from leap_core.tools.run import run_functions

        assert self.policy is not None
        return run_functions(conversation, self.policy, message, options)


def take_tools(flags: dict[str, Any], env: Environment) -> Tools:
    """Take the flags out of ``flags``. Raises LeapToolError for tools that are not there."""
    names, files = list(flags.pop("tool")), list(flags.pop("tools_file"))
    allowed, choice, show = list(flags.pop("allow_tool")), flags.pop("tool_choice"), flags.pop("show_calls")
    if not names and not files:
        if choice not in (None, "auto", "none"):
            raise click.UsageError(f"--tool-choice {choice} needs tools: give --tool or --tools-file")
        return Tools(choice=choice)
    from leap_core.tools.sources import choose

    from_files = functions_of_files(files, env)
    if names:
        functions = choose(names, [*from_files, *known_tools(env)])
    else:
        functions = choose([function.name for function in from_files], from_files)
    policy = replace(read_policy(env, functions).allowing(allowed), ask=asker(env))
    return Tools(functions, policy, allowed, choice, show)


def choose_tools(names: Sequence[str], before: Tools, env: Environment) -> Tools:
    """The tools of these names in the place of those ``before``. Raises LeapToolError for one that is not there."""
    from leap_core.tools.sources import choose

    functions = choose(names, [*before.functions, *known_tools(env)])
    ask = before.policy.ask if before.policy is not None else asker(env)
    policy = replace(read_policy(env, functions).allowing(before.allowed), ask=ask)
    return replace(before, functions=functions, policy=policy)


def functions_of_files(files: Sequence[str], env: Environment) -> list[LeapFunction]:
    """The tools of all files, in order."""
    from leap_core.tools.sources import functions_of_file

    return [function for file in files for function in functions_of_file(env.cwd / file)]


def known_tools(env: Environment) -> list[LeapFunction]:
    """Registered commands, then leap's own tools."""
    from leap_core.tools.sources import builtin_functions

    return [*registry(env).functions(), *builtin_functions(_readable_directory(env))]


def registry(env: Environment) -> CommandRegistry:
    """The registered commands."""
    from leap_core.tools.sources import CommandRegistry

    return CommandRegistry(env.directories.config / "tools.json")


def read_policy(env: Environment, functions: Sequence[LeapFunction]) -> FunctionPolicy:
    """``[tools]`` of the configuration for these functions; those that are leap's own, and not only called like them,
    are allowed where it does not say otherwise."""
    from leap_core.tools.policy import ALLOW, FunctionPolicy, ToolPolicy, policy_from_table
    from leap_core.tools.sources import is_own

    own = {function.name: ToolPolicy(ALLOW) for function in functions if is_own(function)}
    table = _tools_table(env)
    without = {
        key: {k: v for k, v in value.items() if k != "directory"} if key == "read_file" else value
        for key, value in table.items()
    }
    try:
        return policy_from_table(without, FunctionPolicy(own))
    except LeapOptionsError as error:
        raise click.UsageError(f"{env.directories.config_file}: {error.message}") from None


def asker(env: Environment) -> Callable[[LeapFunction, LeapFunctionCall], bool] | None:
    """Asks at the terminal, showing the exact call; None without a terminal. "a" allows a tool for the rest, Ctrl-C is
    a no."""
    if not (env.stdin_is_terminal and env.stderr_is_terminal):
        return None
    always: set[str] = set()

    def ask(function: LeapFunction, call: LeapFunctionCall) -> bool:
        if function.name in always:
            return True
        from leap_core.functions.pythonic import write_calls

        shown = one_line(write_calls([call])[1:-1])
        env.stderr.write(f"the model calls {shown}\n")
        env.stderr.flush()
        try:
            with raising_on_interrupt():
                answer = env.read_typed_line("run it? [y]es, [n]o, [a]lways: ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            env.stderr.write("\n")
            return False
        if answer in ("a", "always"):
            always.add(function.name)
        return answer in ("y", "yes", "a", "always")

    return ask


def _readable_directory(env: Environment) -> Path:
    """What ``read_file`` may read: ``directory`` in ``[tools.read_file]``, else where the command runs."""
    table = _tools_table(env).get("read_file", {})
    directory = table.get("directory") if isinstance(table, dict) else None
    if directory is None:
        return env.cwd
    if not isinstance(directory, str) or not directory:
        raise click.UsageError(f"{env.directories.config_file}: tools.read_file.directory must be a path")
    return env.cwd / os.path.expanduser(directory)


def _tools_table(env: Environment) -> dict[str, Any]:
    from leap_core.configuration import read_table

    table = read_table(env.directories.config_file).get("tools", {})
    if not isinstance(table, dict):
        raise click.UsageError(f"{env.directories.config_file}: tools must be a table")
    return table
