"""JSON schemas under a name: one JSON file each, in the configuration's directory ``schemas``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from ..framework.environment import Environment

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NO_NAMES = ("true", "false")
"""These are schemas themselves."""


def schema_path(env: Environment, name: str) -> Path:
    """Where a schema lies. Raises UsageError for what can be no name."""
    if not NAME.fullmatch(name) or name in NO_NAMES or name.endswith(".json"):
        raise click.UsageError(f"{name!r} cannot name a schema: letters, digits, '.', '_' and '-', 64 at most")
    return env.directories.config / "schemas" / f"{name}.json"


def schema_names(env: Environment) -> Iterator[str]:
    """The names of all there are, in order."""
    directory = env.directories.config / "schemas"
    yield from sorted(path.stem for path in directory.glob("*.json") if NAME.fullmatch(path.stem) and path.is_file())


def saved_schema_file(env: Environment, name: str) -> Path | None:
    """The file of the schema with this name; None where there is none, and for what is no name."""
    if not NAME.fullmatch(name):
        return None
    path = env.directories.config / "schemas" / f"{name}.json"
    return path if path.is_file() else None


def unknown_schema(env: Environment, name: str) -> click.UsageError:
    """What to say of a name that no schema has."""
    near = get_close_matches(name, schema_names(env), 1)
    meant = f"did you mean {near[0]}?" if near else "leap schemas list shows those there are"
    return click.UsageError(f"there is no schema {name!r}; {meant}")


def is_misspelt(env: Environment, name: str) -> bool:
    """Whether a word is nearly the name of a schema."""
    return bool(get_close_matches(name, schema_names(env), 1, 0.75))


def write_schema(env: Environment, name: str, document: Any) -> Path:
    """Write one, in one step; the file."""
    from leap_core.storage.atomic_files import replace_text

    path = schema_path(env, name)
    replace_text(path, json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    return path


def in_words(document: Any) -> str:
    """The beginning of a schema for people: ``name string, age integer``; what it is where it has no fields."""
    if not isinstance(document, dict):
        return "anything" if document else "nothing"
    if document.get("type") == "array":
        return f"list of {in_words(document.get('items', True))}"
    fields = document.get("properties")
    if not isinstance(fields, dict) or not fields:
        return str(document.get("type", "a schema"))
    kinds = ((name, field.get("type") if isinstance(field, dict) else None) for name, field in fields.items())
    return ", ".join(f"{name} {kind}" if isinstance(kind, str) else name for name, kind in kinds)
