"""JSON calls that are the whole reply, without markers: ``{"name": "f", "arguments": {…}}``, several on own lines or
with semicolons between, lists, OpenAI's ``{"type": "function", "function": {…}}`` or ``{"tool_calls": […]}``, also in a
fence. The beginning decides whether the text is held back until its brackets close; what is then not exactly such calls
is text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import LeapSchemaError
from ..messages import LeapFunctionCall
from .call_list import BareList
from .fitting import PREFIX, declared_name, letters_of
from .pythonic import call_of_object, read_value

BEFORE = re.compile(r"\A(?:```(?:json|tool_calls?)?)?\[?")
FENCES = ("```json", "```tool_calls")
BEGINNINGS = (
    *('{"tool_calls":[', '{"type":"function","function":{', '{"type":"function","name":"', '{"function":{"name":"'),
    '{"arguments":{',
)
NAME_KEY = '{"name":"'
ANOTHER = re.compile(r"[ \t\r]*[\n;]\s*(?=\{)")
ARGUMENTS = ({"name", "arguments"}, {"name", "parameters"})
TYPE = "function"
MOST_BESIDE = 1000  # characters before arguments or after calls, white space included
Fits = Callable[[LeapFunctionCall], bool]


class BareJson(BareList):
    """``fits``: whether a call's arguments are its function's. ``spelled``: a text with its markers as written."""

    def __init__(self, declared: Sequence[str], end_marker: str, fits: Fits, spelled: Callable[[str], str]) -> None:
        super().__init__(declared, end_marker)
        self._fits, self._spelled = fits, spelled
        keys = ("arguments", "parameters")
        self._beginnings = (*BEGINNINGS, *(f'{{"name":"{name}","{key}":' for name in declared for key in keys))
        self._tails: tuple[str, ...] = (end_marker,)
        self._start, self._rest, self._values = 0, "", list[str]()

    def calls(self) -> tuple[LeapFunctionCall, ...]:
        if self._list_end is None or self._rest not in ("", *self._tails):
            return ()
        try:
            values = [*self._values, self.held[self._start : self._list_end]]
            calls = [call for text in values for call in _calls_of(read_value(self._spelled(text)))]
            return tuple(calls) if all(map(self._fits, calls)) else ()
        except (ValueError, LeapSchemaError):
            return ()

    def _may_be_calls(self) -> bool:
        if not self._named:
            begun = "".join(self.held[:MOST_BESIDE].split())
            rest = self._as_declared(BEFORE.sub("", begun))
            self._named = rest.startswith(self._beginnings)
            if not self._named:
                pairs = [*((each, rest) for each in self._beginnings), *((fence, begun) for fence in FENCES)]
                return len(self.held) < MOST_BESIDE and any(whole.startswith(part) for whole, part in pairs)
            self._start = min(place for place in map(self.held.find, "[{") if place >= 0)
            if begun.startswith("`"):
                self._tails = ("```", f"```{self._end_marker}", f"``` {self._end_marker}")
        while True:
            if self._list_end is None:
                self._list_end = self._follow(self.held, self._start)
            if self._list_end is None:
                return True
            beside = self.held[self._list_end : self._list_end + MOST_BESIDE]
            another = ANOTHER.match(beside)
            if not another:
                self._rest = " ".join(beside.lstrip("; ").split())
                return len(beside) < MOST_BESIDE and any(tail.startswith(self._rest) for tail in self._tails)
            self._values.append(self.held[self._start : self._list_end])
            self._start, self._list_end = self._list_end + another.end(), None

    def _as_declared(self, begun: str) -> str:
        """The beginning with the declared name in the place of one that differs in case and punctuation; without a
        name that may yet become one."""
        before, key, rest = begun.partition(NAME_KEY)
        if before or not key:
            return begun
        name, quote, after = rest.partition('"')
        if quote:
            return f"{key}{declared_name(name, self._declared)}{quote}{after}"
        letters = letters_of(name)
        may_become = PREFIX.startswith(name) or any(letters_of(each).startswith(letters) for each in self._declared)
        return key if may_become else begun


def _calls_of(value: Any) -> list[LeapFunctionCall]:
    """The calls of a value that is one, or holds nothing else. Raises ValueError."""
    if isinstance(value, dict) and value.keys() == {"tool_calls"}:
        value = value["tool_calls"]
    if isinstance(value, list):
        return [call for each in value for call in _calls_of(each)]
    if isinstance(value, dict) and "function" in value and value.keys() <= {"type", "function", "id", "index"}:
        value = value["function"]
    if not isinstance(value, dict) or value.keys() - {"type"} not in ARGUMENTS or value.get("type", TYPE) != TYPE:
        raise ValueError("no call")
    return [call_of_object(value)]
