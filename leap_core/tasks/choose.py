"""Classification and decisions: the model's probabilities of given answers, all of them scored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..messages import ChatMessage
from ..options import GenerationOptions
from .scoring import option_logprobs, probabilities
from .table import table_row
from .task import JsonObject, Prompt, Task, TaskAnswer, TaskModel, text_of

TEXT, JSON, CSV = "text", "json", "csv"
FORMATS = (TEXT, JSON, CSV)
YES_OR_NO = ("yes", "no")


@dataclass(frozen=True)
class Choose(Task):
    """``labels``: the answers. ``format``: the answer alone, a JSON object with the probabilities, or a row of CSV."""

    labels: tuple[str, ...]
    format: str = TEXT

    places = frozenset({"text", "labels"})

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        values = {"labels": ", ".join(self.labels), "text": text_of(message), **self._values()}
        yield model.wording.messages(values), GenerationOptions(temperature=0.0)

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        ((messages, options),) = self.prompts(model, message)
        shares = probabilities(option_logprobs(model, messages, self.labels, options))
        best = self.labels[shares.index(max(shares))]
        details = {"probabilities": dict(zip(self.labels, shares, strict=True)), **self._more(shares)}
        if self.format == JSON:
            return TaskAnswer(json.dumps({"source": name, "answer": best, **details}, ensure_ascii=False), details)
        if self.format == CSV:
            return TaskAnswer(table_row([name, best, *shares, *self._more(shares).values()]), details)
        return TaskAnswer(best, details)

    @property
    def header(self) -> str | None:
        more = self._more([0.0] * len(self.labels))
        return table_row(["source", "answer", *self.labels, *more]) if self.format == CSV else None

    def _values(self) -> dict[str, str]:
        return {}

    def _more(self, shares: list[float]) -> dict[str, Any]:
        """What else the probabilities say."""
        return {}


@dataclass(frozen=True)
class Classify(Choose):
    """One of several labels for a text."""

    name = "classify"

    def to_json(self) -> JsonObject:
        return {"task": self.name, "labels": list(self.labels), "format": self.format}


@dataclass(frozen=True)
class Decide(Choose):
    """A question about a text. ``is_score``: the labels are numbers, and their mean is told."""

    question: str = ""
    is_score: bool = False

    name = "decide"
    places = frozenset({"text", "labels", "question"})

    def to_json(self) -> JsonObject:
        answers = {"score": f"{self.labels[0]}..{self.labels[-1]}"} if self.is_score else {"choices": list(self.labels)}
        return {"task": self.name, "question": self.question, **answers, "format": self.format}

    def _values(self) -> dict[str, str]:
        return {"question": self.question}

    def _more(self, shares: list[float]) -> dict[str, Any]:
        if not self.is_score:
            return {}
        return {"expected": sum(int(label) * share for label, share in zip(self.labels, shares, strict=True))}
