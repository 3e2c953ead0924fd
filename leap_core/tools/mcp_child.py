"""A connection to a server of the Model Context Protocol, in a process of its own: ``main`` is all that it does.

The first line on standard input is ``{"command": [...]}`` or ``{"url": "..."}``; each further line is a question,
``{"id": n, "tool": name or null, "arguments": {...}, "limit": characters}``. A line of standard output answers one:
``{"id": n, "tools": [...]}``, ``{"id": n, "result": text}`` or ``{"id": n, "error": text}``. ``"broken": true`` beside
an error says that the connection is of no more use, and without an id that it never was. The end of the input ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leap_core.tools.lifeline import SHELL, TELL, Lifeline

from ..schemas.json_values import JsonObject

Write = Callable[[JsonObject], None]

NEEDS_PACKAGE = "MCP servers need the mcp package: pip install 'leap-edge[mcp]'"
SPEAKING = ("MCPError", "FileNotFoundError")
"""Errors whose message says enough."""


def main() -> None:
    """Answer questions until there are no more. What the packages print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def write(answer: JsonObject) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        asyncio.run(_connect(json.loads(sys.stdin.buffer.readline()), write))
    except ImportError:
        write({"error": NEEDS_PACKAGE, "broken": True})
    except BaseException as error:
        write({"error": f"the MCP server failed: {_reason(error)}", "broken": True})
    os._exit(0)  # a server that does not end must not hold this process back


async def _connect(server: JsonObject, write: Write) -> None:
    from mcp import Client

    questions: asyncio.Queue[JsonObject | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(questions.put_nowait, json.loads(line))
        loop.call_soon_threadsafe(questions.put_nowait, None)

    async with Client(_target(server)) as client:
        threading.Thread(target=read, daemon=True).start()
        answering = set()
        while (question := await questions.get()) is not None:
            task = asyncio.create_task(_answer(client, question, write))
            answering.add(task)
            task.add_done_callback(answering.discard)


def _target(server: JsonObject) -> Any:
    """What the package connects to. A server's process, which it puts into a group of its own, ends with this one."""
    from mcp import StdioServerParameters

    if "url" in server:
        return server["url"]
    command, *arguments = server["command"]
    found = shutil.which(command)
    if found is None:
        raise FileNotFoundError(f"there is no command {command}")
    if sys.platform == "win32":
        command = found
    elif os.path.exists(SHELL):
        group_file = Path(tempfile.mkdtemp(prefix="leap-mcp-")) / "group"
        os.mkfifo(group_file)
        threading.Thread(target=_tie, args=(group_file,), daemon=True).start()
        command, arguments = SHELL, ["-c", TELL, str(group_file), command, *arguments]
    return StdioServerParameters(command=command, args=arguments, env=dict(os.environ))


def _tie(group_file: Path) -> None:
    lifeline = Lifeline()
    lifeline.tie(int(group_file.read_text()))  # waits until the server writes it
    shutil.rmtree(group_file.parent)
    threading.Event().wait()  # the lifeline is let go of with this process


async def _answer(client: Any, question: JsonObject, write: Write) -> None:
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    try:
        answer = await _ask(client, question)
    except Exception as error:
        broken = not isinstance(error, MCPError) or error.code == CONNECTION_CLOSED
        answer = {"error": f"the MCP server failed: {_reason(error)}", "broken": broken}
    write({"id": question["id"], **answer})


async def _ask(client: Any, question: JsonObject) -> JsonObject:
    if question["tool"] is None:
        return {"tools": await _tools(client)}
    result = await client.call_tool(question["tool"], question["arguments"])
    text = "\n".join(_text(part) for part in result.content)
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    text = text[: question["limit"]]
    return {"error": text or "the tool failed"} if result.is_error else {"result": text}


async def _tools(client: Any) -> list[JsonObject]:
    tools, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += [
            {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if not cursor:
            return tools


def _text(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    return f"[{part.type}: {getattr(part, 'mime_type', None) or getattr(part, 'uri', '')}]"


def _reason(error: BaseException) -> str:
    """The innermost error: task groups wrap it."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    if type(error).__name__ in SPEAKING and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


if __name__ == "__main__":
    main()
