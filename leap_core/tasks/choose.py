"""Classification and decisions: the model's probabilities of given answers, all of them scored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ..conversation.messages import ChatMessage
from ..conversation.options import GenerationOptions
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .decisions.answer_probabilities import LABELS
from .decisions.answers import Answer, answer_object, how_sure, names_of
from .decisions.deciding import Settings, decide, prompts_of
from .decisions.questions import Decision, Question
from .task import Prompt, Task, TaskAnswer, TaskModel, pictures_of, table_row, text_of

TEXT, JSON, CSV = "text", "json", "csv"
FORMATS = (TEXT, JSON, CSV)
YES_OR_NO = ("yes", "no")


class Deciding(Task):
    """A task that the probabilities of answers decide."""

    def decision(self, message: ChatMessage) -> Decision:
        """What is asked about a text."""
        raise NotImplementedError

    def settings(self, model: TaskModel, message: ChatMessage) -> Settings:
        """How it is asked."""
        raise NotImplementedError

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        yield from prompts_of(model.runner, self.decision(message), self.settings(model, message))

    def answers(self, model: TaskModel, message: ChatMessage) -> Sequence[Answer]:
        """The answers to the questions, in their order."""
        settings = self.settings(model, message)
        return decide(model.runner, self.decision(message), settings, ask=model.read_all).answers


@dataclass(frozen=True)
class Choose(Deciding):
    """``labels``: the answers. ``format``: the answer alone, a JSON object with the probabilities, or a row of CSV.
    ``readout`` and ``orders``: see ``decisions.deciding.Settings``."""

    labels: tuple[str, ...]
    format: str = TEXT
    readout: str | None = None
    orders: int = 1

    places = frozenset({"text", "labels"})

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        (answer,) = self.answers(model, message)
        shares = dict(zip(self.labels, answer.probabilities, strict=True))
        details = {"probabilities": shares, **self._more(answer), **how_sure(answer)}
        if self.format == JSON:
            record = {"source": name, "answer": answer.text, **details}
            return TaskAnswer(json.dumps(record, ensure_ascii=False), details)
        if self.format == CSV:
            row = [name, answer.text, *answer.probabilities, *self._more(answer).values()]
            return TaskAnswer(table_row(row), details)
        return TaskAnswer(answer.text, details)

    @property
    def header(self) -> str | None:
        return table_row(["source", "answer", *self.labels, *self._columns]) if self.format == CSV else None

    def to_json(self) -> JsonObject:
        more: JsonObject = {} if self.readout is None else {"readout": self.readout}
        return {"format": self.format, **more, **({"orders": self.orders} if self.orders > 1 else {})}

    @property
    def _columns(self) -> tuple[str, ...]:
        """Of a table, beside the labels' own."""
        return ()

    def decision(self, message: ChatMessage) -> Decision:
        return Decision(text_of(message), (self._question(),), tuple(pictures_of(message)))

    def _question(self) -> Question:
        raise NotImplementedError

    def settings(self, model: TaskModel, message: ChatMessage) -> Settings:
        pictures = pictures_of(message)

        def put(text: str, _question: Question, texts: Sequence[str]) -> list[ChatMessage]:
            return model.wording.messages({"labels": ", ".join(texts), "text": text, **self._values()}, pictures)

        asked, free = partial(put, text_of(message)), None
        if model.wording.calibrated and not pictures:
            free = partial(put, "")
        turned = self.readout == LABELS and self.orders == 1
        return Settings(self.readout, self.orders, asked, GenerationOptions(temperature=0.0), turned, free)

    def _values(self) -> dict[str, str]:
        return {}

    def _more(self, answer: Answer) -> dict[str, Any]:
        """What else the probabilities say."""
        return {}


@dataclass(frozen=True)
class Classify(Choose):
    """One of several labels for a text."""

    name = "classify"

    def to_json(self) -> JsonObject:
        return {"task": self.name, "labels": list(self.labels), **super().to_json()}

    def _question(self) -> Question:
        return Question.choice("Which of these labels fits the text?", self.labels)


@dataclass(frozen=True)
class Decide(Choose):
    """A question about a text. ``is_score``: the labels are numbers, and their mean is reported."""

    question: str = ""
    is_score: bool = False

    name = "decide"
    places = frozenset({"text", "labels", "question"})

    @property
    def _columns(self) -> tuple[str, ...]:
        return ("expected",) if self.is_score else ()

    def to_json(self) -> JsonObject:
        answers = {"score": f"{self.labels[0]}..{self.labels[-1]}"} if self.is_score else {"choices": list(self.labels)}
        return {"task": self.name, "question": self.question, **answers, **super().to_json()}

    def _question(self) -> Question:
        if self.is_score:
            return Question.score(self.question, self.labels)
        if self.labels == YES_OR_NO:
            return Question.predicate(self.question)
        return Question.choice(self.question, self.labels)

    def _values(self) -> dict[str, str]:
        return {"question": self.question}

    def _more(self, answer: Answer) -> dict[str, Any]:
        return {"expected": int(self.labels[0]) + answer.score} if self.is_score else {}


@dataclass(frozen=True)
class DecideAll(Deciding):
    """Several questions about a text. ``questions``: ``asked`` as they were given."""

    asked: tuple[Question, ...]
    questions: Any
    format: str = TEXT
    readout: str | None = None
    orders: int = 1

    name = "decide"
    places = Decide.places

    def to_json(self) -> JsonObject:
        asked = {"questions": self.questions, "format": self.format, "orders": self.orders}
        return {"task": self.name, **asked, **({} if self.readout is None else {"readout": self.readout})}

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        answers = self.answers(model, message)
        details = {"answers": {key: answer_object(each) for key, each in zip(self._names, answers, strict=True)}}
        if self.format == JSON:
            return TaskAnswer(json.dumps({"source": name, **details}, ensure_ascii=False), details)
        named = list(zip(self._names, answers, strict=True))
        if self.format == CSV:
            rows = [table_row([name, key, each.text, max(each.probabilities), each.confidence]) for key, each in named]
            return TaskAnswer("\n".join(rows), details)
        return TaskAnswer(
            "\n".join(f"{key}: {each.text} {max(each.probabilities):.3f}" for key, each in named), details
        )

    @property
    def header(self) -> str | None:
        return table_row(["source", "question", "answer", "probability", "confidence"]) if self.format == CSV else None

    @property
    def _names(self) -> list[str]:
        return names_of(self.asked)

    def settings(self, _model: TaskModel, _message: ChatMessage) -> Settings:
        """How it is asked."""
        return Settings(self.readout, self.orders, options=GenerationOptions(temperature=0.0))

    def decision(self, message: ChatMessage) -> Decision:
        return Decision(text_of(message), self.asked, tuple(pictures_of(message)))
