"""One HTTP request to the host on this machine: HTTP/1.0 over a plain socket, because every start of a command pays
for what is imported here. The answer's body ends with its connection.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 5.0
LONGEST_LINE = 64 * 1024 * 1024


class HostAnswer:
    """A status, headers (names in lower case), and a body that is read as it comes. Close it, or use it as a context.

    ``shut`` may be called from any thread, everything else from one.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._file = connection.makefile("rb")
        try:
            status_line = self._file.readline(4096).split(None, 2)
            if len(status_line) < 2 or not status_line[0].startswith(b"HTTP/1.") or not status_line[1].isdigit():
                raise ConnectionError("the connection ended before an answer came")
            self.status = int(status_line[1])
            self.headers: dict[str, str] = {}
            while (line := self._file.readline(65536)) not in (b"\r\n", b"\n", b""):
                name, _, value = line.decode("latin-1").partition(":")
                self.headers[name.strip().lower()] = value.strip()
        except BaseException:
            self.close()
            raise

    def lines(self) -> Iterator[bytes]:
        """The body's lines as they come."""
        while line := self._file.readline(LONGEST_LINE):
            yield line

    def json(self) -> Any:
        """The whole body as JSON; ConnectionError when it was cut off."""
        try:
            return json.loads(self._file.read())
        except ValueError:
            raise ConnectionError("the connection ended within the answer") from None

    def shut(self) -> None:
        """End the connection: its reader wakes up, and the host notices."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and free it."""
        self.shut()
        with suppress(OSError):
            self._file.close()
        self._socket.close()

    def __enter__(self) -> HostAnswer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def send(port: int, method: str, path: str, token: str, value: object = None, *, timeout: float | None) -> HostAnswer:
    """Send a request, with ``value`` as JSON, and read the answer's head. Raises OSError when there is none within
    ``timeout`` seconds (None waits for ever)."""
    body = b"" if value is None else json.dumps(value, separators=(",", ":")).encode("ascii")
    head = (
        f"{method} {path} HTTP/1.0\r\nHost: {LOOPBACK}:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    limit = CONNECT_SECONDS if timeout is None else min(timeout, CONNECT_SECONDS)
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.settimeout(limit)
        connection.connect((LOOPBACK, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(timeout)
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent: the answer says why
            connection.sendall(head.encode("ascii") + body)
    except BaseException:
        connection.close()
        raise
    return HostAnswer(connection)
