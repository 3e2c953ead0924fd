"""How sure a model was of each value of a document, from the probabilities of the value's own tokens.

They rank values by how doubtful they are; they are no frequency of being right. Tokens that the shape forced were no
choice and do not count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from ...responses import TokenLogprob
from .places import Path

STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
SCALAR = re.compile(rb"[^\s,\]}]+")
BETWEEN = re.compile(rb"[\s,:]*")


def confidences(tokens: Sequence[TokenLogprob]) -> dict[Path, dict[str, float]]:
    """By the path of each value in the JSON document that the tokens spell: the geometric mean and the least of its
    tokens' probabilities, before the shape's mask and (``allowed_…``) among what it left."""
    text, starts = b"", []
    for token in tokens:
        starts.append(len(text))
        text += token.token
    begin = max(0, min((at for char in b"{[" if (at := text.find(char)) >= 0), default=0))
    found: dict[Path, dict[str, float]] = {}
    at = 0
    for path, start, end in _values(text, begin):
        while at + 1 < len(starts) and starts[at + 1] <= start:
            at += 1
        own = []
        for number in range(at, len(tokens)):
            if starts[number] >= end:
                break
            if tokens[number].allowed_logprob is None or not _is_forced(tokens[number]):
                own.append(tokens[number])
        found[path] = _summary(own)
    return found


def _is_forced(token: TokenLogprob) -> bool:
    return token.logprob == 0.0 and token.allowed_logprob == 0.0


def _summary(tokens: Sequence[TokenLogprob]) -> dict[str, float]:
    before = [token.logprob for token in tokens] or [0.0]
    allowed = [token.logprob if token.allowed_logprob is None else token.allowed_logprob for token in tokens] or [0.0]
    return {
        "mean": math.exp(math.fsum(before) / len(before)),
        "least": math.exp(min(before)),
        "allowed_mean": math.exp(math.fsum(allowed) / len(allowed)),
        "allowed_least": math.exp(min(allowed)),
    }


def _values(text: bytes, at: int) -> Iterator[tuple[Path, int, int]]:
    """The values of a JSON text that are neither objects nor lists, with the bytes between which each stands, without
    its quotes. Ends where the text is no JSON."""
    stack: list[list[object]] = []  # of [closing byte, name or number of the part]
    while at < len(text):
        at = BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        if at >= len(text):
            return
        char = text[at : at + 1]
        if char in (b"}", b"]"):
            stack.pop()
            at += 1
        elif stack and stack[-1][0] == b"}" and stack[-1][1] is None:
            name = STRING.match(text, at)
            if name is None:
                return
            stack[-1][1] = _name(name[1])
            at = name.end()
            continue
        elif char in (b"{", b"["):
            stack.append([b"}" if char == b"{" else b"]", None if char == b"{" else 0])
            at += 1
            continue
        else:
            match = STRING.match(text, at) if char == b'"' else SCALAR.match(text, at)
            if match is None:
                return
            path = tuple(part[1] for part in stack)
            yield path, *(match.span(1) if char == b'"' else match.span())  # type: ignore[misc]
            at = match.end()
        if not stack:
            return
        part = stack[-1][1]
        stack[-1][1] = part + 1 if isinstance(part, int) else None


def _name(raw: bytes) -> str:
    import json

    return str(json.loads(b'"' + raw + b'"', strict=False))
