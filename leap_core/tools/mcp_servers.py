"""Tools of servers that speak the Model Context Protocol, called within the time and output that a policy allows."""

from __future__ import annotations

from ..json_fields import JsonObject
import re
import shlex
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from ..errors import LeapToolError
from .mcp_connections import McpConnection, connections


LIST_SECONDS = 30.0
NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True)
class McpTool:
    """A tool of a server, which is ``{"command": [...]}`` or ``{"url": "..."}``, with the names of the variables that
    a command gets beside the usual ones in ``environment``."""

    server: Mapping[str, Any]
    tool: str

    def answer(
        self, arguments: Mapping[str, Any], *, seconds: float, limit: int, cancelled: threading.Event | None = None
    ) -> str:
        """The result's text, ``limit`` characters at most. Raises LeapToolError."""
        question = {"tool": self.tool, "arguments": dict(arguments), "limit": limit}
        return str(connections.to(self.server).ask(question, seconds, cancelled)["result"])


def server_of(target: str) -> JsonObject:
    """The server behind a URL or a command line (split as a shell would, run without one). Raises LeapToolError."""
    if target.startswith(("http://", "https://")):
        return {"url": target}
    return {"command": words_of(target)}


def words_of(command: str) -> list[str]:
    """The words of a command line, as a shell would split it. Raises LeapToolError."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise LeapToolError(f"the command cannot be read: {error}") from None
    if not words:
        raise LeapToolError("the command is empty")
    return words


def tools_of(server: Mapping[str, Any], seconds: float = LIST_SECONDS) -> list[JsonObject]:
    """What a server offers: ``name``, ``description``, ``parameters``. Raises LeapToolError saying why it cannot."""
    connection = McpConnection(server)
    try:
        tools = connection.ask({"tool": None}, seconds).get("tools")
    finally:
        connection.close("the tools are known")
    if not isinstance(tools, list) or not tools:
        raise LeapToolError("the MCP server offers no tools")
    return tools


def tool_name(prefix: str, tool: str, taken: Collection[str] = ()) -> str:
    """What leap calls a server's tool: names of functions have letters, digits, _ and - only. Two tools may become the
    same by that; the later one is numbered."""
    name = NO_NAME.sub("_", f"{prefix}_{tool}")
    numbered = (f"{name}_{number}" for number in count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)
