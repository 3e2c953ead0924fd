"""A connection to a server of the Model Context Protocol, in a process of its own: ``main`` is all that it does.

The first line on standard input is ``{"command": [...]}`` or ``{"url": "..."}``; each further line is a question,
``{"id": n, "tool": name or null, "arguments": {...}, "limit": characters}``. A line of standard output answers one:
``{"id": n, "tools": [...]}``, ``{"id": n, "result": text}`` or ``{"id": n, "error": text}``. ``"broken": true`` beside
an error says that the connection is of no more use, and without an id that it never was. The end of the input ends it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from leap_core.tools.process_cleanup import SHELL, TELL, Lifeline

from ..schemas.json_values import JsonObject

Write = Callable[[JsonObject], None]

NEEDS_PACKAGE = "MCP servers need the mcp package: pip install 'leap-edge[mcp]'"
SPEAKING = ("MCPError", "FileNotFoundError")
"""Errors whose message says enough."""
PYDANTIC = re.compile(r"(?<!\d)\d+ validation errors? for ")
"""What the package adds to the message of an error: a description of its own types, over many lines."""
BYTE_ORDER_MARK = "\ufeff"
OPENS_MESSAGE = re.compile(r"\s*\{\s*(\"|$)")
LONGEST_SHOWN = 200
"""Characters of a line that a server wrote among its messages."""
TEXT_TYPE = re.compile(r"text/|application/.*(json|xml|yaml|toml|script|sql)")


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

    async def on_message(message: Any) -> None:
        if isinstance(message, Exception) and (fault := _fault(message)):
            write({"error": f"the MCP server failed: {fault}", "broken": True})
            os._exit(0)

    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # tracebacks of lines that on_message gets too
    async with Client(_target(server), message_handler=on_message) as client:
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
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    parameters.encoding_error_handler = "surrogateescape"  # type: ignore[assignment] # bytes that are no text spoil one line
    return parameters


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
    parts = [_text(part) for part in result.content]
    if result.structured_content is not None and not _repeats(parts, result.structured_content):
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text = "\n".join(parts)[: question["limit"]]
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
    """A part of a result as text. Of what a text model cannot take there is a line that says what it is."""
    if part.type == "text":
        return str(part.text)
    if part.type == "resource_link":
        about = [part.title or part.name, part.uri, part.mime_type, part.description]
        return f"[resource link: {', '.join(str(each) for each in about if each)}]"
    held = part.resource if part.type == "resource" else part
    text = getattr(held, "text", None)
    data = getattr(held, "blob", None) or getattr(held, "data", None)
    kind = held.mime_type or ""
    if text is None and data is not None and TEXT_TYPE.match(kind):
        with suppress(ValueError):
            text = base64.b64decode(data).decode()
    where = getattr(held, "uri", "")
    if text is not None:
        return f"[{where}]\n{text}" if where else str(text)
    size = f"{len(data or '') * 3 // 4} bytes, not shown"
    return f"[{part.type}: {', '.join(each for each in (str(where), kind, size) if each)}]"


def _repeats(parts: list[str], structured: Any) -> bool:
    """Whether the texts of a result say what its structured content does, as they should."""
    values: list[Any] = []
    for part in parts:
        try:
            values.append(json.loads(part))
        except (ValueError, RecursionError):
            values.append(part)
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        structured = structured["result"]
    return any(structured == each for each in (values, parts, *values, *parts))


def _fault(error: Exception) -> str | None:
    """What is wrong with a line that is no message of the protocol; None for a line of a log among the messages, which
    goes to standard error."""
    wrong = error.errors() if hasattr(error, "errors") else []
    whole = next((each["input"] for each in wrong if each["type"] == "missing" and len(each["loc"]) == 2), None)
    if isinstance(whole, dict) and "jsonrpc" in whole:
        kinds = {name: type(whole[name]).__name__ for name in ("id", "result", "error") if name in whole}
        return f"it wrote a message that is not as the protocol says: {json.dumps(kinds)}"
    line = wrong[0].get("input") if wrong else None
    if not isinstance(line, str):
        return None
    try:
        message = json.loads(line.lstrip(BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        if OPENS_MESSAGE.match(line.lstrip(BYTE_ORDER_MARK)):
            return "it wrote a message that is not JSON on one line"
    else:
        if isinstance(message, dict) and "jsonrpc" in message:
            return "it wrote a message that is not valid Unicode JSON"
    print(line.encode("utf-8", "backslashreplace").decode().strip()[:LONGEST_SHOWN], file=sys.stderr, flush=True)
    return None


def _reason(error: BaseException) -> str:
    """The innermost error: task groups wrap it."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    text, kind = PYDANTIC.split(str(error), maxsplit=1)[0].rstrip(": "), type(error).__name__
    if kind == "ValidationError":
        wrong = error.errors()[0]  # type: ignore[attr-defined]
        return f"its answer is not as the protocol says: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
    return text if kind in SPEAKING and text else ": ".join(each for each in (kind, text) if each)


if __name__ == "__main__":
    main()
