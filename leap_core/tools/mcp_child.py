"""One question to a server of the Model Context Protocol, in a process of its own: ``main`` is all that it does.

Reads ``{"server": {"command": [...]} or {"url": "..."}, "tool": name or null, "arguments": {...}}`` on standard input,
writes ``{"tools": [...]}``, ``{"result": text}`` or ``{"error": text}`` on standard output.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

JsonObject = dict[str, Any]


def main() -> None:
    """Answer the one question. What the packages print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    order = json.loads(sys.stdin.buffer.read())
    try:
        answer = asyncio.run(_ask(order))
    except ImportError:
        answer = {"error": "MCP servers need the mcp package: pip install 'leap-edge[mcp]'"}
    except BaseException as error:
        answer = {"error": f"the MCP server failed: {_reason(error)}"}
    answers.write(json.dumps(answer))
    answers.flush()
    os._exit(0)  # a server that does not end must not hold the answer back


async def _ask(order: JsonObject) -> JsonObject:
    from mcp import Client, StdioServerParameters

    server, tool = order["server"], order["tool"]
    target: Any = server.get("url")
    if target is None:
        command, *arguments = server["command"]
        target = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with Client(target) as client:
        if tool is None:
            return {"tools": await _tools(client)}
        result = await client.call_tool(tool, order["arguments"])
    text = "\n".join(_text(part) for part in result.content)
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
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
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


if __name__ == "__main__":
    main()
