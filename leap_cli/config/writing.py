"""Changing config.toml: comments and order stay, and no change of another process is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapError
from leap_core.storage.atomic_files import changing, replace_text

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def set_value(path: Path, key: str, value: Any) -> None:
    """Write one value. Raises UsageError for a file that is not TOML, LeapError for one that cannot be written."""

    def change(document: TOMLDocument) -> None:
        import tomlkit

        *tables, name = key.split(".")
        table: Any = document
        for part in tables:
            if part not in table:
                table[part] = tomlkit.table()
            table = table[part]
            if not hasattr(table, "items"):
                raise click.UsageError(f"{path}: {part} is a value, so {key} cannot be set")
        table[name] = value

    _change(path, change)


def unset_value(path: Path, key: str) -> None:
    """Take one value out, and the tables that are empty then."""

    def change(document: TOMLDocument) -> None:
        *parents, name = key.split(".")
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
            raise click.UsageError(f"{path}: {error}") from None
        change(document)
        replace_text(path, tomlkit.dumps(document))
