"""Where tools come from: files of functions or declarations, registered commands, MCP servers.

Takes paths and the table ``[tools]`` of config.toml, so that a command, a job and the library find the same tools.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ..conversation.calls.declaration import LeapFunction
from ..errors import LeapError, LeapSerializationError, LeapToolError, LeapToolNotFoundError
from ..system.configuration import check_setting
from ..system.dataclass import dataclass
from ..system.directories import Directories
from ..system.files import changing, replace_text
from ..system.plugins import TOOLS, Plugin, plugins
from .execution import Command, PythonFunction, run_process
from .mcp import McpTool, server_of, tool_name, tools_of, words_of
from .policy import ALLOW, FunctionPolicy, ToolPolicy, policy_from_table

DECLARE_SECONDS = 30.0
MOST_DECLARATIONS_BYTES = 4_000_000
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BUILTIN_MODULE = "leap_core.tools.builtin_tools"


def functions_of_file(
    path: Path, names: Collection[str] = (), on_warning: Callable[[str], object] | None = None
) -> list[LeapFunction]:
    """The tools of a file: ``.py`` (functions that leap can run) or JSON (declarations). Raises LeapToolError.
    ``names`` and ``on_warning`` as in ``functions_of_python``."""
    if path.suffix == ".py":
        return functions_of_python(path, names, on_warning)
    return functions_of_json(path)


def functions_of_python(
    path: Path, names: Collection[str] = (), on_warning: Callable[[str], object] | None = None
) -> list[LeapFunction]:
    """The public functions that a Python file defines. The file is run in a child process, never in this one.

    One that no model can call, such as one with ``*args``, is left out and ``on_warning`` gets the reason, unless it is
    one of ``names``: then it is an error.
    """
    if not path.is_file():
        raise LeapToolNotFoundError(f"there is no file {path}")
    source = PythonFunction("", file=path.resolve())
    request = json.dumps({"file": str(source.file), "declare": True}).encode()
    output, code, complaint = run_process(source, request, timeout=DECLARE_SECONDS, most_output=MOST_DECLARATIONS_BYTES)
    try:
        answer = json.loads(output)
    except ValueError:
        raise LeapToolError(f"{path} cannot be loaded: the process ended with code {code}: {complaint}") from None
    if "error" in answer:
        raise LeapToolError(f"{path} cannot be loaded: {answer['error']}")
    for name, reason in answer["skipped"].items():
        if name in names:
            raise LeapToolError(f"{path}: {reason}")
        if on_warning is not None and not names:
            on_warning(f"{path.name}: {reason}; it is left out")
    if not answer["functions"]:
        if answer["skipped"]:
            reasons = "; ".join(answer["skipped"].values())
            raise LeapToolError(f"{path} defines no function that a model can call: {reasons}")
        raise LeapToolError(f"{path} defines no public functions", hint="a name that begins with '_' is not public")
    return [
        replace(function, call=replace(source, name=function.name))
        for function in (LeapFunction.from_openai(tool) for tool in answer["functions"])
    ]


def functions_of_json(path: Path) -> list[LeapFunction]:
    """OpenAI's declarations: one, a list of them, or an object with ``tools``. leap cannot run these."""
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise LeapToolError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise LeapToolError(f"{path} is neither Python (.py) nor JSON: {error}") from None
    if isinstance(value, dict) and isinstance(value.get("tools"), list):
        value = value["tools"]
    tools = value if isinstance(value, list) else [value]
    try:
        functions = [LeapFunction.from_openai(tool, f"tools[{n}]") for n, tool in enumerate(tools)]
    except LeapSerializationError as error:
        raise LeapToolError(f"{path}: {error.message}", hint=error.hint) from None
    if not functions:
        raise LeapToolError(f"{path} declares no tools")
    return functions


def builtin_functions(directory: Path) -> list[LeapFunction]:
    """leap's own tools; ``read_file`` reads below ``directory``."""
    from . import builtin_tools

    fixed: dict[str, dict[str, Any]] = {"read_file": {"directory": str(directory)}}
    functions = []
    for tool in (builtin_tools.current_time, builtin_tools.calculate, builtin_tools.read_file):
        declared = LeapFunction.from_callable(tool)
        hidden = fixed.get(declared.name, {})
        parameters = [parameter for parameter in declared.parameters if parameter.name not in hidden]
        program = PythonFunction(declared.name, module=BUILTIN_MODULE, fixed=hidden or None)
        functions.append(replace(declared, parameters=parameters, call=program))
    return functions


def plugin_functions(
    directories: Directories, taken: Collection[str] = (), on_warning: Callable[[str], object] | None = None
) -> list[LeapFunction]:
    """The tools of installed plugins: functions that run in a child process. One that cannot be imported or declared,
    or whose name is ``taken``, is left out, and ``on_warning`` gets the reason."""
    functions = []
    for plugin in plugins(TOOLS, directories, reserved=taken, on_warning=on_warning).values():
        try:
            functions.append(_function_of_plugin(plugin))
        except LeapError as error:
            if on_warning is not None:
                on_warning(error.message)
    return functions


def _function_of_plugin(plugin: Plugin) -> LeapFunction:
    function = plugin.load()
    if not callable(function):
        raise plugin.error("is not a function")
    try:
        declared = LeapFunction.from_callable(function, name=plugin.name)
        return replace(declared, call=PythonFunction.of(function))
    except LeapError as error:
        raise plugin.error(f"cannot be a tool: {error.message}") from None


def is_own(function: LeapFunction) -> bool:
    """Whether a function is one of leap's own tools."""
    return isinstance(function.call, PythonFunction) and function.call.module == BUILTIN_MODULE


class CommandRegistry:
    """Commands that the user has registered as tools, kept in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def functions(self) -> list[LeapFunction]:
        """Every registered command as a function. Raises LeapToolError for a damaged file."""
        return [self._function(name, entry) for name, entry in self._read().items()]

    def add(
        self,
        name: str,
        command: str,
        description: str,
        schema: dict[str, Any],
        *,
        replace: bool = False,
        passes: Sequence[str] = (),
    ) -> None:
        """Register a command line (split as a shell would, run without one). ``passes``: names of variables that it
        gets beside the usual ones."""
        entry = {"command": words_of(command), "description": description, "parameters": schema, **_environment(passes)}
        self._function(name, entry)
        with changing(self._path):
            entries = self._read()
            if name in entries and not replace:
                raise LeapToolError(f"there is a tool {name} already", hint="remove it first, or add it with --replace")
            self._write({**entries, name: entry})

    def add_server(self, name: str, target: str, *, replace: bool = False, passes: Sequence[str] = ()) -> list[str]:
        """Register every tool of an MCP server, a command line or a URL; their names, which begin with ``name``. Names
        that leap would call the same are numbered.

        The server is asked once, now. Raises LeapToolError when it cannot be.
        """
        server = {**server_of(target), **_environment(passes)}
        added: dict[str, Any] = {}
        for tool in tools_of(server):
            entry = {
                "command": server.get("command") or [server["url"]],
                "description": tool["description"],
                "parameters": tool["parameters"],
                "mcp": {"name": name, "server": server, "tool": tool["name"]},
            }
            unique = tool_name(name, tool["name"], taken=added)
            self._function(unique, entry)
            added[unique] = entry
        with changing(self._path):
            entries = {key: entry for key, entry in self._read().items() if not _is_of(entry, name) or not replace}
            for each in added:
                if each in entries:
                    raise LeapToolError(f"there is a tool {each} already", hint="--replace replaces it")
            self._write({**entries, **added})
        return list(added)

    def remove(self, name: str) -> None:
        """Forget a command, or all tools of the MCP server of this name."""
        with changing(self._path):
            entries = self._read()
            left = {key: entry for key, entry in entries.items() if key != name and not _is_of(entry, name)}
            if len(left) == len(entries):
                raise LeapToolError(f"there is no registered tool {name}")
            self._write(left)

    def _function(self, name: str, entry: Any) -> LeapFunction:
        tool = {"name": name, "description": entry["description"], "parameters": entry["parameters"]}
        try:
            declared = LeapFunction.from_openai(tool, name)
        except LeapSerializationError as error:
            raise LeapToolError(error.message, hint=error.hint) from None
        mcp = entry.get("mcp")
        call = (
            Command(tuple(entry["command"]), entry.get("environment", ()))
            if mcp is None
            else McpTool(mcp["server"], mcp["tool"])
        )
        return replace(declared, call=call)

    def _read(self) -> dict[str, Any]:
        try:
            tools = json.loads(self._path.read_text(encoding="utf-8"))["tools"]
            for entry in tools.values():
                _check_entry(entry)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise LeapToolError(f"cannot read {self._path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise LeapToolError(
                f"{self._path} is damaged", hint="mend it, or remove it and add the tools again"
            ) from None
        return dict(tools)

    def _write(self, tools: dict[str, Any]) -> None:
        replace_text(self._path, json.dumps({"tools": tools}, ensure_ascii=False, indent=2))


def choose(names: Sequence[str], offered: Sequence[LeapFunction]) -> list[LeapFunction]:
    """The functions with these names, the first of each name in ``offered``. Raises LeapToolError for one unknown."""
    by_name: dict[str, LeapFunction] = {}
    for function in offered:
        by_name.setdefault(function.name, function)
    for name in names:
        if name not in by_name:
            raise LeapToolNotFoundError(f"there is no tool {name}", hint=f"known are {', '.join(by_name) or 'none'}")
    return [by_name[name] for name in dict.fromkeys(names)]


def _environment(passes: Sequence[str]) -> dict[str, Any]:
    for name in passes:
        if not VARIABLE.fullmatch(name):
            raise LeapToolError(f"{name!r} is no name of a variable", hint="its value is read when the tool runs")
    return {"environment": list(passes)} if passes else {}


def _is_of(entry: Any, server: str) -> bool:
    return bool(entry.get("mcp", {}).get("name") == server)


def _check_entry(entry: Any) -> None:
    command = entry["command"]
    if not isinstance(command, list) or not command or not all(isinstance(part, str) for part in command):
        raise ValueError
    if not isinstance(entry["description"], str) or not isinstance(entry["parameters"], dict):
        raise ValueError


REGISTRY_FILE = "tools.json"


@dataclass(frozen=True)
class ConfiguredTools:
    """``config_directory`` holds the registered commands; ``table`` is ``[tools]`` of config.toml; relative paths are
    below ``cwd``, which is also what ``read_file`` reads where the table names no directory."""

    config_directory: Path
    cwd: Path
    table: Mapping[str, Any] = field(default_factory=dict)

    @property
    def registry(self) -> CommandRegistry:
        """The registered commands."""
        return CommandRegistry(self.config_directory / REGISTRY_FILE)

    def functions(self) -> list[LeapFunction]:
        """Registered commands, then leap's own tools."""
        return [*self.registry.functions(), *builtin_functions(self.readable_directory)]

    def functions_of_files(
        self, files: Sequence[str], names: Sequence[str] = (), on_warning: Callable[[str], object] | None = None
    ) -> list[LeapFunction]:
        """The tools of all files, in order; ``names`` and ``on_warning`` as in ``functions_of_python``."""
        return [each for file in files for each in functions_of_file(self.cwd / file, names, on_warning)]

    @property
    def readable_directory(self) -> Path:
        """Where ``read_file`` may read: ``directory`` in ``[tools.read_file]``. Raises LeapOptionsError."""
        entry = self.table.get("read_file", {})
        directory = entry.get("directory") if isinstance(entry, Mapping) else None
        if directory is None:
            return self.cwd
        check_setting("tools.read_file.directory", directory, "tools.read_file.directory")
        return self.cwd / os.path.expanduser(str(directory))

    def policy(self, functions: Sequence[LeapFunction]) -> FunctionPolicy:
        """The policy of these functions. leap's own, and not another one of the same name, are allowed where the table
        says nothing else. Raises LeapOptionsError naming the entry."""
        own = {function.name: ToolPolicy(ALLOW) for function in functions if is_own(function)}
        table = {
            name: {key: item for key, item in value.items() if key != "directory"} if name == "read_file" else value
            for name, value in self.table.items()
        }
        return policy_from_table(table, FunctionPolicy(own))
