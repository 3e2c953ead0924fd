"""An MCP server with four tools, made with the official package; the tests start it as a process.

``nonsense``: it prints a line that is no protocol and never answers. ``http``: it serves over HTTP and prints its URL.
"""

import os
import socket
import sys
import time

from mcp.server.mcpserver import MCPServer

server = MCPServer("three", log_level="ERROR")
calls = 0


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@server.tool()
def count() -> str:
    """Count the calls, and tell the process."""
    global calls
    calls += 1
    return f"{calls} {os.getpid()}"


@server.tool()
def fail(how: str) -> str:
    """Fail in one of several ways."""
    if how == "die":
        os._exit(3)
    if how == "hang":
        time.sleep(1000)
    raise ValueError("no light")


def serve_http() -> None:
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        serve_http()
    if sys.argv[1:] == ["nonsense"]:
        print("hello, I am no server", flush=True)
        sys.stdin.read()
    server.run("stdio")
