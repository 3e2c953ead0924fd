"""Labels of one token, by which a model answers in one step.

The rules are llama.cpp's for d1 (tools/server/server-decision.cpp, ``d1_labels``): a predicate is answered yes or no, a
score by its level's digit, a choice by a code. Where a code is not one token, or its token is taken, the next of a pool
takes its place. A label has several forms where each is one token (``A`` and `` A``).
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import LeapOptionsError
from .questions import PREDICATE, SCORE, Question

YES, NO = ("yes", "Yes", "YES"), ("no", "No", "NO")
DIGITS = 10
Tokenize = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Label:
    """How an option is named in the prompt, and the tokens that count as it."""

    text: str
    tokens: tuple[int, ...]


def labels_of(question: Question, tokenize: Tokenize) -> list[Label]:
    """A label for each option, in their order. Raises LeapOptionsError where the tokenizer has no token for one."""
    if question.kind == PREDICATE:
        return [_label("yes", YES, tokenize), _label("no", NO, tokenize)]
    if question.kind == SCORE and len(question.options) <= DIGITS:
        return [_label(str(n), (str(n),), tokenize) for n in range(len(question.options))]
    return _codes(question, tokenize)


def _label(text: str, forms: Iterable[str], tokenize: Tokenize) -> Label:
    tokens = tuple(dict.fromkeys(ids[0] for ids in map(tokenize, forms) if len(ids) == 1))
    if not tokens:
        raise LeapOptionsError(
            "readout", f"the model has no single token for the label {text!r}; read the text instead"
        )
    return Label(text, tokens)


def _codes(question: Question, tokenize: Tokenize) -> list[Label]:
    count, labels = len(question.options), []
    used: set[int] = set()
    pool = list(_pool())
    for code in _first_codes(question):
        label = next((each for text in (code, *pool) if (each := _free(text, used, tokenize)) is not None), None)
        if label is None:
            raise LeapOptionsError("readout", f"the model has no {count} labels of one token; read the text instead")
        used.add(label.tokens[0])
        labels.append(label)
    return labels


def _free(text: str, used: set[int], tokenize: Tokenize) -> Label | None:
    ids = tokenize(text)
    if len(ids) != 1 or ids[0] in used:
        return None
    spaced = tokenize(f" {text}")
    more = (spaced[0],) if len(spaced) == 1 and spaced[0] != ids[0] else ()
    return Label(text, (ids[0], *more))


def _first_codes(question: Question) -> list[str]:
    texts, count = question.texts, len(question.options)
    if all(len(text) == 1 and text in string.ascii_letters for text in texts):
        return list(texts)
    return list(string.ascii_uppercase[:count]) if count <= 26 else [f"{n:02}" for n in range(count)]


def _pool() -> Iterator[str]:
    capitals = string.ascii_uppercase
    yield from capitals
    yield from (f"{n:02}" for n in range(100))
    yield from string.ascii_lowercase
    yield from (f"#{n}" for n in range(200))
    yield from (first + second for first in capitals for second in capitals)
