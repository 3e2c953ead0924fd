"""Looking after the store: are the files still what was fetched, and what of unfinished downloads can go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import LeapModelLoadingError
from ...storage.hashing import hash_file
from ...storage.locks import is_locked
from ..gguf.header import read_gguf_header
from ..installed.holding import LOCKS, USE_LOCK, WRITE_LOCK
from ..installed.model_store import PART, STATE, InstalledModel, LeapModelInUseError, Store, delete, size_on_disk


@dataclass(frozen=True)
class FileCheck:
    """One file of a model. ``problem`` is None when it is sound. ``hashed`` says whether its SHA-256 was known and
    compared; without one only size and GGUF header were looked at."""

    path: Path
    problem: str | None
    hashed: bool


def verify(
    model: InstalledModel, *, stop: threading.Event | None = None, on_file: Callable[[Path], object] | None = None
) -> Iterator[FileCheck]:
    """Check every file of an installed model against what was written down when it was fetched."""
    for path in model.all_files:
        if stop is not None and stop.is_set():
            return
        if on_file is not None:
            on_file(path)
        yield _check(model, path)
    if not model.all_files:
        yield FileCheck(model.directory, f"there is no model in it ({model.state})", False)


def _check(model: InstalledModel, path: Path) -> FileCheck:
    recorded = model.recorded(path)
    size, sha256 = recorded.get("size"), recorded.get("sha256")
    if not path.is_file():
        return FileCheck(path, "it is missing", False)
    byte_count = path.stat().st_size
    if isinstance(size, int) and byte_count != size:
        return FileCheck(path, f"it has {byte_count} bytes instead of {size}", False)
    if isinstance(sha256, str):
        actual = hash_file(path)
        return FileCheck(path, None if actual == sha256 else f"its SHA-256 is {actual} instead of {sha256}", True)
    if path.suffix.lower() == ".gguf":
        try:
            read_gguf_header(path)
        except LeapModelLoadingError as error:
            return FileCheck(path, error.message, False)
    return FileCheck(path, None, False)


@dataclass(frozen=True)
class Rubbish:
    """Something in a model's directory that gc removes: a file or the empty directory, its size in bytes, and why."""

    directory: Path
    path: Path
    bytes: int
    reason: str


def rubbish_in(store: Store) -> Iterator[Rubbish]:
    """What unfinished downloads and killed processes left behind, as far as no process works on it."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for directory in sorted(path for path in store.root.iterdir() if path.is_dir() and not path.is_symlink()):
            if not is_locked(directory / WRITE_LOCK, shared=True) and not is_locked(directory / USE_LOCK):
                yield from _rubbish_of(directory)


def _rubbish_of(directory: Path) -> Iterator[Rubbish]:
    left = []
    try:
        paths = sorted(directory.iterdir())
    except FileNotFoundError:
        return
    for path in paths:
        if path.name.endswith((PART, STATE, f"{STATE}.new")):
            yield Rubbish(directory, path, size_on_disk(path), "an unfinished download")
        elif path.name.startswith(".") and path.name.endswith(".new"):
            yield Rubbish(directory, path, size_on_disk(path), "a file that was being written")
        elif path.name not in LOCKS:
            left.append(path)
    if not left:
        yield Rubbish(directory, directory, 0, "nothing is in it")


def collect(store: Store) -> list[Rubbish]:
    """Remove it; what was removed."""
    removed = []
    for directory in dict.fromkeys([item.directory for item in rubbish_in(store)]):
        with suppress(LeapModelInUseError), store.removing(directory, "tidy up"):
            for item in list(_rubbish_of(directory)):  # looked at again: another process may work on it by now
                if item.path != directory:  # which goes by itself
                    delete(item.path)
                removed.append(item)
    return removed
