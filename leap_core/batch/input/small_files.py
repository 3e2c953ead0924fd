"""The rows of a file that is read whole, such as cases: JSONL, JSON, YAML, CSV, TSV."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import LeapError, LeapSerializationError
from ...schemas.json_values import JsonObject
from .lines import parse_line
from .rows import JSONL, TABLES, as_json_lines, format_of

Row = tuple[str, Any]
"""Where a row is, in words, and the row."""
YAML = (".yaml", ".yml")
LARGEST_FILE = 256 * 1024 * 1024
"""Bytes: the rows are held in memory."""


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
