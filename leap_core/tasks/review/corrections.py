"""The document that a person's decisions leave."""

from __future__ import annotations

from ...json_fields import JsonObject
import json
from typing import Any

from ...errors import LeapSerializationError
from ...schemas.json_schema import read_schema
from ...schemas.optional_fields import all_optional
from ..evidence.evidence import without
from .review_lines import ABSENT, CORRECT, REJECT, ReviewedDocument


def corrected_document(review: ReviewedDocument) -> JsonObject:
    """The document with its corrected values and without the rejected ones; those without a decision stay, and elements
    of lists that are left with nothing go. Raises LeapSerializationError where corrections break the schema; what is
    rejected leaves a gap, whatever the schema says."""
    document: JsonObject = json.loads(json.dumps(review.document))
    for entry in review.evidence:
        if entry.get("decision") == CORRECT:
            _put(document, entry["pointer"], entry["corrected"], review.file)
    schema = read_schema(json.dumps(all_optional(review.schema)))
    before = schema.problems_of(review.document)
    problems = [each for each in schema.problems_of(document) if each not in before]
    if problems:
        raise LeapSerializationError(
            f"{review.file}: with its corrections the document does not fit the schema: {problems[0]}",
            hint="correct this value again, as the schema wants it",
        )
    rejected = {each["pointer"] for each in review.evidence if each.get("decision") == REJECT and each["how"] != ABSENT}
    try:
        document = without(document, rejected)
    except RecursionError:
        raise LeapSerializationError(f"{review.file}: the document is nested too deeply") from None
    return document


def _put(document: Any, pointer: str, value: Any, file: str) -> None:
    """Replace the value at a JSON pointer, or add it to an object, or a list of elements to the end of a list."""
    *above, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
    for part in above:
        document = document[int(part) if isinstance(document, list) else part]
    if not isinstance(document, list):
        document[last] = value
    elif last != "-":
        document[int(last)] = value
    elif isinstance(value, list):
        document.extend(value)
    else:
        raise LeapSerializationError(f"{file}: what is added at {pointer} must be a list of elements")
