"""Extraction by a schema, piece by piece, and the examples that a model is shown before its text.

{"text": "Ann Lee is 31.", "document": {"name": "Ann Lee", "age": 31}}

A line of a review with what was decided, and a case of ``leap eval`` that expects a document, are examples, too. Each
is checked: its document fits the schema, and its values are in its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..conversation.messages import ChatMessage, Image
from ..conversation.options import GenerationOptions
from ..conversation.responses import Complete, TokenLogprob
from ..errors import LeapConstraintError, LeapError, LeapOptionsError, LeapSerializationError
from ..inference.constraints.shape_prompts import field_lines, typed_shape
from ..schemas.grounding import copying
from ..schemas.json_schema import check_schema, parse_json, resolved_schema, without_absent
from ..schemas.json_values import JsonObject, object_at, text_at
from ..schemas.transforms import MUST, absent_as_null, all_optional, closed
from ..system.dataclass import dataclass
from ..system.features import own_parts
from .evidence.evidence import invented_last, with_missed, without_repeats
from .evidence.places import find_places
from .evidence.values import NOT_IN_TEXT
from .task import Prompt, Task, TaskAnswer, TaskModel, merged, pictures_of, pieces_that_fit, table_row, text_of

FEATURES = {"review": "leap_core.tasks.review.documents:example_of"}
"""Functions of an example's fields that return them with its document."""
LARGEST_FILE = 16 * 1024 * 1024
"""Bytes; no context holds as much."""


@dataclass(frozen=True)
class Example:
    """A text and its document."""

    text: str
    document: JsonObject

    def to_json(self) -> JsonObject:
        return {"text": self.text, "document": self.document}


def read_examples(values: object, schema: JsonObject) -> tuple[Example, ...]:
    """Examples from a list of plain data. Raises LeapSerializationError, which names the first that is wrong."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise LeapSerializationError("expected a list of objects with text and document", path="examples")
    return _read_examples(json.dumps(values), json.dumps(schema))


@lru_cache(maxsize=16)
def _read_examples(values: str, schema: str) -> tuple[Example, ...]:
    """By text, for all lines of a batch may have the same."""
    examples = []
    for number, value in enumerate(json.loads(values)):
        try:
            examples.append(read_example(value, json.loads(schema)))
        except LeapError as error:
            raise LeapSerializationError(error.message, path=f"examples[{number}]", hint=error.hint) from None
    return tuple(examples)


def examples_of_file(path: Path, schema: JsonObject, name: str | None = None) -> list[Example]:
    """The examples of a file of JSON lines, called ``name``. Raises LeapSerializationError with the line's number."""
    name = path.name if name is None else name
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise LeapSerializationError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST_FILE:
        raise LeapSerializationError(f"{name} is larger than {LARGEST_FILE // 1024**2} MiB, which no model could read")
    examples = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            try:
                examples.append(read_example(parse_json(line.decode()), schema))
            except LeapError as error:
                raise LeapSerializationError(error.message, path=f"{name}:{number}", hint=error.hint) from None
            except UnicodeDecodeError as error:
                raise LeapSerializationError(
                    f"not UTF-8 text (byte {error.start + 1})", path=f"{name}:{number}"
                ) from None
            except ValueError as error:
                raise LeapSerializationError(
                    f"not JSON: {error}",
                    path=f"{name}:{number}",
                    hint='each line is an object such as {"text": "Ann is 31.", "document": {"age": 31}}',
                ) from None
    if not examples:
        raise LeapSerializationError(f"{name} has no examples")
    return examples


def read_example(value: object, schema: JsonObject) -> Example:
    """One example, checked. Raises LeapError with the pointer of the value that is wrong."""
    fields = object_at(value, "the example")
    for read in own_parts(FEATURES).values():
        fields = read(fields)
    if isinstance(fields.get("expect"), dict):
        fields = {**fields, "document": fields["expect"].get("json")}
    for name in ("text", "document"):
        if fields.get(name) is None:
            raise LeapSerializationError("missing", path=name)
    text, document = text_at(fields["text"], "text"), object_at(fields["document"], "document")
    if not text.strip():
        raise LeapSerializationError("it is empty", path="text")
    try:
        json.dumps([text, document], ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise LeapSerializationError("has half of a surrogate pair, which is no character") from None
    except RecursionError:
        raise LeapSerializationError("is nested too deeply") from None
    problems = check_schema(all_optional(schema)).problems_of(document)
    if problems:
        raise LeapSerializationError(f"its document does not fit the schema: {problems[0]}")
    for place in find_places(text, document, schema):
        if place.how == NOT_IN_TEXT:
            shown = json.dumps(place.leaf.value, ensure_ascii=False)
            raise LeapSerializationError(
                f"{place.pointer}: {shown} is not in its text",
                hint="a model that is shown values from nowhere invents them, too: leave the value out, or write it as "
                "the text has it",
            )
    known = [name for name in schema.get("properties", {}) if name in document]
    ordered = {name: document[name] for name in (*known, *(each for each in document if each not in known))}
    return Example(text, ordered)


JSONL, CSV = "jsonl", "csv"
ABSENT, FAIL = "absent", "fail"
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
    the text, too. ``examples``: what the model is shown before its text. ``verbatim``: whether strings without a
    description are words of the text; None: as the recipe has it."""

    schema: JsonObject
    format: str = JSONL
    evidence: bool = False
    strict: str | None = None
    passes: int = 1
    keep_text: bool = False
    examples: tuple[Example, ...] = ()
    verbatim: bool | None = None

    name = "extract"
    places = frozenset({"text", "fields", "lines", "typed", "omit", "schema"})

    def to_json(self) -> JsonObject:
        more = {**({"evidence": True} if self.evidence else {}), **({"strict": self.strict} if self.strict else {})}
        more |= {"passes": self.passes} if self.passes > 1 else {}
        more |= {"keep_text": True} if self.keep_text else {}
        more |= {"examples": [each.to_json() for each in self.examples]} if self.examples else {}
        more |= {} if self.verbatim is None else {"verbatim": self.verbatim}
        return {"task": self.name, "schema": self.schema, "format": self.format, **more}

    @property
    def has_evidence(self) -> bool:
        """Whether places and confidences are computed."""
        return self.evidence or self.strict is not None

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        return self._prompts(model, message, self._pieces(model, message))

    def _prompts(self, model: TaskModel, message: ChatMessage, pieces: Sequence[str]) -> Iterator[Prompt]:
        shape = closed(self.schema)
        if len(pieces) > 1:  # each has its part of the fields
            shape = {key: value for key, value in shape.items() if key not in MUST}
        shape = absent_as_null(shape) if model.wording.nulls else shape
        scored = {"logprobs": True, "forced_logprobs": False} if self.has_evidence else {}
        pictures = pictures_of(message)
        if not pictures and (model.wording.verbatim if self.verbatim is None else self.verbatim):
            shape = copying(shape)
        options = model.options(json_schema_constraint=json.dumps(shape), inject_schema_into_prompt=False, **scored)
        grounding = False if pictures else options.grounding
        for piece in pieces:
            source = piece if grounding is True else grounding
            yield self._messages(model, piece, pictures), replace(options, grounding=source)

    def _pieces(self, model: TaskModel, message: ChatMessage) -> list[str]:
        pictures = pictures_of(message)
        if self.examples:
            self._check_examples(model, pictures)
        fits = (lambda _text: True) if pictures else (lambda text: model.fits(self._messages(model, text)))
        return pieces_that_fit(text_of(message), fits, model.most_characters)

    def _messages(self, model: TaskModel, text: str, pictures: Sequence[Image] = ()) -> list[ChatMessage]:
        """The wording, with a turn for each example before the text."""
        optional = set(self.schema.get("properties", {})).difference(self.schema.get("required", ()))
        values = {
            "omit": " Missing data should be omitted." if optional else "",
            "fields": fields_of_schema(self.schema),
            "lines": "\n".join(field_lines(self.schema)),
            "typed": typed_shape(self.schema, model.wording.nulls),
            "schema": json.dumps(closed(self.schema)),
        }
        *opening, asked = model.wording.messages({**values, "text": text}, pictures)
        for example in self.examples:
            absent = dict.fromkeys(self.schema.get("properties", {})) if model.wording.nulls else {}
            answer = ChatMessage("assistant", json.dumps({**absent, **example.document}, ensure_ascii=False))
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
            raise LeapOptionsError(
                "examples", "the recipe puts the text into its system prompt, so examples cannot precede it"
            )
        size, context = model.runner.get_prompt_tokens_size(self._messages(model, "")), model.runner.context_size
        if size > context * MOST_OF_CONTEXT:
            raise LeapOptionsError(
                "examples",
                f"they take {size} tokens with the instructions, and of the context of {context} an eighth has to be "
                "left for the text and a quarter for the answer: give fewer or shorter ones, or --context-size",
            )

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        answers: list[tuple[JsonObject, Sequence[TokenLogprob]]] = []
        pieces = self._pieces(model, message)
        prompts = list(self._prompts(model, message, pieces))
        for number, (messages, options) in enumerate(prompts, 1):
            if len(prompts) > 1:
                model.tell(f"piece {number} of {len(prompts)}")
            answers.append(self._answer(model, messages, options, optional=len(prompts) > 1))
        documents = [document for document, _ in answers]
        if len(documents) > 1 and self.has_evidence:
            documents = invented_last(documents, pieces, self.schema)
        whole = merged(documents)
        if len(pieces) > 1 and (lacking := self._lacking(whole)):
            model.tell(f"asking again for {', '.join(lacking['required'])}")
            asked_again = [
                (each, replace(options, json_schema_constraint=json.dumps(lacking))) for each, options in prompts
            ]
            answers += [self._answer(model, *prompt) for prompt in asked_again]
            found = [document for document, _ in answers[-len(prompts) :]]
            whole = merged([whole, *invented_last(found, pieces, self.schema)])
        for again in range(1, self.passes):
            model.tell(f"pass {again + 1} of {self.passes}")
            for messages, options in prompts:
                other = replace(options, temperature=PASS_TEMPERATURE, rng_seed=again)
                answers.append(self._answer(model, messages, other, optional=len(prompts) > 1))
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

    def _answer(
        self, model: TaskModel, messages: list[ChatMessage], options: GenerationOptions, *, optional: bool = False
    ) -> tuple[JsonObject, Sequence[TokenLogprob]]:
        """The document that a model answered with. ``optional``: all fields are."""
        document, logprobs = _answer_of(model.complete(messages, options))
        if model.wording.nulls:
            schema = {**self.schema, "required": []} if optional else self.schema
            document = without_absent(document, schema, schema)
        if model.wording.verbatim:
            document = _verbatim(document, self.schema, self.schema, messages[-1].text)
            if model.wording.nulls and not optional:
                document = without_repeats(document, self.schema, messages[-1].text)
        return document, logprobs

    def _lacking(self, document: JsonObject) -> JsonObject:
        """A schema of the required fields that a document of several pieces lacks; empty where it has all."""
        shape = closed(self.schema)
        known = shape.get("properties", {})
        missing = [name for name in shape.get("required", ()) if name in known and name not in document]
        if not missing:
            return {}
        return {**shape, "properties": {name: known[name] for name in missing}, "required": missing}

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
        from .evidence.evidence import cells_of

        cells: list[Any] = []
        for name in self.schema.get("properties", {}):
            cells.append(document.get(name, ""))
            if self.evidence:
                cells += cells_of(name, document.get(name), found)
        return table_row(cells)


def _answer_of(complete: Complete) -> tuple[JsonObject, Sequence[TokenLogprob]]:
    """The document that a model answered with; one of an endpoint may be none. Raises LeapConstraintError."""
    text = complete.full_message.text
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise LeapConstraintError("the answer is no JSON object", text=text, problems=[])
    return document, complete.logprobs


FREE_TEXT = {"type", "title", "minLength", "maxLength", "anyOf", "oneOf"}
"""Keywords of a field that ask for no spelling of its own."""
LONGEST_VERBATIM = 200


def _verbatim(value: Any, schema: Any, root: JsonObject, text: str) -> Any:
    """A value whose texts are spelled as ``text`` has them, where they differ in case alone and it has one spelling."""
    asked = schema if isinstance(schema, dict) else {}
    schema = resolved_schema(asked, root)
    if isinstance(value, list):
        return [_verbatim(each, schema.get("items"), root, text) for each in value]
    if isinstance(value, dict):
        fields = schema.get("properties") or {}
        return {name: _verbatim(each, fields.get(name), root, text) for name, each in value.items()}
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_VERBATIM or value in text:
        return value
    if not FREE_TEXT.issuperset({*asked, *schema}):
        return value
    found = set(re.findall(rf"(?i)(?<!\w){re.escape(value)}(?!\w)", text))
    return found.pop() if len(found) == 1 else value


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
