"""Extraction by a schema: fields as the Extract models' cards write them, and a document of a text or a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..constraints.extraction_prompt import field_lines
from ..errors import LeapConstraintError
from ..messages import ChatMessage
from ..schemas.optional_fields import all_optional
from ..schemas.schema import check_schema
from .pieces import merged, pieces_that_fit
from .table import table_row
from .task import JsonObject, Prompt, Task, TaskAnswer, TaskModel, pictures_of, text_of

JSONL, CSV = "jsonl", "csv"


@dataclass(frozen=True)
class Extract(Task):
    """``schema`` describes an object. ``format``: a JSON document, or a row of a CSV table of the schema's fields."""

    schema: JsonObject
    format: str = JSONL

    name = "extract"
    places = frozenset({"text", "fields", "lines", "schema"})

    def to_json(self) -> JsonObject:
        return {"task": self.name, "schema": self.schema, "format": self.format}

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        shape = all_optional(self.schema)
        options = model.options(json_schema_constraint=json.dumps(shape), inject_schema_into_prompt=False)
        values = {
            "fields": fields_of_schema(self.schema),
            "lines": "\n".join(field_lines(self.schema)),
            "schema": json.dumps(shape),
        }

        def messages(text: str) -> list[ChatMessage]:
            return model.wording.messages({**values, "text": text}, pictures_of(message))

        fits = (lambda _text: True) if pictures_of(message) else (lambda text: model.fits(messages(text)))
        for piece in pieces_that_fit(text_of(message), fits, model.most_characters):
            yield messages(piece), options

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        documents = []
        prompts = list(self.prompts(model, message))
        for number, (messages, options) in enumerate(prompts, 1):
            if len(prompts) > 1:
                model.tell(f"piece {number} of {len(prompts)}")
            documents.append(json.loads(model.text(messages, options)))
        whole = merged(documents)
        text = json.dumps(whole, ensure_ascii=False)
        problems = check_schema(all_optional(self.schema)).problems_of(whole) if len(documents) > 1 else []
        if problems:
            raise LeapConstraintError(
                "the pieces of the text together do not fit the schema", text=text, problems=problems
            )
        return TaskAnswer(self._row(whole) if self.format == CSV else text)

    @property
    def header(self) -> str | None:
        return table_row(list(self.schema.get("properties", {}))) if self.format == CSV else None

    def _row(self, document: JsonObject) -> str:
        return table_row([document.get(name, "") for name in self.schema.get("properties", {})])


def fields_of_schema(schema: Mapping[str, Any], indent: str = "") -> str:
    """``- name: "Description"``, a line a field; nested objects below theirs."""
    lines = []
    for name, detail in schema.get("properties", {}).items():
        part = detail if isinstance(detail, dict) else {}
        items = part.get("items")
        inner = part if part.get("properties") else items if isinstance(items, dict) else {}
        if inner.get("properties"):
            lines += [f"{indent}- {name}:", fields_of_schema(inner, indent + "  ")]
        else:
            text = part.get("description") or name.replace("_", " ")
            lines.append(f"{indent}- {name}: {json.dumps(text, ensure_ascii=False)}")
    return "\n".join(lines)
