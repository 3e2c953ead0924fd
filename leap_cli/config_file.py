"""Changing config.toml: comments and order stay, and at every moment the file is the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapError

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


def replace_text(path: Path, text: str) -> None:
    """Replace a file, or what a link leads to, in one step; its rights stay, and a new one is nobody else's."""
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                os.chmod(unfinished, target.stat().st_mode & 0o777)
            os.replace(unfinished, target)
        except BaseException:
            os.unlink(unfinished)
            raise
    except OSError as error:
        raise LeapError(f"cannot write {path}: {error.strerror}") from None


def _change(path: Path, change: Callable[[TOMLDocument], None]) -> None:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

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
