"""Calls in JSON that are the whole reply, without markers, as models write them that do not know the markers.

``{"name": "f", "arguments": {…}}``, several on lines of their own, a list of them, OpenAI's ``{"type": "function",
"function": {…}}`` or ``{"tool_calls": […]}``, each also in a code fence. The beginning decides whether the text is held
back until its brackets close; what is then not exactly such calls is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..messages import LeapFunctionCall
from .call_list import BareList
from .pythonic import call_of_object, read_value

FENCES = ("```tool_calls", "```tool_call", "```json", "```", "")
BEGINNINGS = ('{"tool_calls":[', '{"type":"function","function":{', '{"function":{"name":"', '{"arguments":{')
ANOTHER = re.compile(r"[ \t\r]*\n\s*(?=\{)")
ARGUMENTS = ({"name", "arguments"}, {"name", "parameters"})
MOST_BESIDE = 1000
"""Characters before arguments or after calls, white space included."""


class BareJson(BareList):
    """Follows the text of a reply from its beginning. ``fits``: whether the arguments of a call are those of its
    function. ``spelled``: a text with its markers as they are written."""

    def __init__(
        self,
        declared: Sequence[str],
        end_marker: str,
        fits: Callable[[LeapFunctionCall], bool],
        spelled: Callable[[str], str],
    ) -> None:
        super().__init__(declared, end_marker)
        self._fits, self._spelled = fits, spelled
        names = [f'{{"name":"{name}","{key}":' for name in declared for key in ("arguments", "parameters")]
        self._beginnings = (FENCES, ("[", ""), (*names, *BEGINNINGS))
        self._start = 0
        self._values: list[str] = []

    def calls(self) -> tuple[LeapFunctionCall, ...]:
        """The calls of the whole reply; none where it is something else."""
        if self._list_end is None or " ".join(self._rest.split()) not in ("", *self._tails):
            return ()
        try:
            calls = [call for text in self._values for call in _calls_of(read_value(self._spelled(text)))]
        except ValueError:
            return ()
        return tuple(calls) if all(call.name in self._declared and self._fits(call) for call in calls) else ()

    def _may_be_calls(self) -> bool:
        if not self._named:
            begun = "".join(self.held[:MOST_BESIDE].split())
            self._named = _begins(begun, self._beginnings, whole=True)
            if not self._named:
                return len(self.held) < MOST_BESIDE and _begins(begun, self._beginnings, whole=False)
            self._start = self._place = min(place for place in map(self.held.find, "[{") if place >= 0)
        while True:
            if self._list_end is None:
                self._follow()
                if self._list_end is None:
                    return True
                self._values.append(self.held[self._start : self._list_end])
            another = ANOTHER.match(self._rest)
            if not another:
                rest = " ".join(self._rest.split())
                return len(self._rest) < MOST_BESIDE and any(tail.startswith(rest) for tail in self._tails)
            self._start = self._place = self._list_end + another.end()
            self._list_end = None

    @property
    def _rest(self) -> str:
        """What comes after the calls."""
        assert self._list_end is not None
        return self.held[self._list_end : self._list_end + MOST_BESIDE]

    @property
    def _tails(self) -> Sequence[str]:
        """What may follow the calls."""
        end = self._end_marker
        return ("```", f"```{end}", f"``` {end}") if self.held.startswith("```") else (end,)


def _begins(text: str, parts: Sequence[Sequence[str]], *, whole: bool) -> bool:
    """Whether the text begins with one string of each part, or may yet if it is not to be the ``whole`` beginning."""
    if not parts:
        return True
    return any(
        (not whole and each.startswith(text))
        or (text.startswith(each) and _begins(text[len(each) :], parts[1:], whole=whole))
        for each in parts[0]
    )


def _calls_of(value: Any) -> list[LeapFunctionCall]:
    """The calls of a value that is one, or holds nothing else. Raises ValueError."""
    if isinstance(value, list):
        return [call for each in value for call in _calls_of(each)]
    if isinstance(value, dict) and value.keys() == {"tool_calls"}:
        return _calls_of(value["tool_calls"])
    if isinstance(value, dict) and "function" in value and value.keys() <= {"type", "function", "id", "index"}:
        value = value["function"]
    if not isinstance(value, dict) or value.keys() not in ARGUMENTS:
        raise ValueError("no call")
    return [call_of_object(value)]
