"""Lists of calls as models write them: read strictly, else with inner quotes repaired, else call by call."""

from __future__ import annotations

from contextlib import suppress

from ..messages import LeapFunctionCall
from .inner_quotes import escape_inner_quotes
from .pythonic import PythonicSyntaxError, Reader


def read_calls(text: str, *, repair: bool = True) -> list[LeapFunctionCall]:
    """All calls of a text that holds nothing else: ``[f(), g()]``, ``f(), g()``, or JSON calls; ``[]`` holds none.
    ``repair``: also where quotes within strings are not escaped.

    Raises PythonicSyntaxError, which has the calls that can be read beside one that cannot.
    """
    try:
        return _calls(text)
    except PythonicSyntaxError as error:
        repaired = escape_inner_quotes(text) if repair else None
        if repaired is not None:
            with suppress(PythonicSyntaxError):
                return _calls(repaired)
        error.readable, error.unreadable = _readable_calls(text)
        raise


def _calls(text: str) -> list[LeapFunctionCall]:
    reader = Reader(text)
    calls = reader.calls_in_brackets() if reader.sees("[") else reader.calls_until("")
    reader.expect_end()
    return calls


def _readable_calls(text: str) -> tuple[list[LeapFunctionCall], str]:
    """The calls of a list that can be read, and the text of the others. Where a call that cannot be read ends nowhere,
    all that follows belongs to it."""
    reader = Reader(text.strip().removeprefix("[").removesuffix("]"))
    calls: list[LeapFunctionCall] = []
    unreadable = []
    while not reader.at_end():
        start = reader.position
        try:
            calls.append(reader.one_call())
            if not reader.passes(",") and not reader.at_end():
                calls.pop()
                raise reader.error("expected ','")
        except PythonicSyntaxError:
            end = _end_of_item(reader.text, start)
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
