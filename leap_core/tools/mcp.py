"""Tools of servers that speak the Model Context Protocol, over connections that are kept.

A connection that hangs, dies or answers nonsense fails the calls that wait for it; the next call opens another one.
"""

from __future__ import annotations

import atexit
import json
import queue
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from ..errors import LeapToolError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from ..system.directories import packages_directory
from ..system.processes import CREATION_FLAGS, OF_A_SESSION, kill_group
from .execution import StreamTail, short_environment
from .process_cleanup import Lifeline

CHILD = """
import sys
sys.path = {places!a} + [place for place in sys.path if place]
from leap_core.tools.mcp_child import main
main()
"""
COMPLAINT_BYTES = 2000
MOST_LAST_LINES = 8
"""Lines of what a server wrote to standard error in the error that its end is: the last ones say why."""
LONGEST_ANSWER = 64 * 1024 * 1024
POLL_SECONDS = 0.05
OVER = "this program ends"
LEAVE_SECONDS = 3.0
"""A server has this long to end by itself when this process ends."""


class McpConnection:
    """One process that speaks to ``server``. Any thread may ask. Raises LeapToolError when it cannot be started."""

    def __init__(self, server: Mapping[str, Any]) -> None:
        self._lifeline = Lifeline()
        argv = [sys.executable, "-X", "utf8", "-c", CHILD.format(places=[str(packages_directory())])]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=OF_A_SESSION,
                creationflags=CREATION_FLAGS,
                env=short_environment(server.get("environment", ())),
            )
        except OSError as error:
            self._lifeline.release()
            raise LeapToolError(f"{sys.executable} cannot be started: {error.strerror}") from None
        self._lifeline.tie(self._process.pid)
        self._changed = threading.Condition()
        self._answers: dict[int, JsonObject | None] = {}
        self._asked = 0
        self._unsent: queue.SimpleQueue[JsonObject | None] = queue.SimpleQueue()
        self._end: str | None = None
        self._closing, self._closed = threading.Lock(), False
        self._complaint = StreamTail(COMPLAINT_BYTES, keep_end=True)
        self._complaining = threading.Thread(target=self._complaint.read, args=(self._process.stderr,), daemon=True)
        self._complaining.start()
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._write, daemon=True).start()
        self._unsent.put(dict(server))

    @property
    def is_usable(self) -> bool:
        """False once it has failed."""
        return self._end is None

    def ask(self, question: JsonObject, seconds: float, cancelled: threading.Event | None = None) -> JsonObject:
        """The answer to a question. Raises LeapToolError when it is an error, and when there is none in time."""
        with self._changed:
            number = self._asked = self._asked + 1
            self._answers[number] = None
        self._unsent.put({"id": number, **question})
        try:
            answer = self._wait(number, seconds, cancelled)
        finally:
            with self._changed:
                del self._answers[number]
        if answer.get("broken"):
            self.close("the MCP server failed")
            self._complaining.join(POLL_SECONDS)
            raise LeapToolError(f"{answer['error']}{self._last_words}")
        if "error" in answer:
            raise LeapToolError(str(answer["error"]))
        return answer

    @property
    def _last_words(self) -> str:
        """The end of what the server wrote to standard error."""
        lines = self._complaint.text.splitlines()[-MOST_LAST_LINES:]
        return ": " + "\n".join(lines) if lines else ""

    def leave(self, why: str) -> None:
        """Ask nothing more, so that the process ends by itself; calls that wait fail."""
        with self._changed:
            self._end = self._end or why
            self._changed.notify_all()
        self._unsent.put(None)

    def close(self, why: str, wait: float = 0.0) -> None:
        """End the process and what it started. ``wait``: seconds for it to end by itself."""
        self.leave(why)
        with self._closing:
            if self._closed:
                return
            self._closed = True
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(wait)
            if self._process.returncode is None:
                kill_group(self._process.pid)
            with suppress(OSError):
                self._process.kill()
            self._process.wait()
            self._lifeline.release()

    def _wait(self, number: int, seconds: float, cancelled: threading.Event | None) -> JsonObject:
        deadline = time.monotonic() + seconds
        with self._changed:
            while (answer := self._answers[number]) is None:
                left = deadline - time.monotonic()
                if self._end is not None:
                    raise LeapToolError(self._end)
                if left <= 0 or (cancelled is not None and cancelled.is_set()):
                    break
                self._changed.wait(left if cancelled is None else min(left, POLL_SECONDS))
            others = [each for each in self._answers if each != number]
        if answer is not None:
            return answer
        if not others or left <= 0:  # what was interrupted may go on there, but nothing waits for it
            self.close("the MCP server was ended, because another call took too long")
        if left > 0:
            raise LeapToolError("it was interrupted")
        raise LeapToolError(f"it took longer than {seconds:g} s and was ended{self._last_words}")

    def _write(self) -> None:
        """Send what is asked, in a thread of its own: a process that hangs does not read."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError), self._process.stdin as stream:  # the reader finds out why
            while (line := self._unsent.get()) is not None:
                stream.write(json.dumps(line).encode() + b"\n")
                stream.flush()

    def _read(self) -> None:
        """Hand out the answers until the process has ended."""
        end = ""
        assert self._process.stdout is not None
        with suppress(OSError, ValueError), self._process.stdout as stream:
            while line := stream.readline(LONGEST_ANSWER):
                answer = json.loads(line)
                number = answer.pop("id", None)
                with self._changed:
                    if number is None:
                        end = str(answer.get("error"))
                        break
                    if number in self._answers:
                        self._answers[number] = answer
                        self._changed.notify_all()
        self._complaining.join(POLL_SECONDS)
        self.close(f"{end or 'the MCP server gave no answer'}{self._last_words}")


class McpConnections:
    """The connections of this process, by server."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: dict[str, McpConnection] = {}
        atexit.register(self.close)

    def to(self, server: Mapping[str, Any]) -> McpConnection:
        """The connection to a server, opened when it is first needed and after it has failed."""
        key = json.dumps(server, sort_keys=True)
        with self._guard:
            connection = self._open.get(key)
            if connection is None or not connection.is_usable:
                connection = self._open[key] = McpConnection(server)
            return connection

    def close(self) -> None:
        """End them all."""
        with self._guard:
            left, self._open = list(self._open.values()), {}
        for connection in left:
            connection.leave(OVER)
        deadline = time.monotonic() + LEAVE_SECONDS
        for connection in left:
            connection.close(OVER, max(0.0, deadline - time.monotonic()))


connections = McpConnections()
"""This process has one connection a server, however many conversations use it."""


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


def tools_of(server: Mapping[str, Any], seconds: float | None = None) -> list[JsonObject]:
    """What a server offers: ``name``, ``description``, ``parameters``. Raises LeapToolError saying why it cannot."""
    connection = McpConnection(server)
    try:
        tools = connection.ask({"tool": None}, LIST_SECONDS if seconds is None else seconds).get("tools")
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
