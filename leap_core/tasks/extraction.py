"""Extraction by a schema: fields as the Extract models' cards write them, and a document of a text or a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..constraints.extraction_prompt import field_lines
from ..errors import LeapConstraintError
from ..messages import ChatMessage
from ..responses import TokenLogprob
from ..schemas.json_schema import check_schema
from ..schemas.optional_fields import all_optional
from .csv_rows import table_row
from .evidence.passes import with_missed
from .pieces import merged, pieces_that_fit
from .task import JsonObject, Prompt, Task, TaskAnswer, TaskModel, pictures_of, text_of

JSONL, CSV = "jsonl", "csv"
ABSENT, FAIL = "absent", "fail"
NOT_IN_TEXT = "not_in_text"
MOST_PASSES = 10
PASS_TEMPERATURE = 0.4
"""The passes after the first are sampled at this, for they would say the same otherwise."""


@dataclass(frozen=True)
class Extract(Task):
    """``schema`` describes an object. ``format``: a JSON document, or a row of a CSV table of the schema's fields.
    ``evidence``: also say where each value is in the text, and how sure the model was. ``strict``: what becomes of
    values that are not in the text: they are left out (``absent``), or the text fails (``fail``).
    ``passes``: times that the text is read; those after the first add what it missed."""

    schema: JsonObject
    format: str = JSONL
    evidence: bool = False
    strict: str | None = None
    passes: int = 1

    name = "extract"
    places = frozenset({"text", "fields", "lines", "schema"})

    def to_json(self) -> JsonObject:
        more = {**({"evidence": True} if self.evidence else {}), **({"strict": self.strict} if self.strict else {})}
        more |= {"passes": self.passes} if self.passes > 1 else {}
        return {"task": self.name, "schema": self.schema, "format": self.format, **more}

    @property
    def has_evidence(self) -> bool:
        """Whether places and confidences are computed."""
        return self.evidence or self.strict is not None

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        shape = all_optional(self.schema)
        scored = {"logprobs": True, "forced_logprobs": False} if self.has_evidence else {}
        options = model.options(json_schema_constraint=json.dumps(shape), inject_schema_into_prompt=False, **scored)
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
        documents: list[JsonObject] = []
        answers: list[tuple[JsonObject, Sequence[TokenLogprob]]] = []
        prompts = list(self.prompts(model, message))
        for number, (messages, options) in enumerate(prompts, 1):
            if len(prompts) > 1:
                model.tell(f"piece {number} of {len(prompts)}")
            complete = model.complete(messages, options)
            documents.append(json.loads(complete.full_message.text))
            answers.append((documents[-1], complete.logprobs))
        whole = merged(documents)
        for again in range(1, self.passes):
            model.tell(f"pass {again + 1} of {self.passes}")
            for messages, options in prompts:
                other = replace(options, temperature=PASS_TEMPERATURE, rng_seed=again)
                complete = model.complete(messages, other)
                answers.append((json.loads(complete.full_message.text), complete.logprobs))
                whole = with_missed(whole, answers[-1][0], text_of(message))
        text = json.dumps(whole, ensure_ascii=False)
        problems = check_schema(all_optional(self.schema)).problems_of(whole) if len(answers) > 1 else []
        if problems:
            raise LeapConstraintError(
                "the pieces of the text together do not fit the schema", text=text, problems=problems
            )
        if not self.has_evidence:
            return TaskAnswer(self._row(whole) if self.format == CSV else text)
        return self._with_evidence(whole, answers, text_of(message), name)

    def _with_evidence(
        self, document: JsonObject, answers: Sequence[tuple[JsonObject, Any]], text: str, name: str
    ) -> TaskAnswer:
        from .evidence.evidence import evidence_of, sure_of, without_invented

        found = evidence_of(text, document, self.schema, sure_of(answers), name)
        invented = [each["pointer"] for each in found if each["how"] == NOT_IN_TEXT]
        if invented and self.strict == FAIL:
            problems = [f"{where}: not in the text" for where in invented]
            raise LeapConstraintError(
                f"not in the text: {', '.join(invented)}", text=json.dumps(document), problems=problems
            )
        if invented and self.strict == ABSENT:
            document = without_invented(document, found)
        details = {"evidence": found} if self.evidence else {}
        row = self._row(document, found) if self.format == CSV else json.dumps(document, ensure_ascii=False)
        return TaskAnswer(row, details)

    @property
    def header(self) -> str | None:
        if self.format != CSV:
            return None
        names = self.schema.get("properties", {})
        return table_row([each for name in names for each in (name, *self._columns(name))])

    def _columns(self, name: str) -> list[str]:
        return [f"{name}.place", f"{name}.confidence"] if self.evidence else []

    def _row(self, document: JsonObject, found: Sequence[JsonObject] = ()) -> str:
        cells: list[Any] = []
        for name in self.schema.get("properties", {}):
            cells.append(document.get(name, ""))
            if self.evidence:
                top = "/" + name.replace("~", "~0").replace("/", "~1")
                own = [each for each in found if each["pointer"] == top or each["pointer"].startswith(f"{top}/")]
                places = (each.get("place") for each in own)
                cells.append(
                    " ".join(f"{p['start']}-{p['end']}" if p else h["how"] for p, h in zip(places, own, strict=True))
                )
                cells.append(min((each["confidence"]["least"] for each in own if "confidence" in each), default=""))
        return table_row(cells)


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
