"""Extraction by a schema: fields as the Extract models' cards write them, and a document of a text or a picture."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..constraints.extraction_prompt import field_lines
from ..errors import LeapConstraintError, LeapOptionsError
from ..messages import ChatMessage, Image
from ..responses import TokenLogprob
from ..schemas.json_schema import check_schema
from ..schemas.optional_fields import all_optional
from .csv_rows import table_row
from .evidence.passes import invented_last, with_missed
from .examples import Example
from .pieces import merged, pieces_that_fit
from .task import Prompt, Task, TaskAnswer, TaskModel, pictures_of, text_of

JSONL, CSV = "jsonl", "csv"
ABSENT, FAIL = "absent", "fail"
from .evidence.value_places import NOT_IN_TEXT
MOST_PASSES = 10
MOST_OF_CONTEXT = 5 / 8
"""Examples and instructions may take as much: a text has the rest up to the three quarters that a prompt may fill."""
PASS_TEMPERATURE = 0.4
"""The passes after the first are sampled at this, for they would say the same otherwise."""


@dataclass(frozen=True)
class Extract(Task):
    """``schema`` describes an object. ``format``: a JSON document, or a row of a CSV table of the schema's fields.
    ``evidence``: also say where each value is in the text, and how sure the model was. ``strict``: what becomes of
    values that are not in the text: they are left out (``absent``), or the text fails (``fail``).
    ``passes``: times that the text is read; those after the first add what it missed. ``keep_text``: the details have
    the text, too. ``examples``: what the model is shown before its text."""

    schema: JsonObject
    format: str = JSONL
    evidence: bool = False
    strict: str | None = None
    passes: int = 1
    keep_text: bool = False
    examples: tuple[Example, ...] = ()

    name = "extract"
    places = frozenset({"text", "fields", "lines", "schema"})

    def to_json(self) -> JsonObject:
        more = {**({"evidence": True} if self.evidence else {}), **({"strict": self.strict} if self.strict else {})}
        more |= {"passes": self.passes} if self.passes > 1 else {}
        more |= {"keep_text": True} if self.keep_text else {}
        more |= {"examples": [each.to_json() for each in self.examples]} if self.examples else {}
        return {"task": self.name, "schema": self.schema, "format": self.format, **more}

    @property
    def has_evidence(self) -> bool:
        """Whether places and confidences are computed."""
        return self.evidence or self.strict is not None

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        return self._prompts(model, message, self._pieces(model, message))

    def _prompts(self, model: TaskModel, message: ChatMessage, pieces: Sequence[str]) -> Iterator[Prompt]:
        shape = all_optional(self.schema)
        scored = {"logprobs": True, "forced_logprobs": False} if self.has_evidence else {}
        options = model.options(json_schema_constraint=json.dumps(shape), inject_schema_into_prompt=False, **scored)
        for piece in pieces:
            yield self._messages(model, piece, pictures_of(message)), options

    def _pieces(self, model: TaskModel, message: ChatMessage) -> list[str]:
        pictures = pictures_of(message)
        if self.examples:
            self._check_examples(model, pictures)
        fits = (lambda _text: True) if pictures else (lambda text: model.fits(self._messages(model, text)))
        return pieces_that_fit(text_of(message), fits, model.most_characters)

    def _messages(self, model: TaskModel, text: str, pictures: Sequence[Image] = ()) -> list[ChatMessage]:
        """The wording, with a turn for each example before the text."""
        values = {
            "fields": fields_of_schema(self.schema),
            "lines": "\n".join(field_lines(self.schema)),
            "schema": json.dumps(all_optional(self.schema)),
        }
        *opening, asked = model.wording.messages({**values, "text": text}, pictures)
        for example in self.examples:
            answer = ChatMessage("assistant", json.dumps(example.document, ensure_ascii=False))
            opening += [model.wording.messages({**values, "text": example.text})[-1], answer]
        return [*opening, asked]

    def caution(self, model: TaskModel) -> str | None:
        if self.examples:
            self._check_examples(model, ())
        return None

    def _check_examples(self, model: TaskModel, pictures: Sequence[Image]) -> None:
        """See to it that examples can be shown, and leave room. Raises LeapOptionsError."""
        if pictures:
            raise LeapOptionsError("examples", "they are texts, and a picture takes none")
        if "text" not in model.wording.user_places:
            raise LeapOptionsError("examples", "the recipe has the text in its system prompt, before which none stands")
        size, context = model.runner.get_prompt_tokens_size(self._messages(model, "")), model.runner.context_size
        if size > context * MOST_OF_CONTEXT:
            raise LeapOptionsError(
                "examples",
                f"they take {size} tokens with the instructions, and of the context of {context} an eighth has to be "
                "left for the text and a quarter for the answer: give fewer or shorter ones, or --context-size",
            )

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        documents: list[JsonObject] = []
        answers: list[tuple[JsonObject, Sequence[TokenLogprob]]] = []
        pieces = self._pieces(model, message)
        prompts = list(self._prompts(model, message, pieces))
        for number, (messages, options) in enumerate(prompts, 1):
            if len(prompts) > 1:
                model.tell(f"piece {number} of {len(prompts)}")
            complete = model.complete(messages, options)
            documents.append(_document_of(complete.full_message.text))
            answers.append((documents[-1], complete.logprobs))
        if len(documents) > 1 and self.has_evidence:
            documents = invented_last(documents, pieces, self.schema)
        whole = merged(documents)
        for again in range(1, self.passes):
            model.tell(f"pass {again + 1} of {self.passes}")
            for messages, options in prompts:
                other = replace(options, temperature=PASS_TEMPERATURE, rng_seed=again)
                complete = model.complete(messages, other)
                answers.append((_document_of(complete.full_message.text), complete.logprobs))
                whole = with_missed(whole, answers[-1][0], text_of(message))
        text = json.dumps(whole, ensure_ascii=False)
        problems = check_schema(all_optional(self.schema)).problems_of(whole) if len(answers) > 1 else []
        if problems:
            raise LeapConstraintError(
                "the pieces of the text together do not fit the schema", text=text, problems=problems
            )
        if not self.has_evidence:
            return TaskAnswer(self.row(whole) if self.format == CSV else text)
        return self._with_evidence(whole, answers, text_of(message), name)

    def _with_evidence(
        self, document: JsonObject, answers: Sequence[tuple[JsonObject, Any]], text: str, name: str
    ) -> TaskAnswer:
        from .evidence.evidence import evidence_left, evidence_of, sure_of, without_invented

        found = evidence_of(text, document, self.schema, sure_of(answers), name)
        invented = [each["pointer"] for each in found if each["how"] == NOT_IN_TEXT]
        if invented and self.strict == FAIL:
            problems = [f"{where}: not in the text" for where in invented]
            raise LeapConstraintError(
                f"not in the text: {', '.join(invented)}", text=json.dumps(document), problems=problems
            )
        left_out = [each for each in found if each["how"] == NOT_IN_TEXT] if self.strict == ABSENT else []
        if left_out:
            document = without_invented(document, found)
            found = evidence_left(found, document)
        details: JsonObject = {"document": document, "evidence": found} if self.evidence else {}
        details |= {"left_out": left_out} if self.evidence and left_out else {}
        details |= {"source_text": text} if self.keep_text else {}
        row = self.row(document, found) if self.format == CSV else json.dumps(document, ensure_ascii=False)
        return TaskAnswer(row, details)

    @property
    def header(self) -> str | None:
        if self.format != CSV:
            return None
        names = self.schema.get("properties", {})
        return table_row([each for name in names for each in (name, *self._columns(name))])

    def _columns(self, name: str) -> list[str]:
        return [f"{name}.place", f"{name}.confidence"] if self.evidence else []

    def row(self, document: JsonObject, found: Sequence[JsonObject] = ()) -> str:
        """The document as a row of the table, with the places and confidences of ``found`` where it has evidence."""
        from .evidence.cells import cells_of

        cells: list[Any] = []
        for name in self.schema.get("properties", {}):
            cells.append(document.get(name, ""))
            if self.evidence:
                cells += cells_of(name, document.get(name), found)
        return table_row(cells)


def _document_of(text: str) -> JsonObject:
    """The document that a model answered with; one of an endpoint may be none. Raises LeapConstraintError."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise LeapConstraintError("the answer is no JSON object", text=text, problems=[])
    return document


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
