"""A reply that is nothing but a list of calls, without the markers around it, as LFM2.5 sometimes writes them.

The reply is followed character by character: as soon as it cannot be such a list any more, it is text and is delivered.
Whether it is one is only known at its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..messages import LeapFunctionCall
from .call_list import read_calls
from .pythonic import PythonicSyntaxError

OPENING, CLOSING = "[({", "])}"
NAME = re.compile(r"[\w.-]*")


class BareList:
    """Follows the text of a reply from its beginning. ``declared``: names of the functions; ``end_marker`` may follow
    the list, from a model that forgets only the start marker."""

    def __init__(self, declared: Sequence[str], end_marker: str) -> None:
        self.held = ""
        """What has come so far and was not delivered."""
        self._declared = frozenset(declared)
        self._end_marker = end_marker
        self._place = 0
        self._depth = 0
        self._quote = ""
        self._list_end: int | None = None
        self._named = False

    @property
    def is_open(self) -> bool:
        """Whether a list has begun that may be a call."""
        return bool(self.held)

    def feed(self, text: str) -> str | None:
        """Take a piece; the first one begins with no white space. None while the reply may be a list of calls; else all
        that was held back, which is text."""
        self.held += text
        return None if self._may_be_calls() else self.held

    def calls(self) -> tuple[LeapFunctionCall, ...]:
        """The calls of the whole reply; none where it is something else. Raises PythonicSyntaxError."""
        calls = read_calls(self.held.rstrip().removesuffix(self._end_marker))
        return tuple(calls) if all(call.name in self._declared for call in calls) else ()

    def is_of_declared(self, error: PythonicSyntaxError) -> bool:
        """Whether the calls that can be read, and the one that cannot, are of functions that are declared."""
        name = NAME.match(error.unreadable)
        names = [name[0] if name else "", *(call.name for call in error.readable)]
        return len(names) > 1 and self._declared.issuperset(names)

    def _may_be_calls(self) -> bool:
        if not self._named and not self._name_may_follow():
            return False
        if self._list_end is None:
            self._follow()
        if self._list_end is None:
            return True
        rest = self.held[self._list_end :].strip()
        return self._end_marker.startswith(rest)

    def _name_may_follow(self) -> bool:
        """Whether the reply begins with a bracket and a declared name, or may yet."""
        if not self.held.startswith("["):
            return False
        rest = self.held[1:].lstrip()
        name = NAME.match(rest)
        assert name is not None
        after = rest[name.end() :].lstrip()
        if not after and name.end() == len(rest):
            return any(function.startswith(name[0]) for function in self._declared)
        if name[0] not in self._declared:
            return False
        self._named = after.startswith("(")
        return self._named or not after

    def _follow(self) -> None:
        """Count brackets, outside of strings, up to the end of the list."""
        while self._place < len(self.held):
            char = self.held[self._place]
            if self._quote:
                if char == "\\":
                    if self._place + 1 >= len(self.held):
                        return  # the escaped character has not come yet
                    self._place += 1
                elif char == self._quote:
                    self._quote = ""
            elif char in "'\"":
                self._quote = char
            elif char in OPENING:
                self._depth += 1
            elif char in CLOSING:
                self._depth -= 1
                if self._depth <= 0:
                    self._place += 1
                    self._list_end = self._place
                    return
            self._place += 1
