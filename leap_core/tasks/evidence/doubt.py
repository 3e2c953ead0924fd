"""Which values a person should look at: the one rule for files, pages and figures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import LeapSerializationError
from ...json_fields import number_at, object_at
from .value_places import NOT_IN_TEXT

WRITTEN = "leap extract --fit REVIEWED -o FILE writes thresholds"


@dataclass(frozen=True)
class Thresholds:
    """Probabilities below which values are doubtful: of the ``fields`` that have their own, and of all others."""

    common: float = 0.5
    fields: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What ``read_thresholds`` reads."""
        return {"below": self.common, "fields": dict(self.fields)}

    def of(self, pointer: str) -> float:
        """The threshold of the value at a JSON pointer."""
        return self.fields.get(field_of(pointer), self.common)


def field_of(pointer: str) -> str:
    """The field that a value belongs to: its JSON pointer with ``*`` for the numbers of elements."""
    return re.sub(r"/\d+(?=/|$)", "/*", pointer)


def is_doubtful(entry: Mapping[str, Any], below: float | Thresholds) -> bool:
    """Whether a person should look at an entry of the evidence: its value is not in the text, or a token of the value
    was less likely than ``below``."""
    least = below.of(entry["pointer"]) if isinstance(below, Thresholds) else below
    return bool(entry["how"] == NOT_IN_TEXT or entry.get("confidence", {}).get("least", 1.0) < least)


def read_thresholds(path: Path) -> Thresholds:
    """Thresholds from a file: ``{"below": 0.6, "fields": {"/orders/*/count": 0.9}}``. Raises
    LeapSerializationError."""
    try:
        found = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise LeapSerializationError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise LeapSerializationError(f"{path.name} is not JSON", hint=WRITTEN) from None
    try:
        value = object_at(found, "the thresholds")
        if unknown := set(value) - {"below", "fields"}:
            raise LeapSerializationError("there is no such field", path=min(unknown))
        fields = object_at(value.get("fields", {}), "fields")
        return Thresholds(
            _probability(value.get("below"), "below"),
            {name: _probability(each, f"fields.{name}") for name, each in fields.items()},
        )
    except LeapSerializationError as error:
        raise LeapSerializationError(f"{path.name}: {error.message}", hint=WRITTEN) from None


def _probability(value: object, path: str) -> float:
    number = number_at(value, path)
    if not 0 <= number <= 1:
        raise LeapSerializationError("expected a number from 0 to 1", path=path)
    return float(number)
