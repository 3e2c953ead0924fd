"""Repairs lists of calls in which quotes within strings are not escaped, as in ``[sh(cmd='sed -n '3,5p' f.py')]``.

LFM2.5's own chat template writes arguments so, and models learn it. A quote ends its string only where what follows
completes the list: the next argument, item, bracket or call. A reading that leaves a doubt is none: an odd number of
inner quotes before another argument could end in two places. A quote between two letters may be an apostrophe, which
pairs with nothing. What Python would read as an expression of several strings, such as ``'a' if x else 'b'`` or
``'a', 'b'``, was meant as one: it is no string with quotes in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

ARGUMENT_FOLLOWS = re.compile(r",\s*(?:[\w$][\w$.-]*\s*=(?!=)|\*\*|(['\"])[^'\"]*\1\s*=(?!=)|\))")
CALL_FOLLOWS = re.compile(r"\)\s*(?:\]?\s*\Z|,\s*\w[\w.-]*\s*\(|,\s*[\]{])")
LAST = re.compile(r"[)\]}\s,]*\Z")
ITEM_FOLLOWS = re.compile(r"\s*(?:['\"\[({+.\-\d]|True|true|TRUE|False|false|FALSE|None|null|NULL|[\])}])")
CLOSED = re.compile(r"[\])}]\s*(?:[,\])}]|\Z)")
PAIR_FOLLOWS = re.compile(r",\s*(?:['\"\w]|\})|:")
NAME_BEFORE = re.compile(r"[\w$-]\s*\Z")
NAME_COMES = re.compile(r"[(,]\s*\Z")
QUOTED_NAME = re.compile(r"(['\"])(?:[^\\'\"]|\\.)*\1(?=\s*=)", re.DOTALL)
SPACE = re.compile(r"\s*")
WORD = re.compile(r"\w")
QUOTED_WORDS = re.compile(r"[\s(=\[{](['\"])\w(.*\w)?\1[\s;&|<>'\"]", re.DOTALL)
ESCAPE = re.compile(r"\\.", re.DOTALL)


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
    """Whether Python reads the text, which is not run. Escapes are nothing to it: they only give warnings."""
    try:
        ast.parse(f"({ESCAPE.sub('x', text)})", mode="eval")
    except (SyntaxError, ValueError):
        return False
    except (MemoryError, RecursionError):  # nested too deeply for Python
        pass
    return True


def _ends_string(text: str, place: int, bracket: str) -> bool:
    """Whether what is at ``place`` goes on with the list after a string."""
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
