"""Redaction: the model and expressions list personal data, and every occurrence of what they list is masked."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..errors import LeapConstraintError, LeapGenerationError
from ..messages import ChatMessage
from ..options import GenerationOptions
from .masking import count_masks, mask
from .personal_patterns import CATEGORIES as PATTERNED
from .personal_patterns import found_by_pattern
from .pieces import halves_between_sentences, pieces_that_fit
from .task import Prompt, Task, TaskAnswer, TaskModel, text_of

CATEGORIES = ("address", "company_name", "email_address", "human_name", "phone_number")
MOST, LONGEST = 20, 80
"""Items of a list and characters of an item: a list that has as many may leave something out."""
LISTED = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": LONGEST}, "maxItems": MOST}
"""One category's entities in one piece of a text."""
TRIES = 3
RETRY_TEMPERATURE = 0.4


@dataclass(frozen=True)
class Redact(Task):
    """``categories`` name what the model lists, ``patterns`` what expressions find. ``lines``: the model sees one line
    of the text at a time."""

    categories: tuple[str, ...] = CATEGORIES
    lines: bool = False
    patterns: tuple[str, ...] = PATTERNED

    name = "redact"
    places = frozenset({"text", "categories", "schema"})

    def to_json(self) -> JsonObject:
        fields = {"task": self.name, "categories": list(self.categories), "patterns": list(self.patterns)}
        return {**fields, **({"lines": True} if self.lines else {})}

    def caution(self, model: TaskModel) -> str | None:
        if model.wording.trained:
            return None
        return (
            f"{model.runner.model_id} was not made to find personal data: read what comes out, what it does not "
            "list stays readable (LFM2-350M-PII-Extract-JP was made for it, for Japanese)"
        )

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        return (self._prompt(model, piece) for piece in self._pieces(model, message))

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        entities: dict[str, list[str]] = {category: [] for category in self.categories}
        for category, items in found_by_pattern(text_of(message), self.patterns).items():
            entities[category] = items
        pieces = list(self._pieces(model, message))
        for number, piece in enumerate(pieces, 1):
            if len(pieces) > 1:
                model.tell(f"piece {number} of {len(pieces)}")
            for category, items in self._entities(model, piece):
                entities[category] += [item for item in items if item.strip() and item not in entities[category]]
        masked, masks = mask(text_of(message), entities)
        return TaskAnswer(masked, {"map": masks, "masked": count_masks(masked, masks, entities)})

    def _pieces(self, model: TaskModel, message: ChatMessage) -> Iterator[str]:
        text = text_of(message)
        for part in text.splitlines() if self.lines else [text]:
            if part.strip():
                yield from pieces_that_fit(
                    part, lambda piece: model.fits(self._prompt(model, piece)[0]), model.most_characters
                )

    def _prompt(self, model: TaskModel, text: str) -> Prompt:
        names = sorted(set(self.categories))  # the card: in alphabetical order
        shape = {"properties": dict.fromkeys(names, LISTED), "required": names, "additionalProperties": False}
        schema = json.dumps({"type": "object", **shape})
        listed = ", ".join(f"<{name}>" for name in names)
        options = model.options(json_schema_constraint=schema, inject_schema_into_prompt=False)
        return model.wording.messages({"categories": listed, "schema": schema, "text": text}), options

    def _entities(self, model: TaskModel, text: str) -> Iterator[tuple[str, list[str]]]:
        """Categories with what a text has of them. The halves of a text with a full list are asked for as well, since
        the constraint closes such a list. Raises LeapGenerationError for one that has no halves."""
        lists = self._lists(model, *self._prompt(model, text))
        full = [name for name, items in lists.items() if len(items) >= MOST or LONGEST in map(len, items)]
        for category, items in lists.items():  # an item of full length was cut off: its rest would stay unmasked
            yield category, [item for item in items if len(item) < LONGEST]
        if full:
            halves = halves_between_sentences(text)
            if halves is None:
                raise LeapGenerationError(
                    f"a sentence of {len(text.strip())} characters may have more of {', '.join(full)} than the model "
                    f"can list: {MOST} items of fewer than {LONGEST} characters",
                    hint="break long lines; a model that repeats itself fills its lists: try another model",
                )
            model.tell(f"the list of {', '.join(full)} is full: asking again for each half of the text")
            for half in halves:
                yield from self._entities(model, half)

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
