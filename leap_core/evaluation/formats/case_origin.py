"""Which program a file of cases was written for, and its records as leap's own cases."""

from __future__ import annotations

from ...json_fields import JsonObject
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import LeapError, LeapSerializationError
from . import bfcl, evals, promptfoo
from .rows import Row
from .table_cases import of_table



@dataclass
class Shaped:
    """Records of cases with their places; see CaseFile for the rest."""

    records: list[Row] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)


def as_cases(document: JsonObject | None, rows: Sequence[Row], path: Path) -> Shaped:
    """The records of a file as cases of leap. Raises LeapSerializationError."""
    if document is not None:
        if "tests" in document or "prompts" in document:
            read = promptfoo.of_document(document, path)
            return Shaped(read.records, read.templates, read.unsupported)
        if isinstance(document.get("cases"), list):
            rows = [(f"case {n}", each) for n, each in enumerate(document["cases"], 1)]
        else:
            rows = [("the document", document)]
    shaped = Shaped()
    answers = bfcl.answers_beside(path) if rows and bfcl.is_question(rows[0][1]) else {}
    table = path.suffix.lower() in (".csv", ".tsv")
    for place, row in rows:
        try:
            records, unsupported = _shaped(row, answers, table=table)
        except LeapError as error:
            raise LeapSerializationError(f"{path.name}, {place}: {error.message}", hint=error.hint) from None
        shaped.records += [(place, record) for record in records]
        shaped.unsupported += [f"{place}: {each}" for each in unsupported]
    return shaped


def _shaped(row: Any, answers: dict[str, Any], *, table: bool) -> tuple[list[Any], list[str]]:
    if not isinstance(row, dict):
        return [row], []
    if bfcl.is_question(row):
        return [bfcl.case_of(row, answers)], []
    if promptfoo.is_test(row):
        return promptfoo.case_of(row)
    if evals.is_record(row):
        return evals.case_of(row)
    return [of_table(row) if table else row], []
