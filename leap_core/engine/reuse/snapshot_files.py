"""The files of kept prompts in a directory: what they take, and removing them. See ``snapshots`` for their format."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .snapshots import HEAD, MAGIC, UNFINISHED


@dataclass(frozen=True)
class SnapshotFile:
    """One kept prompt: ``tokens`` of it, ``bytes`` of state on disk, ``used`` last (seconds since the epoch).

    ``scope`` names the model file and the memory layout that it fits; ``tokens`` is None where the file is damaged.
    """

    path: Path
    scope: str
    tokens: int | None
    bytes: int
    used: float


def snapshot_files(directory: Path) -> list[SnapshotFile]:
    """All kept prompts below ``directory``, the one that was used last first."""
    files = [each for path in directory.glob("*/*.snapshot") if (each := _read(path)) is not None]
    return sorted(files, key=lambda each: -each.used)


def remove_snapshots(files: Sequence[SnapshotFile], directory: Path) -> int:
    """Remove these, and what killed writers left in their directories; returns how many are gone. Processes that use
    them compute their prompts again."""
    removed = 0
    for each in files:
        with suppress(FileNotFoundError):
            each.path.unlink()
            removed += 1
    for path in _left_over(directory):
        with suppress(OSError):
            path.unlink()
    for scope in directory.glob("*"):
        with suppress(OSError):  # not empty
            scope.rmdir()
    return removed


def _left_over(directory: Path) -> Iterator[Path]:
    """Unfinished files of a minute and more."""
    for path in directory.glob(f"*/{UNFINISHED}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > 60:
                yield path


def _read(path: Path) -> SnapshotFile | None:
    try:
        status = path.stat()
        with path.open("rb") as file:
            opening = file.read(len(MAGIC) + 32 + HEAD.size)
    except OSError:  # removed meanwhile
        return None
    tokens = None
    if opening.startswith(MAGIC) and len(opening) == len(MAGIC) + 32 + HEAD.size:
        tokens = HEAD.unpack_from(opening, len(MAGIC) + 32)[2]
    return SnapshotFile(path, path.parent.name, tokens, status.st_size, status.st_mtime)
