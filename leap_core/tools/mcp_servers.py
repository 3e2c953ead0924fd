"""Tools of servers that speak the Model Context Protocol. Each call asks a fresh connection in a process of its own,
under the time and the output that leap's policy allows, so a server that hangs or dies fails one call."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import LeapToolError
from ..storage.directories import packages_directory
from .execution import run_process

JsonObject = dict[str, Any]

CHILD = """
import sys
sys.path = {places!a} + [place for place in sys.path if place]
from leap_core.tools.mcp_child import main
main()
"""
LIST_SECONDS = 30.0
MOST_DECLARATIONS_BYTES = 4_000_000
NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True)
class McpTool:
    """A tool of a server, which is ``{"command": [...]}`` or ``{"url": "..."}``; ``tool`` None asks for the list."""

    server: Mapping[str, Any]
    tool: str | None

    @property
    def argv(self) -> Sequence[str]:
        return [sys.executable, "-X", "utf8", "-c", CHILD.format(places=[str(packages_directory())])]

    @property
    def environment(self) -> None:
        return None

    def request(self, arguments: Mapping[str, Any], limit: int) -> bytes:
        return json.dumps({"server": dict(self.server), "tool": self.tool, "arguments": dict(arguments)}).encode()

    def most_output(self, limit: int) -> int:
        return 12 * limit + 10_000  # JSON needs up to 12 bytes for a character

    def result(self, output: bytes, code: int, complaint: str, limit: int) -> str:
        return str(_answer(output, code, complaint)["result"])[:limit]


def server_of(target: str) -> JsonObject:
    """The server behind a URL or a command line (split as a shell would, run without one). Raises LeapToolError."""
    if target.startswith(("http://", "https://")):
        return {"url": target}
    try:
        command = shlex.split(target)
    except ValueError as error:
        raise LeapToolError(f"the command cannot be read: {error}") from None
    if not command:
        raise LeapToolError("the command is empty")
    return {"command": command}


def tools_of(server: Mapping[str, Any], seconds: float = LIST_SECONDS) -> list[JsonObject]:
    """What a server offers: ``name``, ``description``, ``parameters``. Raises LeapToolError saying why it cannot."""
    program = McpTool(server, None)
    output, code, complaint = run_process(
        program, program.request({}, 0), timeout=seconds, most_output=MOST_DECLARATIONS_BYTES
    )
    tools = _answer(output, code, complaint).get("tools")
    if not isinstance(tools, list) or not tools:
        raise LeapToolError("the MCP server offers no tools")
    return tools


def tool_name(prefix: str, tool: str) -> str:
    """What leap calls a server's tool: names of functions have letters, digits, _ and - only."""
    return NO_NAME.sub("_", f"{prefix}_{tool}")


def _answer(output: bytes, code: int, complaint: str) -> JsonObject:
    try:
        answer = json.loads(output)
    except ValueError:
        after = f": {complaint}" if complaint else ""
        raise LeapToolError(f"the MCP server gave no answer (code {code}){after}") from None
    if "error" in answer:
        raise LeapToolError(str(answer["error"]))
    return dict(answer)
