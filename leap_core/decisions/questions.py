"""What is asked: a state, and typed questions about it.

``predicate``: is it true? ``choice``: one of 2 to 255 values. ``score``: one of ordered levels, from the lowest. A
state, instructions and descriptions are texts or any JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import LeapSerializationError
from ..messages import Image

PREDICATE, CHOICE, SCORE = "predicate", "choice", "score"
KINDS = (PREDICATE, CHOICE, SCORE)
MOST_OPTIONS = 255
MOST_QUESTIONS = 400


@dataclass(frozen=True)
class Option:
    """One possible answer: its value, and what it means."""

    value: str | bool
    description: Any = None


@dataclass(frozen=True)
class Question:
    """One question. The options of a predicate are True and False, those of a score its levels. ``texts``: how the
    options are written; by default their values."""

    kind: str
    instructions: Any
    options: tuple[Option, ...]
    name: str | None = None
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = self.name or self.kind
        if len(self.options) < 2:
            raise LeapSerializationError("a question needs two or more answers that differ", path=where)
        if len(self.options) > MOST_OPTIONS:
            raise LeapSerializationError(f"{len(self.options)} answers are more than {MOST_OPTIONS}", path=where)
        known = [(type(each.value), each.value) for each in self.options]
        if self.kind != SCORE and len(set(known)) < len(known):
            raise LeapSerializationError("two of the answers are the same", path=where)
        if not self.texts:
            object.__setattr__(self, "texts", _texts(self.options))

    @staticmethod
    def predicate(instructions: Any, *, true: Any = None, false: Any = None, name: str | None = None) -> Question:
        """Is it true? ``true`` and ``false`` say what these answers mean."""
        return Question(PREDICATE, instructions, (Option(True, true), Option(False, false)), name, ("yes", "no"))

    @staticmethod
    def choice(instructions: Any, options: Sequence[Option | str | bool], *, name: str | None = None) -> Question:
        """One of several values."""
        return Question(CHOICE, instructions, _options(options), name)

    @staticmethod
    def score(instructions: Any, levels: Sequence[Option | str], *, name: str | None = None) -> Question:
        """One of ordered levels, from the lowest."""
        return Question(SCORE, instructions, _options(levels), name)


@dataclass(frozen=True)
class Decision:
    """Questions about one state. ``pictures`` belong to the state."""

    state: Any
    questions: tuple[Question, ...]
    pictures: tuple[Image, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < len(self.questions) <= MOST_QUESTIONS:
            raise LeapSerializationError(f"expected 1 to {MOST_QUESTIONS} questions", path="questions")


def text_of(value: Any) -> str:
    """A text as it is, any other JSON indented, nothing for null."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=2)


def _options(options: Sequence[Option | str | bool]) -> tuple[Option, ...]:
    return tuple(each if isinstance(each, Option) else Option(each) for each in options)


def _texts(options: Sequence[Option]) -> tuple[str, ...]:
    """The values as texts; where ``true`` and ``"true"`` are both there, the text is quoted."""
    plain = [json.dumps(each.value) if isinstance(each.value, bool) else each.value for each in options]
    return tuple(
        json.dumps(text) if isinstance(each.value, str) and plain.count(text) > 1 else text
        for each, text in zip(options, plain, strict=True)
    )
