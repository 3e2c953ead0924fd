"""Examples of an extraction, which a model is shown before its text: texts with the documents that they give.

{"text": "Ann Lee is 31.", "document": {"name": "Ann Lee", "age": 31}}

A line of a review with what was decided, and a case of ``leap eval`` that expects a document, are examples, too. Each
is checked: its document fits the schema, and its values are in its text.
"""

from __future__ import annotations

from ..json_fields import JsonObject
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import LeapError, LeapSerializationError
from ..json_fields import object_at, text_at
from ..schemas.json_schema import check_schema, parse_json
from ..schemas.optional_fields import all_optional
from .evidence.places import find_places
from .evidence.value_places import NOT_IN_TEXT
from .review.corrections import corrected_document
from .review.review_lines import read_review

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
    if "evidence" in fields and "schema" in fields:
        fields = {**fields, "document": corrected_document(read_review(fields))}
    elif isinstance(fields.get("expect"), dict):
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
