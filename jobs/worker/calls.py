"""Calls from a process that runs a model to its worker, over its standard output, and the answers from its input.

Imports next to nothing: the process's first thread reads with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

Message = Mapping[str, Any]


class Calls:
    """``send`` writes one message. ``on_notice`` gets what the worker says without having been asked."""

    def __init__(self, send: Callable[[Message], object]) -> None:
        self._send = send
        self._numbers = count()
        self._waiting: dict[int, threading.Event] = {}
        self._replies: dict[int, Message] = {}
        self.on_notice: Callable[[str], object] = lambda _message: None

    def call(self, name: str, arguments: Message) -> Message:
        """Have the worker do it; its reply. The process ends with the worker, so each call is answered."""
        number, done = next(self._numbers), threading.Event()
        self._waiting[number] = done
        self._send({"call": number, "name": name, "arguments": arguments})
        done.wait()
        return self._replies.pop(number)

    def take(self, message: Message) -> bool:
        """Whether the message was one for this object."""
        if "notice" in message:
            self.on_notice(message["notice"])
        elif "reply" in message:
            self._replies[message["reply"]] = message
            self._waiting.pop(message["reply"]).set()
        else:
            return False
        return True
