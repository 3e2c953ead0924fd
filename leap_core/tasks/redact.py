"""Redaction: the model lists personal data, and every occurrence of what it lists is masked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..errors import LeapConstraintError
from ..messages import ChatMessage
from ..options import GenerationOptions
from .masking import mask
from .pieces import pieces_that_fit
from .task import JsonObject, Prompt, Task, TaskAnswer, TaskModel, text_of

CATEGORIES = ("address", "company_name", "email_address", "human_name", "phone_number")
LISTED = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 80}, "maxItems": 20}
"""One category's entities in one piece of a text."""
TRIES = 3
RETRY_TEMPERATURE = 0.4


@dataclass(frozen=True)
class Redact(Task):
    """``categories`` name what is masked. ``lines``: the model sees one line of the text at a time."""

    categories: tuple[str, ...] = CATEGORIES
    lines: bool = False

    name = "redact"
    places = frozenset({"text", "categories", "schema"})

    def to_json(self) -> JsonObject:
        return {"task": self.name, "categories": list(self.categories), **({"lines": True} if self.lines else {})}

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        names = sorted(set(self.categories))  # the card: in alphabetical order
        shape = {"properties": dict.fromkeys(names, LISTED), "required": names, "additionalProperties": False}
        schema = json.dumps({"type": "object", **shape})
        options = model.options(json_schema_constraint=schema, inject_schema_into_prompt=False)
        listed = ", ".join(f"<{name}>" for name in names)

        def messages(text: str) -> list[ChatMessage]:
            return model.wording.messages({"categories": listed, "schema": schema, "text": text})

        text = text_of(message)
        for part in text.splitlines() if self.lines else [text]:
            if part.strip():
                for piece in pieces_that_fit(part, lambda piece: model.fits(messages(piece)), model.most_characters):
                    yield messages(piece), options

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        entities: dict[str, list[str]] = {category: [] for category in self.categories}
        prompts = list(self.prompts(model, message))
        for number, (messages, options) in enumerate(prompts, 1):
            if len(prompts) > 1:
                model.tell(f"piece {number} of {len(prompts)}")
            for category, items in self._lists(model, messages, options).items():
                entities[category] += [item for item in items if item.strip() and item not in entities[category]]
        masked, masks = mask(text_of(message), entities)
        return TaskAnswer(masked, {"map": masks})

    def _lists(self, model: TaskModel, messages: list[ChatMessage], options: GenerationOptions) -> dict[str, list[str]]:
        """The model's lists; one that broke off is asked for again, with more chance. Raises LeapConstraintError."""
        for attempt in range(TRIES - 1):
            try:
                lists: dict[str, list[str]] = json.loads(model.text(messages, options))
            except LeapConstraintError as error:
                model.tell(f"the list was broken ({error.message}): trying again")
                options = replace(options, temperature=RETRY_TEMPERATURE, rng_seed=attempt)
            else:
                return lists
        lists = json.loads(model.text(messages, options))
        return lists
