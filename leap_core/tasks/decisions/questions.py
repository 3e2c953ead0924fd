"""What is asked: a state and typed questions about it, also from JSON in the two forms in use.

OpenAI's is a list:    {"type": "predicate", "name": "urgent", "instructions": "Is it urgent?"}
                       {"type": "choice", "instructions": "…", "choices": [{"value": "a", "description": "…"}, "b"]}
                       {"type": "score", "instructions": "…", "levels": [{"label": "low"}, "high"]}
System One's an object: {"urgent": {"type": "noul", "instructions": "…", "criteria": {"true": "…", "false": "…"}},
                       "topic": {"type": "choice", "instructions": "…", "criteria": {"a": "…", "b": null}},
                       "mood": {"type": "score", "instructions": "…", "criteria": ["low", "high"]}}

Source: openai 3.54.0 (types/decision_create_params.py), typesafe-sdk 0.7.5.

``predicate``: is it true? ``choice``: one of 2 to 255 values. ``score``: one of ordered levels, from the lowest. A
state, instructions and descriptions are texts or any JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...conversation.messages import Image
from ...errors import LeapSerializationError
from ...schemas.json_values import list_at, object_at, text_at
from ...system.dataclass import dataclass

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


SCORE_LEVELS = 10
"""The most that System One's API takes."""


def read_questions(value: object, path: str = "questions") -> tuple[Question, ...]:
    """Questions in either form. Raises LeapSerializationError that names the place."""
    return read_systemone_questions(value, path) if isinstance(value, Mapping) else read_openai_questions(value, path)


def read_openai_questions(
    value: object, path: str = "questions", *, content: Callable[[object, str], Any] | None = None
) -> tuple[Question, ...]:
    """OpenAI's list. ``content`` reads instructions; by default any text or JSON is taken. Raises
    LeapSerializationError."""
    items = list_at(value, path)
    _check_count(len(items), path)
    read = content or _instructions
    questions = tuple(_openai_question(each, f"{path}[{n}]", read) for n, each in enumerate(items))
    names = [each.name for each in questions if each.name is not None]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LeapSerializationError(f"two questions are called {twice!r}", path=path)
    return questions


def read_systemone_questions(value: object, path: str = "questions") -> tuple[Question, ...]:
    """System One's object of questions by name. Raises LeapSerializationError."""
    items = object_at(value, path)
    _check_count(len(items), path)
    return tuple(_systemone_question(str(name), each, f"{path}.{name}") for name, each in items.items())


def _check_count(count: int, path: str) -> None:
    if not 0 < count <= MOST_QUESTIONS:
        raise LeapSerializationError(f"expected 1 to {MOST_QUESTIONS} questions, not {count}", path=path)


def _openai_question(value: object, path: str, read: Callable[[object, str], Any]) -> Question:
    fields = object_at(value, path)
    kind = fields.get("type")
    parts = {"predicate": (), "choice": ("choices",), "score": ("levels",)}
    if kind not in parts:
        raise LeapSerializationError(f"{kind!r} is not one of {', '.join(parts)}", path=f"{path}.type")
    _only_known(fields, ("type", "name", "instructions", *parts[kind]), path)
    name = None if fields.get("name") is None else text_at(fields["name"], f"{path}.name")
    instructions = read(fields.get("instructions"), f"{path}.instructions")
    if kind == "predicate":
        return Question.predicate(instructions, name=name)
    where = f"{path}.{parts[kind][0]}"
    items = list_at(fields.get(parts[kind][0]), where)
    key = "value" if kind == "choice" else "label"
    options = [_openai_option(each, key, f"{where}[{n}]") for n, each in enumerate(items)]
    return _at(
        where, lambda: (Question.choice if kind == "choice" else Question.score)(instructions, options, name=name)
    )


def _openai_option(value: object, key: str, path: str) -> Option:
    fields = object_at(value, path) if isinstance(value, Mapping) else {key: value}
    _only_known(fields, (key, "description"), path)
    shown = fields.get(key)
    if not isinstance(shown, (str, bool) if key == "value" else str):
        raise LeapSerializationError(
            "expected a text" + (" or a boolean" if key == "value" else ""), path=f"{path}.{key}"
        )
    description = fields.get("description")
    if description is not None and not isinstance(description, str):
        raise LeapSerializationError("expected a text", path=f"{path}.description")
    return Option(shown, description)


def _systemone_question(name: str, value: object, path: str) -> Question:
    fields = object_at(value, path)
    _only_known(fields, ("type", "instructions", "criteria"), path)
    kind, instructions, criteria = fields.get("type"), fields.get("instructions"), fields.get("criteria")
    where = f"{path}.criteria"
    if kind == "noul":
        outcomes = {} if criteria is None else object_at(criteria, where)
        _only_known(outcomes, ("true", "false"), where)
        if instructions is None and all(each is None for each in outcomes.values()):
            raise LeapSerializationError("a question needs instructions or criteria", path=f"{path}.instructions")
        asked = "Is this so?" if instructions is None else instructions
        return Question.predicate(asked, true=outcomes.get("true"), false=outcomes.get("false"), name=name)
    if kind == "choice":
        options = [Option(str(label), each) for label, each in object_at(criteria, where).items()]
        asked = "Which of these fits?" if instructions is None else instructions
        return _at(where, lambda: Question.choice(asked, options, name=name))
    if kind == "score":
        levels = [Option(text_of(each)) for each in list_at(criteria, where)]
        if len(levels) > SCORE_LEVELS:
            raise LeapSerializationError(f"{len(levels)} levels are more than {SCORE_LEVELS}", path=where)
        asked = "Which of these levels fits?" if instructions is None else instructions
        return _at(where, lambda: Question.score(asked, levels, name=name))
    raise LeapSerializationError(f"{kind!r} is not one of noul, choice, score", path=f"{path}.type")


def _instructions(value: object, path: str) -> Any:
    if value is None or value == "":
        raise LeapSerializationError("missing", path=path)
    return value


def _at(path: str, make: Callable[[], Question]) -> Question:
    """The question, with errors that name its place in the request."""
    try:
        return make()
    except LeapSerializationError as error:
        raise LeapSerializationError(error.reason, path=path) from None


def _only_known(fields: Mapping[str, Any], names: Sequence[str], path: str) -> None:
    for name in fields:
        if name not in names:
            raise LeapSerializationError(
                f"there is no such field (there are {', '.join(names)})", path=f"{path}.{name}"
            )
