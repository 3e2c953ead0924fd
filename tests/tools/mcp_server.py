"""An MCP server with six tools, made with the official package; the tests start it as a process.

``nonsense``: it prints a line that is no protocol and never answers. ``broken``: it dies at
an import. ``http``: it serves over HTTP and prints its URL.
"""

import os
import socket
import sys
import time

if sys.argv[1:] == ["broken"]:
    import no_such_module_of_mine  # noqa: F401
if sys.argv[1:] == ["nonsense"]:
    print("hello, I am no server", flush=True)
    sys.stdin.read()

from mcp.server.mcpserver import MCPServer  # noqa: E402

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


@server.tool(name="a b")
def spaced() -> str:
    """One of two whose names become the same."""
    return "spaced"


@server.tool(name="a.b")
def dotted() -> str:
    """The other one; it shows the secrets that it got."""
    return f"dotted {sorted(name for name, value in os.environ.items() if value == 'planted')}"


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
    server.run("stdio")
