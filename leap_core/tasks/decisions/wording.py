"""How a question is put to a model: the state first, then labels of one token by which it answers.

The rules are llama.cpp's for d1 (tools/server/server-decision.cpp, ``d1_labels``): a predicate is answered yes or no, a
score by its level's digit, a choice by a code. Where a code is not one token, or its token is taken, the next of a pool
takes its place. A label has several forms where each is one token (``A`` and `` A``).
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...conversation.messages import ChatMessage, Text
from ...errors import LeapOptionsError
from ...system.dataclass import dataclass
from .questions import CHOICE, PREDICATE, SCORE, Decision, Question, text_of

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


NAMES = {PREDICATE: "noul", CHOICE: "choice", SCORE: "score"}
"""The kinds of questions as System One calls them."""


def message_of(decision: Decision, question: str) -> list[ChatMessage]:
    """State and question as one message."""
    texts = [text for text in (text_of(decision.state), question) if text]
    return [ChatMessage("user", [*decision.pictures, Text("\n\n".join(texts))])]


def text_question(question: Question, texts: Sequence[str]) -> str:
    """The question when the whole text of an answer is read: ``texts`` as they are listed."""
    described = dict(zip(question.texts, (each.description for each in question.options), strict=True))
    lines = [f"{text}: {text_of(described[text])}" for text in texts if described.get(text) is not None]
    asked = [text_of(question.instructions), *lines]
    return (
        "\n".join(asked) + f"{chr(10) if lines else ' '}Answer with one of these and nothing else: {', '.join(texts)}."
    )


def label_question(question: Question, labels: Sequence[Label]) -> str:
    """The question when one token is read."""
    asked = text_of(question.instructions)
    if question.kind == PREDICATE:
        described = zip(("Yes", "No"), question.options, strict=True)
        lines = [f"{name}: {text_of(each.description)}" for name, each in described if each.description is not None]
        return "\n".join([asked, *lines, "Answer with yes or no and nothing else."])
    lines = [
        f"{label.text}: {text}" + (f" - {text_of(each.description)}" if each.description is not None else "")
        for label, text, each in zip(labels, question.texts, question.options, strict=True)
    ]
    return "\n".join(
        [asked, "", *lines, "", f"Answer with one of {labels[0].text} to {labels[-1].text} and nothing else."]
    )


def variables_of(decision: Decision, question: Question, labels: Sequence[Label]) -> str:
    """The variables of a decision model's own template, as JSON."""
    options: list[dict[str, Any]] = []
    for n, (option, text, label) in enumerate(zip(question.options, question.texts, labels, strict=True)):
        key, description, name = text, option.description, label.text
        if question.kind == PREDICATE:
            key = name = "true" if option.value else "false"
        elif question.kind == SCORE:
            key = str(n)
            description = text if description is None else f"{text}: {text_of(description)}"
        options.append({"key": key, "description": description, "label": name})
    values = {
        "id": question.name or "",
        "type": NAMES[question.kind],
        "instructions": question.instructions,
        "state": decision.state,
        "options": options,
    }
    return json.dumps(values, ensure_ascii=False)
