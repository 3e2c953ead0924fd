"""The rows of a file of cases (JSONL, JSON, YAML, CSV, TSV), and rows of a table as cases."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..batch.input.lines import parse_line
from ..batch.input.rows import CSV, JSONL, TABLES, as_json_lines, format_of
from ..errors import LeapError, LeapSerializationError
from ..schemas.json_values import JsonObject
from .expectations import KINDS

Row = tuple[str, Any]
"""Where a row is, in words, and the row."""
YAML = (".yaml", ".yml")
LARGEST_FILE = 256 * 1024 * 1024
"""Bytes: cases are held in memory."""


def read_rows(path: Path) -> tuple[JsonObject | None, list[Row]]:
    """The object that a JSON or YAML file is, or None, and the rows of any other. Raises LeapSerializationError."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise LeapSerializationError(f"{path} is larger than {LARGEST_FILE // 2**20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise LeapSerializationError(f"cannot read {path}: {error.strerror}") from None
    if path.suffix.lower() in YAML:
        return _document(_yaml(data, path))
    form = format_of(str(path))
    if form not in (JSONL, *TABLES):
        try:
            return _document(json.loads(data.decode("utf-8-sig")))
        except (ValueError, RecursionError):
            form = JSONL  # JSON lines under this name, as many write them
    try:
        if form in TABLES:
            return None, [(f"row {n}", json.loads(raw)) for n, raw in as_json_lines(io.BytesIO(data), form)]
        lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        return None, [_line(n, raw) for n, raw in enumerate(lines, 1) if raw.strip()]
    except LeapError as error:
        raise LeapSerializationError(f"{path.name}: {error.message}", hint=error.hint) from None


def read_table(path: Path) -> list[Row]:
    """The rows of a CSV file. Raises LeapSerializationError."""
    return [(f"row {n}", json.loads(raw)) for n, raw in as_json_lines(io.BytesIO(path.read_bytes()), CSV)]


def _line(number: int, raw: bytes) -> Row:
    try:
        return f"line {number}", parse_line(raw)
    except LeapSerializationError as error:
        raise LeapSerializationError(f"line {number}: {error.message}") from None


def _document(value: Any) -> tuple[JsonObject | None, list[Row]]:
    if isinstance(value, dict):
        return value, []
    rows: Sequence[Any] = value if isinstance(value, list) else [value]
    return None, [(f"case {n}", row) for n, row in enumerate(rows, 1)]


def read_yaml(data: bytes) -> Any:
    """The document, with JSON's types alone: a date is a text, and so are on, off, yes and no, as in YAML 1.2. Raises
    ValueError with the reason."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]  # yaml has types where their package is
        """YAML as JSON's types alone."""

    other = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in other]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(other[1], re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
    try:
        return yaml.load(data.decode("utf-8-sig"), Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def _yaml(data: bytes, path: Path) -> Any:
    try:
        return read_yaml(data)
    except ValueError as error:
        raise LeapSerializationError(f"{path.name} is not YAML: {error}") from None


FIELDS = ("id", "group", "prompt", "system", "image", "audio", "task")
"""Columns that are fields of a case."""
OF_TASKS = ("text", "to", "from", "question", "labels", "choices", "score", "kind", "schema")
"""Columns that are fields where the row has a task."""
SETTINGS = ("of", "ignore_case", "threshold")


def of_table(row: JsonObject) -> JsonObject:
    """A case of a row: columns called like an expectation (``contains``, ``not_regex``) are expected, ``expect`` is a
    text that the answer equals or JSON, and columns of other names are variables of a template. Empty cells say
    nothing."""
    cells = {name: value for name, value in row.items() if value != ""}
    fields = (*FIELDS, *OF_TASKS) if "task" in cells else FIELDS
    case: JsonObject = {name: cells[name] for name in fields if name in cells}
    if "weight" in cells:
        case["weight"] = _json(cells["weight"])
    expected = _json(cells["expect"]) if "expect" in cells else []
    kinds = {name: _json(value) for name, value in cells.items() if name in KINDS or name.removeprefix("not_") in KINDS}
    settings = {name: _json(cells[name]) for name in SETTINGS if name in cells}
    wanted = (
        expected if isinstance(expected, list) else [expected if isinstance(expected, dict) else str(cells["expect"])]
    )
    if kinds:
        wanted = [*wanted, {**kinds, **settings}]
    if wanted:
        case["expect"] = wanted
    known = {*fields, "weight", "expect", *kinds, *settings}
    variables = {name: value for name, value in cells.items() if name not in known}
    return {**case, "vars": variables} if variables else case


def _json(text: str) -> Any:
    """An object, a list, a truth or a number that a cell spells, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value
