"""Changing config.toml: comments and order stay, and no change of another process is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapError, LeapSerializationError
from leap_core.storage.atomic_files import changing, replace_text

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def set_value(path: Path, key: str, value: Any) -> None:
    """Write one value. Raises UsageError for a file that is not TOML, LeapError for one that cannot be written."""

    def change(document: TOMLDocument) -> None:
        import tomlkit

        *tables, name = parts_of(key)
        table: Any = document
        for part in tables:
            if part not in table:
                table[part] = tomlkit.table()
            table = table[part]
            if not hasattr(table, "items"):
                raise click.UsageError(f"{path}: {part} is a value, so {key} cannot be set")
        if hasattr(table.get(name), "items"):
            raise click.UsageError(f"{path}: {key} is a table there; remove it first")
        table[name] = value

    drop_broken_line(path, key)
    _change(path, change)


def parts_of(key: str) -> list[str]:
    """The names of a key in dots; an alias of a model may have dots in its own."""
    table, _, name = key.partition(".")
    return [table, name] if table == "aliases" and name else key.split(".")


def drop_broken_line(path: Path, key: str) -> None:
    """Make a comment of the line that keeps the file from being TOML, if it is the one that sets ``key``. Other broken
    lines stay, for ``leap config edit``."""
    import tomlkit
    from tomlkit.exceptions import ParseError

    with changing(path):
        try:
            lines = path.read_bytes().decode("utf-8").splitlines(keepends=True)
            tomlkit.parse("".join(lines))
        except ParseError as error:
            broken = lines[error.line - 1 : error.line]
            if not broken or not re.match(rf"\s*{re.escape(key.rpartition('.')[2])}\s*=", broken[0]):
                return
            lines[error.line - 1] = f"# {broken[0].rstrip()}  # could not be read\n"
            replace_text(path, "".join(lines))
        except (OSError, UnicodeDecodeError):
            return  # the change that follows says so


def unset_value(path: Path, key: str) -> None:
    """Take one value out, and the tables that are empty then."""

    def change(document: TOMLDocument) -> None:
        *parents, name = parts_of(key)
        tables: list[Any] = [document]
        for part in parents:
            tables.append(tables[-1][part])
        del tables[-1][name]
        for table, part in zip(reversed(tables[:-1]), reversed(parents), strict=True):
            if not table[part] and "#" not in table[part].as_string():
                del table[part]

    _change(path, change)


def _change(path: Path, change: Callable[[TOMLDocument], None]) -> None:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    with changing(path):
        try:
            text = path.read_bytes().decode("utf-8")
        except FileNotFoundError:
            text = ""
        except OSError as error:
            raise LeapError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise click.UsageError(f"{path} is not UTF-8 text") from None
        try:
            document = tomlkit.parse(text)
        except TOMLKitError as error:
            raise LeapSerializationError(str(error), path=str(path), hint="leap config edit opens it") from None
        change(document)
        replace_text(path, tomlkit.dumps(document))
