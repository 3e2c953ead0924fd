"""Lists of calls as models write them: read strictly, else repaired, also without the markers around them.

LFM2.5's own chat template writes arguments so, and models learn it. A quote ends its string only where what follows
completes the list: the next argument, item, bracket or call. A reading that leaves a doubt is none: an odd number of
inner quotes before another argument could end in two places. A quote between two letters may be an apostrophe, which
pairs with nothing. What Python would read as an expression of several strings, such as ``'a' if x else 'b'`` or
``'a', 'b'``, was meant as one: it is no string with quotes in it.

The reply is followed character by character: as soon as it cannot be such a list any more, it is text and is delivered.
Whether it is one is only known at its end.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from contextlib import suppress

from ..messages import LeapFunctionCall
from .pythonic import PythonicSyntaxError, Reader

ARGUMENT_FOLLOWS = re.compile(r",\s*(?:[\w$][\w$.-]*\s*=(?!=)|\*\*|(['\"])[^'\"]*\1\s*=(?!=)|\))")
CALL_FOLLOWS = re.compile(
    r"\)\s*(?:\Z|\]\s*\Z|[,;]\s*\w[\w.-]*\s*\(|,\s*[\]{]|\]\s*[,;]?\s*\[\s*(?:\w[\w.-]*\s*\(|\{))"
)
LIST_FOLLOWS = re.compile(r"\s*(?:[,;]\s*)?\[")
LAST = re.compile(r"[)\]}\s,]*\Z")
ITEM_FOLLOWS = re.compile(r"\s*(?:['\"\[({+.\-\d]|True|true|TRUE|False|false|FALSE|None|null|NULL|[\])}])")
CLOSED = re.compile(r"[\])}]\s*(?:[,\])}]|\Z)")
PAIR_FOLLOWS = re.compile(r",\s*(?:['\"\w]|\})|:")
NAME_BEFORE = re.compile(r"[\w$-]\s*\Z")
NAME_COMES = re.compile(r"[(,]\s*\Z")
QUOTED_NAME = re.compile(r"(['\"])(?:[^\\'\"]|\\.)*\1(?=\s*=)", re.DOTALL)
SPACE = re.compile(r"\s*")
FENCE = re.compile(r"\A```(?:\w*\s)?")
WORD = re.compile(r"\w")
QUOTED_WORDS = re.compile(r"[\s(=\[{](['\"])\w(.*\w)?\1[\s;&|<>'\"]", re.DOTALL)
ESCAPE = re.compile(r"\\.", re.DOTALL)
ESCAPED_QUOTE = re.compile(r"""(?<!\\)\\['"]""")
LONGEST_EXPRESSION = 20_000
"""Characters that Python's parser, which lets no other thread run, is asked about."""
MOST_UNREADABLE = 100
"""Calls of one list that cannot be read; all that follows counts as one more."""


def escape_inner_quotes(text: str) -> str | None:
    """The list with its inner quotes escaped; None where there are none or they leave a doubt."""
    pieces: list[str] = []
    brackets: list[str] = []
    copied = place = 0
    while place < len(text):
        char = text[place]
        if char in "'\"":
            if text.startswith(char * 3, place):
                end = text.find(char * 3, place + 3)
                if end < 0:
                    return None
                place = end + 3
                continue
            is_name = brackets[-1:] == ["call"] and NAME_COMES.search(text, max(place - 20, 0), place)
            name = QUOTED_NAME.match(text, place) if is_name else None
            if name is not None:
                place = name.end()
                continue
            string = _string_end(text, place, brackets)
            if string is None:
                return None
            end, inner = string
            if inner and _may_be_expression(text, place, [*inner, end]):
                return None
            if inner:  # quotes are kept, so a backslash before one is a character too
                escaped = (at.start() for at in ESCAPED_QUOTE.finditer(text, place + 1, end))
                inner = sorted([*inner, *(each for start in escaped for each in (start, start + 1))])
            for quote in inner:
                pieces.append(text[copied:quote] + "\\")
                copied = quote
            place = end
        elif char == "(":
            brackets.append("call" if NAME_BEFORE.search(text, max(place - 20, 0), place) else "(")
        elif char in "[{":
            brackets.append(char)
        elif char in ")]}" and brackets:
            brackets.pop()
        place += 1
    return "".join([*pieces, text[copied:]]) if pieces else None


def _string_end(text: str, start: int, brackets: list[str]) -> tuple[int, list[int]] | None:
    """Where the string that begins at ``start`` ends, and its inner quotes; None where that is in doubt."""
    inner: list[int] = []
    quote, unpaired, apostrophes, misplaced = text[start], 0, 0, False
    place = start + 1
    while place < len(text):
        if text[place] == "\\":
            place += 2
            continue
        if text[place] == quote:
            if _ends_string(text, place + 1, brackets[-1] if brackets else ""):
                odd = unpaired % 2 == 1 and not apostrophes
                in_doubt = misplaced or (odd and not LAST.match(text, place + 1))
                return None if in_doubt else (place, inner)
            inner.append(place)
            letters = text[place - 1].isalpha() and text[place + 1 : place + 2].isalpha()
            if letters and quote == "'":
                apostrophes += 1
            else:
                unpaired += 1
                misplaced = misplaced or (
                    not apostrophes and unpaired % 2 == 1 and text[place + 1 : place + 2].isspace()
                )  # opens nothing
        place += 1
    return None


def _may_be_expression(text: str, start: int, quotes: Sequence[int]) -> bool:
    """Whether the string from ``start`` to the last of ``quotes`` could be several, with operators between them.
    Quotes around words and apart from others, as in ``'grep 'or' file'``, are quotes."""
    pairs = list(zip(quotes[::2], quotes[1::2], strict=False))
    if not any(WORD.search(text, opening, closing) for opening, closing in pairs):  # as in 'a'; 'b'
        return True
    if all(QUOTED_WORDS.match(text, opening - 1, closing + 2) for opening, closing in pairs):
        return False
    return _is_expression(text[start : quotes[-1] + 1])


def _is_expression(text: str) -> bool:
    """Whether Python reads the text, which is not run, or may. Escapes are nothing to it: they only give warnings."""
    if len(text) > LONGEST_EXPRESSION:
        return True
    try:
        ast.parse(f"({ESCAPE.sub('x', text)})", mode="eval")
    except (SyntaxError, ValueError):
        return False
    except (MemoryError, RecursionError):  # nested too deeply for Python
        pass
    return True


def _ends_string(text: str, place: int, bracket: str) -> bool:
    """Whether what is at ``place`` continues with the list after a string."""
    space = SPACE.match(text, place)
    assert space is not None
    place = space.end()
    if bracket == "call":
        return bool(ARGUMENT_FOLLOWS.match(text, place) or CALL_FOLLOWS.match(text, place))
    if CLOSED.match(text, place):
        return True
    if bracket == "{":
        return PAIR_FOLLOWS.match(text, place) is not None
    return text.startswith(",", place) and ITEM_FOLLOWS.match(text, place + 1) is not None


def read_calls(text: str, *, repair: bool = True) -> list[LeapFunctionCall]:
    """All calls of a text that holds nothing else: ``[f(), g()]``, ``f(), g()``, or JSON calls; ``[]`` holds none.
    ``repair``: also where quotes within strings are not escaped.

    Raises PythonicSyntaxError, which has the calls that can be read beside one that cannot.
    """
    text = unfenced(text)
    try:
        return _calls(text)
    except PythonicSyntaxError as error:
        repaired = escape_inner_quotes(text) if repair else None
        if repaired is not None:
            with suppress(PythonicSyntaxError):
                return _calls(repaired)
        error.readable, error.unreadable = _readable_calls(text)
        raise


def unfenced(text: str) -> str:
    """What is in the code fence that is the whole text, or the text."""
    plain = text.strip()
    return FENCE.sub("", plain[:-3]) if plain.startswith("```") and plain.endswith("```") else text


def _calls(text: str) -> list[LeapFunctionCall]:
    reader = Reader(text)
    calls = reader.calls_until("")
    while True:
        any(reader.passes(bracket) for bracket in "])}")  # one too many, as in [f()]]
        is_separated = reader.passes(";") and not reader.at_end()
        if not is_separated and not reader.sees("["):
            reader.expect_end()
            return calls
        calls += reader.calls_until("")


def _readable_calls(text: str) -> tuple[list[LeapFunctionCall], str]:
    """The calls of a list that can be read, and the text of the others. Where a call that cannot be read ends nowhere,
    all that follows belongs to it."""
    reader = Reader(text.strip().removeprefix("[").removesuffix("]"))
    calls: list[LeapFunctionCall] = []
    unreadable: list[str] = []
    while not reader.at_end():
        start = reader.position
        try:
            found = reader.some_calls(1)
            if not reader.passes_separator() and not reader.at_end():
                raise reader.error("expected ','")
            calls += found
        except PythonicSyntaxError:
            end = _end_of_item(reader.text, start) if len(unreadable) < MOST_UNREADABLE else None
            end = len(reader.text) if end is None else end
            unreadable.append(reader.text[start:end].strip())
            reader.position = min(end + 1, len(reader.text))
    return calls, ", ".join(unreadable)


def _end_of_item(text: str, start: int) -> int | None:
    """Where an item of a list ends, by its brackets and quotes; None where they do not match."""
    depth, place = 0, start
    while place < len(text):
        char = text[place]
        if char in "'\"":
            end = _end_of_string(text, place)
            if end is None:
                return None
            place = end
        elif char in "[({":
            depth += 1
        elif char in "])}":
            depth -= 1
            if depth < 0:
                return None
        elif char == "," and depth == 0:
            return place
        place += 1
    return len(text) if depth == 0 else None


def _end_of_string(text: str, start: int) -> int | None:
    place = start + 1
    while place < len(text):
        if text[place] == text[start]:
            return place
        place += 2 if text[place] == "\\" else 1
    return None


OPENING, CLOSING = "[({", "])}"
NAME = re.compile(r"[\w.-]*")


class BareList:
    """Follows the text of a reply from its beginning. ``declared``: names of the functions; ``end_marker`` may follow
    the list, from a model that forgets only the start marker."""

    def __init__(self, declared: Sequence[str], end_marker: str) -> None:
        self._declared = frozenset(declared)
        self._end_marker = end_marker
        self._pieces = list[str]()
        self._length = 0
        self._depth = 0
        self._quote = ""
        self._is_escaped = False
        self._list_end: int | None = None
        self._named = False

    @property
    def held(self) -> str:
        """What has come so far and was not delivered."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @property
    def has_begun(self) -> bool:
        """Whether anything has come."""
        return self._length > 0

    @property
    def is_open(self) -> bool:
        """Whether what comes next may be a part of a call."""
        return self.has_begun and self._list_end is None

    def feed(self, text: str) -> str | None:
        """Take a piece; the first one begins with no white space. None while the reply may be a list of calls; else all
        that was held back, which is text."""
        before, self._length = self._length, self._length + len(text)
        self._pieces.append(text)
        if self._named and self._list_end is None:  # a long list is not put together for each piece
            end = self._follow(text, 0)
            if end is None:
                return None
            self._list_end = before + end
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
            self._list_end = self._follow(self.held, 0)
        while self._list_end is not None:
            another = LIST_FOLLOWS.match(self.held, self._list_end)
            if another is None:
                rest = self.held[self._list_end :].lstrip(" \t\r\n,;").rstrip()
                return self._end_marker.startswith(rest)
            self._list_end = self._follow(self.held, another.end() - 1)
        return True

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

    def _follow(self, text: str, place: int) -> int | None:
        """Count brackets, outside of strings, from ``place`` on; the end of the list, if it comes."""
        if self._is_escaped and place < len(text):
            place, self._is_escaped = place + 1, False
        while place < len(text):
            char = text[place]
            place += 1
            if self._quote:
                if char == "\\":
                    self._is_escaped = place >= len(text)
                    place += 1
                elif char == self._quote:
                    self._quote = ""
            elif char in "'\"":
                self._quote = char
            elif char in OPENING:
                self._depth += 1
            elif char in CLOSING:
                self._depth -= 1
                if self._depth <= 0:
                    return place
        return None
