"""``leap tools``: what a model may be allowed to call."""

from __future__ import annotations

import json
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapSchemaError, LeapToolError

from ...exit_codes import ExitCode
from ...framework.click_classes import format_option, leap_group
from ...framework.environment import Environment
from ...framework.options import option
from ...framework.output import Format, Output
from ...options.constraints import read_document
from ...options.tools import asker, configured_tools, known_tools, read_policy

if TYPE_CHECKING:
    from leap_core.conversation.calls import LeapFunction

tools_file = click.option(
    "--tools-file",
    "--tools",
    "tools_file",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Load tools from this Python file or JSON declarations.",
)


@leap_group("tools")
def command() -> None:
    """Tools for tool calling: functions of a Python file, registered commands, and leap's own.

    Policies are set in the configuration file: [tools.NAME] with policy = "allow", "ask", "decide" or "deny", timeout
    (seconds) and output_limit (bytes).
    """


@command.command("list")
@tools_file
@format_option("names")
def list_tools(env: Environment, /, tools_file: tuple[str, ...], format: str) -> None:
    """List the available tools."""
    functions = _offered(env, tools_file)
    policy = read_policy(env, functions)
    records = [
        {
            "name": function.name,
            "source": _source(function),
            "policy": policy.of(function.name).decision,
            "description": function.description,
        }
        for function in functions
    ]
    Output(env, format).records(records, ["name", "source", "policy", "description"], name="name")


@command.command("show")
@click.argument("name")
@tools_file
def show(env: Environment, /, name: str, tools_file: tuple[str, ...]) -> None:
    """Print the declaration of a tool as the model sees it."""
    Output(env).document(_find(env, name, tools_file).to_json_object())


@command.command("add")
@click.argument("name")
@click.option(
    "--command", "line", metavar="COMMAND", help="Command of the tool with its arguments, run without a shell."
)
@click.option(
    "--mcp", metavar="COMMAND|URL", help="Register all tools of an MCP server, as NAME_TOOL; needs leap-edge[mcp]."
)
@click.option(
    "--json-schema",
    "--schema",
    "schema",
    metavar="SCHEMA",
    help="Schema of the arguments (a file, JSON, or the shorthand), or a tool declaration.",
)
@click.option("--description", default="", help="Description of the tool for the model.")
@click.option(
    "--env",
    "passes",
    multiple=True,
    metavar="NAME",
    help="Pass this environment variable to the tool; its value is read when it runs.",
)
@click.option("--replace", is_flag=True, help="Replace a tool of the same name.")
def add(
    env: Environment,
    /,
    name: str,
    line: str | None,
    mcp: str | None,
    schema: str | None,
    description: str,
    passes: tuple[str, ...],
    replace: bool,
) -> None:
    """Register a command as a tool: arguments arrive as JSON on its standard input, the result is its standard output.

    With --mcp every tool of an MCP server is registered; remove NAME removes them all.
    """
    if (line is None) == (mcp is None):
        raise click.UsageError("give --command or --mcp")
    if mcp is not None:
        if schema is not None or description:
            raise click.UsageError("--mcp takes the schema and the description from the server")
        added = configured_tools(env).registry.add_server(name, mcp, replace=replace, passes=passes)
        Output(env).note(f"added {', '.join(added)}")
        return
    assert line is not None
    arguments: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    if schema is not None:
        declared = _declaration(schema, env)
        description = description or declared["description"] or ""
        arguments = declared["parameters"]
    configured_tools(env).registry.add(name, line, description, arguments, replace=replace, passes=passes)
    Output(env).note(f"added {name}; its policy is {read_policy(env, ()).of(name).decision}")
    for problem in _problems(_find(env, name, ()))[0]:
        Output(env).warning(f"{name}: {problem}")


@command.command("remove")
@click.argument("name")
def remove(env: Environment, /, name: str) -> None:
    """Remove a registered command."""
    configured_tools(env).registry.remove(name)


@command.command("check")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@tools_file
@format_option("names")
def check(env: Environment, /, names: tuple[str, ...], tools_file: tuple[str, ...], format: str) -> ExitCode:
    """Check tools (all, or those named): the command exists, and the declaration can be enforced."""
    from leap_core.tools.sources import choose

    output = Output(env, format)
    offered = _offered(env, tools_file, names)
    records = []
    for function in choose(names, offered) if names else offered:
        problems, warnings = _problems(function)
        records.append({"name": function.name, "problems": problems, "warnings": warnings})
        if output.format is Format.TEXT:
            for warning in warnings:
                output.warning(f"{function.name}: {warning}")
            output.text(f"{function.name}: {'; '.join(problems) or 'ok'}\n")
    if output.format is not Format.TEXT:
        output.records(records, [], name="name")
    return ExitCode.TOOL if any(record["problems"] for record in records) else ExitCode.DONE


@command.command("call")
@click.argument("name")
@click.argument("arguments", default="{}")
@tools_file
@option("-y", "--yes", "allow", is_flag=True, help="Run the tool without confirmation.")
def call(env: Environment, /, name: str, arguments: str, tools_file: tuple[str, ...], allow: bool) -> None:
    """Call a tool as a model would: ARGUMENTS is a JSON object. The result goes to stdout."""
    from leap_core.conversation.calls import LeapFunctionCall
    from leap_core.schemas.json_schema import parse_json
    from leap_core.tools.execution import run_call
    from leap_core.tools.policy import ALLOW, DENY

    function = _find(env, name, tools_file)
    try:
        values = parse_json(arguments)
    except ValueError as error:
        form = _example(function, arguments)
        raise click.UsageError(f"the arguments are not JSON ({error}), as in: {form}") from None
    if not isinstance(values, dict):
        raise click.UsageError(f"the arguments are no JSON object, as in: {_example(function, values)}")
    if not values and function.arguments_schema.get("required"):
        raise click.UsageError(f"{name} needs arguments, as in: {_example(function, '...')}")
    made = LeapFunctionCall(name, values)
    policy = read_policy(env, [function]).of(name)
    if policy.decision == DENY:
        raise LeapToolError(f"the policy denies {name}", hint=f"change [tools.{name}] in the configuration")
    if policy.decision != ALLOW and not allow:
        ask = asker(env)
        if ask is None:
            raise LeapToolError(f"the policy of {name} is to ask, and there is no terminal", hint="give --yes")
        if not ask(function, made):
            raise LeapToolError("the call was refused")
    result = run_call(function, made, policy)
    if result.error is not None:
        raise LeapToolError(f"{name}: {result.error}")
    Output(env).text(result.text if result.text.endswith("\n") else result.text + "\n")


LONGEST_EXAMPLE = 60


def _example(function: LeapFunction, given: Any) -> str:
    """A call of the tool with what was given as its arguments."""
    schema = function.arguments_schema
    names = schema.get("required") or list(schema.get("properties", {}))[:1]
    shown = given if len(str(given)) <= LONGEST_EXAMPLE else "..."
    values = json.dumps(dict.fromkeys(names, shown), ensure_ascii=False)
    return f"leap tools call {function.name} {shlex.quote(values)}"


def _offered(env: Environment, files: tuple[str, ...], names: tuple[str, ...] = ()) -> list[LeapFunction]:
    from leap_core.tools.sources import choose

    functions = [*configured_tools(env).functions_of_files(files, names, Output(env).warning), *known_tools(env)]
    return choose([function.name for function in functions], functions)


def _find(env: Environment, name: str, files: tuple[str, ...]) -> LeapFunction:
    from leap_core.tools.sources import choose

    return choose([name], _offered(env, files, (name,)))[0]


def _source(function: LeapFunction) -> str:
    from leap_core.tools.execution import Command, PythonFunction
    from leap_core.tools.mcp import McpTool
    from leap_core.tools.sources import is_own

    program = function.call
    if isinstance(program, Command):
        return "command"
    if isinstance(program, McpTool):
        return "mcp"
    if isinstance(program, PythonFunction):
        return "leap" if is_own(function) else "plugin" if program.file is None else program.file.name
    return "declaration"


def _declaration(schema: str, env: Environment) -> dict[str, Any]:
    """A tool's declaration out of ``--schema``: its own, or the schema of its arguments."""
    from leap_core.schemas.json_schema import check_schema

    value = read_document(schema, env)
    function: dict[str, Any] = {}
    if isinstance(value, dict):
        function = value["function"] if isinstance(value.get("function"), dict) else value
    parameters = (
        function["parameters"] if "name" in function and isinstance(function.get("parameters"), dict) else value
    )
    checked = check_schema(parameters).document
    if checked.get("type", "object") != "object":
        raise LeapSchemaError("the arguments of a tool are an object", pointer="/type")
    return {"description": function.get("description") if parameters is not value else None, "parameters": checked}


def _problems(function: LeapFunction) -> tuple[list[str], list[str]]:
    from leap_core.inference.constraints.compiling import problems_of_calls
    from leap_core.tools.execution import Command

    unusable, warnings = problems_of_calls([function])
    problems = list(unusable)
    if isinstance(function.call, Command) and shutil.which(function.call.argv[0]) is None:
        problems.insert(0, f"there is no command {function.call.argv[0]}")
    return problems, list(warnings)
