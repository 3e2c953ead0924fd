"""Decisions whose right answers are known, from lines of JSON.

{"text": "…", "question": "…", "choices": ["a", "b"], "answer": "a"}         the fields of the task, and the answer
{"text": "…", "questions": [{"name": "late", …}], "answers": {"late": true}}
What is asked in all lines may stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..decisions.deciding import Settings, readout_for, way_of_asking
from ..decisions.questions import PREDICATE, Decision, Question
from ..errors import LeapSerializationError
from ..messages import ChatMessage
from ..runner.contract import ModelRunner
from .choose import Choose, DecideAll
from .reading import read_task
from .task import RecipeTask, TaskModel

OWN = ("text", "prompt", "answer", "answers", "id", "custom_id")


@dataclass(frozen=True)
class LabelledCase:
    """A text, what is asked about it, and the numbers of the right options."""

    task: RecipeTask
    message: ChatMessage
    right: tuple[int, ...]

    def put_to(self, runner: ModelRunner) -> tuple[Decision, Settings]:
        """The decision, and how the task asks it of this model."""
        model = self.task.model(runner, self.message, _never)
        return asked_by(self.task, model, self.message)

    def way_of(self, runner: ModelRunner) -> str:
        """How it is asked, which is what temperatures are fitted for."""
        settings = self.put_to(runner)[1]
        return way_of_asking(settings, readout_for(runner, settings))


def asked_by(task: RecipeTask, model: TaskModel, message: ChatMessage) -> tuple[Decision, Settings]:
    """The decision that a task makes of a text, and how it asks."""
    chooses = task.task
    assert isinstance(chooses, (Choose, DecideAll))
    return chooses.decision(message), chooses.settings(model, message)


def read_case(common: Mapping[str, Any], line: object) -> LabelledCase:
    """A case; ``common``: what is asked in all lines. Raises LeapSerializationError."""
    if not isinstance(line, Mapping):
        raise LeapSerializationError("expected an object")
    text = line.get("text", line.get("prompt"))
    if not isinstance(text, str) or not text.strip():
        raise LeapSerializationError("expected a text that is not empty", path="text")
    fields = {**common, **{name: value for name, value in line.items() if name not in OWN}, "task": "decide"}
    task, unknown = read_task(fields)
    if unknown:
        raise LeapSerializationError("there is no such field", path=unknown[0])
    chooses = task.task
    assert isinstance(chooses, (Choose, DecideAll))
    message = ChatMessage("user", text)
    questions = chooses.decision(message).questions
    return LabelledCase(task, message, _right(questions, line))


def _right(questions: Sequence[Question], line: Mapping[str, Any]) -> tuple[int, ...]:
    if "answers" not in line:
        if len(questions) != 1 or "answer" not in line:
            raise LeapSerializationError("missing", path="answer" if len(questions) == 1 else "answers")
        return (_number(questions[0], line["answer"], "answer"),)
    answers = line["answers"]
    if not isinstance(answers, Mapping):
        raise LeapSerializationError("expected an object of answers by the questions' names", path="answers")
    found = []
    for n, question in enumerate(questions, 1):
        name = question.name or str(n)
        if name not in answers:
            raise LeapSerializationError("missing", path=f"answers.{name}")
        found.append(_number(question, answers[name], f"answers.{name}"))
    return tuple(found)


def _number(question: Question, answer: object, path: str) -> int:
    """The number of the option that an answer means: its value, its text, or of a score the level's number."""
    for n, (option, text) in enumerate(zip(question.options, question.texts, strict=True)):
        if type(option.value) is type(answer) and option.value == answer:
            return n
        if isinstance(answer, str) and answer == text:
            return n
        if question.kind != PREDICATE and type(answer) is int and str(answer) == text:
            return n
    raise LeapSerializationError(f"{answer!r} is none of {', '.join(question.texts)}", path=path)


def _never(*_: object) -> Any:
    raise AssertionError("nothing is asked while a case is read")
