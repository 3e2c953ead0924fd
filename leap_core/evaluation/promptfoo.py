"""promptfoo's test files: a document with ``prompts`` and ``tests``, a list of tests, or a table of them
with ``__expected``."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

from ..batch.input.small_files import Row, read_rows
from ..errors import LeapSerializationError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass

FILE = "file://"
VARIABLE = re.compile(r"\{\{-?\s*(\w+)\s*-?\}\}")
EXPECTED = re.compile(r"__expected\d*")
CELL = re.compile(
    r"\s*(not-)?(similar:(?:cosine|dot|euclidean)|trajectory:[a-z-]+|[a-z]+(?:-[a-z0-9]+)*)(?:\((\d*\.?\d+)\))?\s*(:.*)?",
    re.ASCII | re.DOTALL,
)
"""A cell of a table: a type of assertion, its threshold, and after a colon its value."""
_TYPES = """
    agent-rubric answer-relevance assert-set bleu classifier contains contains-all contains-any contains-html
    contains-json contains-sql contains-xml context-faithfulness context-recall context-relevance
    conversation-relevance cost equals factuality finish-reason g-eval gleu guardrails human icontains
    icontains-all icontains-any is-html is-json is-refusal is-sql is-valid-function-call
    is-valid-openai-function-call is-valid-openai-tools-call is-xml javascript latency levenshtein llm-rubric
    max-score meteor model-graded-closedqa model-graded-factuality moderation perplexity perplexity-score pi
    python regex rouge-l rouge-n rouge-s ruby search-rubric select-best similar skill-used starts-with
    tool-call-f1 trace-error-spans trace-span-count trace-span-duration trajectory webhook word-count
"""
KNOWN = frozenset(_TYPES.split())
"""promptfoo's types of assertions: in a table another word before a colon belongs to the text that is expected."""
SHORT = {"fn": "javascript", "eval": "javascript", "grade": "llm-rubric", "closedqa": "model-graded-closedqa"}
"""Other words of tables for them."""
ALONE = ("is-", "contains-json", "contains-html", "contains-sql", "contains-xml", "guardrails", "moderation")
"""With these begin assertions that need no value."""
DROPPED = ("providers", "scenarios", "derivedMetrics", "extensions", "transform")


def _lower(kind: str) -> Callable[[Any], JsonObject]:
    return lambda value: {kind: value, "ignore_case": True}


TYPES: dict[str, Callable[[Any], JsonObject]] = {
    "equals": lambda value: {"json": value} if isinstance(value, (dict, list)) else {"equals": value},
    "contains": lambda value: {"contains": value},
    "icontains": _lower("contains"),
    "contains-all": lambda value: {"contains": _listed(value)},
    "icontains-all": lambda value: {"contains": _listed(value), "ignore_case": True},
    "contains-any": lambda value: {"contains_any": _listed(value)},
    "icontains-any": lambda value: {"contains_any": _listed(value), "ignore_case": True},
    "starts-with": lambda value: {"starts_with": value},
    "regex": lambda value: {"regex": value},
    "is-json": lambda value: {"schema": _parsed(value)} if value not in (None, "") else {"is_json": True},
    "similar": lambda value: {"similar": value},
    "llm-rubric": lambda value: {"judge": value},
    "finish-reason": lambda value: {"finish": value},
    "python": lambda value: {"python": _program(value)},
}
"""The types of assertions that leap does, as its own expectations."""


@dataclass
class ConvertedCases:
    """Cases with their places, the prompts as templates, and what is not supported."""

    records: list[Row] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)


def is_test(row: JsonObject) -> bool:
    """Whether a row is one of promptfoo's tests."""
    return "assert" in row or any(EXPECTED.fullmatch(name) for name in row)


def of_document(document: JsonObject, path: Path) -> ConvertedCases:
    """The tests of a configuration. Raises LeapSerializationError."""
    tests = ConvertedCases()
    tests.unsupported += [f"{name} is not supported" for name in DROPPED if document.get(name)]
    for n, prompt in enumerate(_list_of(document.get("prompts")), 1):
        template = _template(prompt, path)
        if template is None:
            tests.unsupported.append(f"prompt {n} is no text with variables")
        else:
            tests.templates.append(template)
    default = document.get("defaultTest")
    common: JsonObject = default if isinstance(default, dict) else {}
    for place, row in _rows(document.get("tests", []), path):
        if not isinstance(row, dict):
            raise LeapSerializationError(f"{path.name}, {place}: expected an object")
        merged = {**row, "vars": {**(common.get("vars") or {}), **(row.get("vars") or {})}}
        if not is_test(row) or common.get("assert"):
            merged["assert"] = [*(common.get("assert") or []), *(row.get("assert") or [])]
        records, unsupported = case_of(merged)
        tests.records += [(place, record) for record in records]
        tests.unsupported += [f"{place}: {each}" for each in unsupported]
    return tests


def case_of(row: JsonObject) -> tuple[list[JsonObject], list[str]]:
    """A test as a case, none where no assertion of it is supported, and what is not."""
    if "assert" not in row:
        row = _of_table(row)
    variables = row.get("vars") or {}
    expectations, unsupported = [], []
    for each in row["assert"] or []:
        expectation, problem = _expectation(each, variables)
        if expectation is not None:
            expectations.append(expectation)
        if problem is not None:
            unsupported.append(problem)
    if not expectations:
        return [], [*unsupported, "the test is left out: it has no assertion that is supported"]
    case: JsonObject = {"vars": variables, "expect": expectations}
    metadata = row.get("metadata") or {}
    description = row.get("description")
    if description or metadata.get("id"):
        case["id"] = str(metadata.get("id") or description)
    if isinstance(metadata.get("group"), str):
        case["group"] = metadata["group"]
    return [case], unsupported


def _expectation(assertion: Any, variables: JsonObject) -> tuple[JsonObject | None, str | None]:
    if not isinstance(assertion, dict) or not isinstance(assertion.get("type"), str):
        return None, "an assertion has no type"
    name = assertion["type"]
    negated = name.startswith("not-")
    make = TYPES.get(name.removeprefix("not-"))
    if make is None:
        return None, f"the assertion {name} is not supported"
    value = _filled(assertion.get("value"), variables)
    try:
        made = make(value)
    except LeapSerializationError as error:
        return None, f"the assertion {name} is not supported: {error.message}"
    for setting in ("threshold", "weight"):
        if isinstance(assertion.get(setting), (int, float)):
            made[setting] = assertion[setting]
    return ({"not": made} if negated else made), None


def _of_table(row: JsonObject) -> JsonObject:
    asserts = [_of_cell(str(value)) for name, value in row.items() if EXPECTED.fullmatch(name) and value != ""]
    variables = {name: value for name, value in row.items() if not name.startswith("__")}
    test: JsonObject = {"vars": variables, "assert": asserts}
    return {**test, "description": row["__description"]} if row.get("__description") else test


def _of_cell(text: str) -> JsonObject:
    """An assertion in a cell: ``contains: text``, ``similar(0.8): text``, ``is-json``, or what the answer equals."""
    cell = CELL.fullmatch(text)
    if cell is None:
        return {"type": "equals", "value": text}
    negation, name, threshold, value = cell.groups(default="")
    kind = SHORT.get(name, name)
    if kind.partition(":")[0] not in KNOWN or not (value or threshold or kind.startswith(ALONE)):
        return {"type": "equals", "value": text}
    number = {"threshold": float(threshold)} if threshold else {}
    return {"type": negation + kind, "value": value.removeprefix(":").strip(), **number}


def _rows(tests: Any, path: Path) -> list[Row]:
    rows: list[Row] = []
    for n, test in enumerate(_list_of(tests), 1):
        if isinstance(test, str):
            file = path.parent / test.removeprefix(FILE)
            document, further = read_rows(file)
            rows += [(f"{file.name}, {place}", row) for place, row in further]
            if document is not None:
                rows += [(f"{file.name}, test {m}", row) for m, row in enumerate(_list_of(document.get("tests")), 1)]
        else:
            rows.append((f"test {n}", test))
    return rows


def _template(prompt: Any, path: Path) -> str | None:
    """A prompt with ``{name}`` for its variables; None for one that is no text."""
    text = prompt.get("raw") if isinstance(prompt, dict) else prompt
    if not isinstance(text, str):
        return None
    if text.startswith(FILE):
        file = path.parent / text.removeprefix(FILE)
        if file.suffix.lower() not in (".txt", ".md"):
            return None
        try:
            text = file.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise LeapSerializationError(f"cannot read {file}: {error}") from None
    pieces = VARIABLE.split(text)
    plain = [
        piece.replace("{", "{{").replace("}", "}}") if n % 2 == 0 else f"{{{piece}}}" for n, piece in enumerate(pieces)
    ]
    return "".join(plain)


def _filled(value: Any, variables: JsonObject) -> Any:
    if isinstance(value, str):
        return VARIABLE.sub(lambda match: str(variables.get(match[1], match[0])), value)
    if isinstance(value, list):
        return [_filled(each, variables) for each in value]
    return {name: _filled(each, variables) for name, each in value.items()} if isinstance(value, dict) else value


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [part.strip() for part in next(csv.reader([str(value)], skipinitialspace=True), [])]  # quotes keep a comma


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise LeapSerializationError("its schema is no JSON") from None


def _program(value: Any) -> str:
    file, colon, name = str(value).removeprefix(FILE).rpartition(":")
    if not str(value).startswith(FILE):
        raise LeapSerializationError("code in the file itself is not run; name file://FILE.py:FUNCTION")
    return f"{file}:{name}" if colon else f"{name}:get_assert"
