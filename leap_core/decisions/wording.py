"""How a question is put to a model. The state comes first, so that the prompts of all its questions begin alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..messages import ChatMessage, Text
from .labels import Label
from .questions import CHOICE, PREDICATE, SCORE, Decision, Question, text_of

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
