"""Changing a small file that users own too: at every moment it is the old one or the new one, and no change is lost."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import LeapError
from .locks import locked


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Have a file for oneself from reading it to replacing it: others that change it wait. Raises LeapError where its
    directory cannot be written."""
    target = Path(os.path.realpath(path))
    lock = locked(beside := target.with_name(f".{target.name}.lock"))
    try:
        lock.__enter__()
    except OSError as error:
        raise cannot_write(path, error) from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no file that is open
            beside.unlink()
        lock.__exit__(None, None, None)


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
        raise cannot_write(path, error) from None


def cannot_write(path: Path, error: OSError) -> LeapError:
    """The error to raise for a file that cannot be written."""
    return LeapError(f"cannot write {path}: {error.strerror}")
