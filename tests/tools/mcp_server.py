"""An MCP server with three tools, made with the official package; the tests start it as a process."""

import os
import sys
import time

from mcp.server.mcpserver import MCPServer

server = MCPServer("three", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@server.tool()
def fail(how: str) -> str:
    """Fail in one of several ways."""
    if how == "die":
        os._exit(3)
    if how == "hang":
        time.sleep(1000)
    raise ValueError("no light")


if __name__ == "__main__":
    if sys.argv[1:] == ["nonsense"]:
        print("hello, I am no server", flush=True)
        sys.stdin.read()
    server.run("stdio")
