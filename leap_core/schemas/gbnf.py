"""llama.cpp's notation of grammars (GBNF) as Lark's, which llguidance reads.

Each character becomes a terminal of its own: llguidance takes the longest terminal that fits, and llama.cpp any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from ..errors import LeapSchemaError

LARK = re.compile(r"(?m)^[ \t]*(?:%llguidance\b|start[ \t]*:(?!:))")
LONGEST = 50_000
"""Characters of a grammar: llguidance takes a second for each twenty thousand."""
MOST_TIMES = 2000
"""Repetitions from which on llama.cpp has no bound above."""
DEEPEST = 200
TOKEN = re.compile(
    r"(?P<space>(?:[ \t]|\#[^\r\n]*)+)|(?P<line>\r\n?|\n)|(?P<define>::=)|(?P<name>[\w-]+)"
    r'|(?P<literal>"(?:[^"\\]|\\.)*")|(?P<class>\[(?:[^\]\\]|\\.)*\])|(?P<token>!?<[^>\r\n]*>)'
    r"|(?P<times>\{\s*\d{1,9}\s*(?:,\s*(?:\d{1,9}\s*)?)?\}|[*+?])|(?P<or>\|)|(?P<open>\()|(?P<close>\))|(?P<any>\.)",
    re.DOTALL | re.ASCII,
)
CHARACTER = re.compile(
    r"""\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([trn])|(["\\\[\]-]))|([^\\])""", re.DOTALL
)
CONTROLS = {"t": "\t", "r": "\r", "n": "\n"}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int

    def error(self, message: str) -> LeapSchemaError:
        return LeapSchemaError(f"the grammar cannot be read, line {self.line}: {message}")


def as_lark(grammar: str) -> str:
    """A grammar in Lark's notation: as it is, or what llama.cpp reads in it. Raises LeapSchemaError."""
    if "::=" in grammar and len(grammar) > LONGEST:
        raise LeapSchemaError(f"the grammar has more than {LONGEST} characters")
    return grammar if "::=" not in grammar or LARK.search(grammar) else lark_of_gbnf(grammar)


def lark_of_gbnf(grammar: str) -> str:
    """The grammar in Lark's notation. Raises LeapSchemaError with the line that cannot be read."""
    tokens = [token for token in _tokens(grammar) if token.kind != "space"]
    names = {"root": "start"}
    for token, after in pairwise(tokens):
        if token.kind == "name" and after.kind == "define":
            names.setdefault(token.text, f"r{len(names)}")
    rules: dict[str, str] = {}
    place = 0
    while place < len(tokens):
        if tokens[place].kind == "line":
            place += 1
        elif tokens[place].kind != "name" or tokens[place + 1 : place + 2] == [] or tokens[place + 1].kind != "define":
            raise tokens[place].error(f"expected a rule such as root ::= …, not {tokens[place].text[:40]!r}")
        else:
            rule, start = names[tokens[place].text], place + 2
            place = _end_of_rule(tokens, start)
            rules[rule] = _Rule(names).read(tokens[start:place], tokens[start - 1])
    if "start" not in rules:
        raise LeapSchemaError("the grammar cannot be read: it has no rule root")
    return "%llguidance {}\n\n" + "".join(f"{name}: {body}\n" for name, body in rules.items())


def _tokens(grammar: str) -> Iterator[_Token]:
    place, line = 0, 1
    while place < len(grammar):
        found = TOKEN.match(grammar, place)
        if found is None:
            raise _Token("", "", line).error(f"{grammar[place : place + 40].splitlines()[0]!r} is not known here")
        yield _Token(str(found.lastgroup), found[0], line)
        place, line = found.end(), line + found[0].count("\n")


def _end_of_rule(tokens: list[_Token], place: int) -> int:
    """Where the rule ends whose alternatives begin at ``place``: at the end of a line, but not in parentheses and not
    after ``::=`` or ``|``."""
    depth, before = 0, "define"
    while place < len(tokens):
        kind = tokens[place].kind
        if kind == "line" and depth <= 0 and before not in ("define", "or"):
            break
        depth += (kind == "open") - (kind == "close")
        before = before if kind == "line" else kind
        place += 1
    return place


class _Rule:
    """Reads the alternatives of a rule. ``names``: those of rules in GBNF, and in Lark."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._open: list[list[list[str]]] = [[[]]]
        """The groups that are open: alternatives of items."""

    def read(self, tokens: list[_Token], before: _Token) -> str:
        """The rule's body."""
        for token in tokens:
            self._take(token)
            before = token
        if len(self._open) > 1:
            raise before.error("a ( has no )")
        return _alternatives(self._open[0])

    def _take(self, token: _Token) -> None:
        items = self._open[-1][-1]
        if token.kind == "open":
            self._open.append([[]])
            if len(self._open) > DEEPEST:
                raise token.error(f"more than {DEEPEST} groups in each other")
        elif token.kind == "close":
            if len(self._open) == 1:
                raise token.error("a ) has no (")
            group = self._open.pop()
            self._open[-1][-1].append(f"({_alternatives(group)})")
        elif token.kind == "or":
            self._open[-1].append([])
        elif token.kind == "times":
            if not items:
                raise token.error(f"{token.text} comes after nothing that it could repeat")
            items[-1] = _repeated(items[-1], token)
        elif token.kind == "name":
            if token.text not in self._names:
                raise token.error(f"there is no rule {token.text[:40]!r}")
            items.append(self._names[token.text])
        elif token.kind != "line":
            items.append(_terminal(token))


def _alternatives(alternatives: list[list[str]]) -> str:
    return " | ".join(" ".join(items) or '""' for items in alternatives)


def _terminal(token: _Token) -> str:
    if token.kind == "any":
        return r"/[\s\S]/"
    if token.kind == "literal":
        letters = [f"/{_escaped(letter)}/" for letter in _characters(token.text[1:-1], token)]
        return letters[0] if len(letters) == 1 else f"({' '.join(letters)})" if letters else '""'
    if token.kind == "class":
        return _class(token)
    if token.kind == "token" and not token.text.startswith("!"):
        return token.text
    raise token.error(f"{token.text[:40]!r} is not supported")


def _class(token: _Token) -> str:
    inner = token.text[1:-1]
    opening = "[^" if inner.startswith("^") else "["
    found = list(CHARACTER.finditer(inner, len(opening) - 1))
    letters = _characters(inner[len(opening) - 1 :], token)
    if not letters:
        raise token.error("[] has no characters")
    ranges, place = [], 0
    while place < len(letters):
        first = last = letters[place]
        if place + 2 < len(letters) and found[place + 1][0] == "-":
            last = letters[place + 2]
            place += 2
        if last < first:
            raise token.error(f"the range {first}-{last} is empty")
        ranges.append(_escaped(first) if first == last else f"{_escaped(first)}-{_escaped(last)}")
        place += 1
    return f"/{opening}{''.join(ranges)}]/"


def _characters(text: str, token: _Token) -> list[str]:
    """The characters that a text with escapes means."""
    letters, place = [], 0
    while place < len(text):
        found = CHARACTER.match(text, place)
        if found is None:
            raise token.error(f"{text[place : place + 10]!r} is no escape that is known")
        code = found[1] or found[2] or found[3]
        if code is not None and (int(code, 16) > 0x10FFFF or 0xD800 <= int(code, 16) < 0xE000):
            raise token.error(f"{found[0]} is no character")
        letters.append(chr(int(code, 16)) if code is not None else CONTROLS.get(found[4]) or found[5] or found[6])
        place = found.end()
    return letters


def _escaped(letter: str) -> str:
    return letter if letter.isascii() and letter.isalnum() else rf"\x{{{ord(letter):X}}}"


def _repeated(item: str, token: _Token) -> str:
    if token.text in ("*", "+", "?"):
        return f"({item}){token.text}"
    low, comma, high = token.text[1:-1].partition(",")
    least = int(low)
    most = (int(high) if high.strip() else None) if comma else least
    if least > MOST_TIMES or (most is not None and most < least):
        raise token.error(f"{token.text} cannot be: at most {MOST_TIMES} times, the smaller number first")
    if most is None or most > MOST_TIMES:
        return f"({item}){{{least},}}"
    return f"({item}){{{least},{most}}}" if most else '""'
