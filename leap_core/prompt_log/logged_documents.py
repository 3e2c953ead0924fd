"""The JSON documents among the answers in the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ..errors import LeapSchemaError
from ..schemas.optional_fields import all_optional
from ..schemas.shorthand import list_of
from .entry import Entry, canonical
from .log_database import PromptLog

FINISHED = ("stop", "constraint")


def forms_of(schema: Any) -> list[str]:
    """The canonical texts of a schema and of what leap makes of it: a list of its documents, and all of its fields
    optional, as ``leap extract`` asks for them."""
    forms = [schema]
    with suppress(LeapSchemaError):
        forms.append(list_of(schema))
    if isinstance(schema, dict):
        forms.append(all_optional(schema))
    return list(dict.fromkeys(canonical(form) for form in forms))


def documents(
    log: PromptLog,
    schemas: Sequence[str] | None,
    *,
    limit: int | None = None,
    model: str | None = None,
    since: float | None = None,
) -> Iterator[Any]:
    """The documents of whole answers with one of these schemas, or with any, oldest first; the newest ``limit`` of
    them. The elements of a list that was asked for as one of a schema's documents come one by one."""
    of_list = schemas[1:2] if schemas else []
    answers = log.entries(model=model, since=since, schemas=schemas or [])
    values: list[Any] = []
    for entry in answers:
        document = _document(entry)
        if document is not None:
            values += reversed(document) if entry.schema in of_list and isinstance(document, list) else [document]
    yield from reversed(values[:limit])


def _document(entry: Entry) -> Any:
    if entry.finish not in FINISHED:
        return None
    try:
        return json.loads(entry.answer)
    except ValueError:
        return None
