"""How models write calls: LFM2's Pythonic lists and Hermes' JSON blocks, each between its own pair of markers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..messages import LeapFunctionCall
from . import pythonic
from .call_list import read_calls


class LeapFunctionCallParser:
    """Reads and writes calls of one style.

    ``parse`` and ``dump`` are all that a generation uses. ``append``, ``clear`` and ``parse()`` without a text are the
    LEAP SDK's way: text is collected, then read.
    """

    name = ""

    def __init__(self, start_marker: str, end_marker: str) -> None:
        self.start_marker = start_marker
        self.end_marker = end_marker
        self._collected = ""

    def append(self, chunk: str) -> None:
        """Collect a piece of text for ``parse()``."""
        self._collected += chunk

    def clear(self) -> None:
        """Forget what was collected."""
        self._collected = ""

    def parse(self, body: str | None = None) -> list[LeapFunctionCall]:
        """The calls in ``body``, the text between the markers, or in what was collected, with or without its markers.

        Raises ValueError when it cannot be read.
        """
        text = (self._collected if body is None else body).strip()
        if not text.startswith(self.start_marker):
            return self._read(text.removesuffix(self.end_marker))
        blocks = text.split(self.start_marker)[1:]
        return [call for block in blocks for call in self._read(block.strip().removesuffix(self.end_marker))]

    def dump(self, calls: Sequence[LeapFunctionCall]) -> str:
        """The text, markers included, with which the model would have made these calls."""
        raise NotImplementedError

    def _read(self, body: str) -> list[LeapFunctionCall]:
        raise NotImplementedError


class LFMFunctionCallParser(LeapFunctionCallParser):
    """``<|tool_call_start|>[f(a="x", b=1), g()]<|tool_call_end|>``; JSON calls between the markers are read too."""

    name = "lfm"

    def __init__(self) -> None:
        super().__init__("<|tool_call_start|>", "<|tool_call_end|>")

    def dump(self, calls: Sequence[LeapFunctionCall]) -> str:
        return f"{self.start_marker}{pythonic.write_calls(calls)}{self.end_marker}" if calls else ""

    def _read(self, body: str) -> list[LeapFunctionCall]:
        marked = self.start_marker in body or self.end_marker in body  # within a string, or two calls run together
        return read_calls(body, repair=not marked)


class HermesFunctionCallParser(LeapFunctionCallParser):
    """``<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>``, one call a block."""

    name = "hermes"

    def __init__(self) -> None:
        super().__init__("<tool_call>", "</tool_call>")

    def dump(self, calls: Sequence[LeapFunctionCall]) -> str:
        return "\n".join(f"{self.start_marker}\n{_compact_object(call)}\n{self.end_marker}" for call in calls)

    def _read(self, body: str) -> list[LeapFunctionCall]:
        if not body.lstrip().startswith(("{", "[")):
            raise pythonic.PythonicSyntaxError(0, "expected a JSON object")
        return read_calls(body, repair=False)


PARSERS = {parser.name: parser for parser in (LFMFunctionCallParser, HermesFunctionCallParser)}


def parser_named(name: str) -> LeapFunctionCallParser:
    """A new parser: "lfm" or "hermes". Raises ValueError for another name."""
    if name not in PARSERS:
        raise ValueError(f"{name!r} is not a function call parser; known are {', '.join(PARSERS)}")
    return PARSERS[name]()


def _compact_object(call: LeapFunctionCall) -> str:
    return json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
