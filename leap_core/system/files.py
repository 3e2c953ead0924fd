"""Files on disk: written whole or not at all, hashed, linked, read at a place."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ..errors import LeapError
from .directories import make_directory
from .locks import locked

DESCRIPTOR = r"/dev/std(?P<name>out|err)|/(dev|proc/self)/fd/(?P<number>\d{1,9})"

NOT_WRITTEN = frozenset({".xlsx", ".xls", ".ods", ".arrow", ".feather", ".db", ".sqlite", ".zip"})
"""Endings of files that a program would not find what it expects in."""


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


def replace_text(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace a file, or what a link leads to, in one step; its rights stay, and a new one has those of ``mode``, less
    the umask: by default it is private to the user. A device or a pipe is written to."""
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():  # which nothing may take the place of
            with open(target, "wb") as device:
                device.write(text.encode())
            return
        make_directory(target.parent)
        with replacing(target, mode=mode) as file:
            file.write(text.encode())
            if target.exists():
                os.chmod(file.name, target.stat().st_mode & 0o777)
    except OSError as error:
        raise cannot_write(path, error) from None


@contextmanager
def replacing(
    path: Path, *, unfinished: Path | None = None, mode: int = 0o666, durable: bool = True
) -> Iterator[IO[bytes]]:
    """A file whose content takes the place of ``path`` when the block ends, in one step; after an error it is removed.

    ``unfinished``: its own name until then, where one that a killed process left is written over; else a random one
    beside ``path``. ``mode``: its rights, less the process's umask. ``durable``: the content is on the disk before it
    gets its name. Raises OSError.
    """
    own = path.with_name(f".{path.name}.{os.urandom(4).hex()}") if unfinished is None else unfinished
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | (os.O_EXCL if unfinished is None else os.O_TRUNC)
    descriptor = os.open(own, flags, mode)
    try:
        with open(own, "w+b", opener=lambda _name, _flags: descriptor) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(descriptor)
        os.replace(own, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(own)
        raise


def sync_directory(directory: Path) -> None:
    """Make a rename in the directory durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def text_of(name: str) -> str:
    """A file's name for places that hold only text: bytes that are none become backslashes, as JSON writes them."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def descriptor_of(name: str) -> int | None:
    """The descriptor that a path is a name of, such as 1 for ``/dev/stdout``. To open it anew would be to write over
    what others write to the same file."""
    descriptor = re.fullmatch(DESCRIPTOR, os.path.normpath(name))
    if descriptor is None:
        return None
    return {"out": 1, "err": 2}[descriptor["name"]] if descriptor["name"] else int(descriptor["number"])


def cannot_write(path: Path, error: OSError) -> LeapError:
    """The error to raise for a file that cannot be written."""
    return LeapError(f"cannot write {path}: {error.strerror}")


def hash_file(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    import hashlib  # here, because every start would pay for it

    return str(digest_file(hashlib.sha256(), path).hexdigest())


def digest_file(digest: Any, path: Path) -> Any:
    """The digest with the content of a file added. Raises OSError."""
    with path.open("rb") as file:
        while piece := file.read(1024 * 1024):
            digest.update(piece)
    return digest


def digest_samples(digest: Any, file: IO[bytes], size: int, count: int = 32, length: int = 32 * 1024) -> None:
    """Add to the digest ``count`` pieces of ``length`` bytes, spread over a file of ``size`` bytes."""
    for n in range(count):
        file.seek(max(0, size - length) * n // (count - 1))
        digest.update(file.read(length))


FICLONE = 0x40049409
"""linux/fs.h: share the blocks of one file with another (Btrfs, XFS, bcachefs)."""


def place(source: Path, target: Path, *, allow_link: bool = False, mode: str = "auto") -> str:
    """Make ``target`` the same as ``source``, atomically; returns how: hard link, reflink, link or copy.

    ``mode``: auto tries these in that order (a symbolic ``link`` only with ``allow_link``), or names the only one.
    Raises OSError.
    """
    ways: dict[str, Callable[[Path, Path], object]] = {
        "hard link": os.link,
        "reflink": _reflink,
        "link": os.symlink,
        "copy": _copy,
    }
    every = ["hard link", "reflink", *(["link"] if allow_link else []), "copy"]
    methods = every if mode == "auto" else [mode]
    make_directory(target.parent)
    fresh = target.with_name(f".{target.name}.new")
    for way in methods:
        with suppress(FileNotFoundError):
            fresh.unlink()
        try:
            ways[way](source, fresh)
        except (OSError, NotImplementedError):
            with suppress(FileNotFoundError):
                fresh.unlink()
            if way == methods[-1]:
                raise
            continue
        os.replace(fresh, target)
        with suppress(FileNotFoundError):  # replacing a name by another of the same file leaves both
            fresh.unlink()
        return way
    raise AssertionError("unreachable")


def _reflink(source: Path, target: Path) -> None:
    if not sys.platform.startswith("linux"):
        raise NotImplementedError
    import fcntl

    with source.open("rb") as original, target.open("wb") as clone:
        fcntl.ioctl(clone.fileno(), FICLONE, original.fileno())


def _copy(source: Path, target: Path) -> None:
    import shutil

    shutil.copyfile(source, target)
    with target.open("r+b") as file:  # on Windows only a file that may be written is brought to the disk
        os.fsync(file.fileno())


BINARY = getattr(os, "O_BINARY", 0)
"""The flag with which ``os.open`` translates no line ends on Windows; 0 elsewhere."""
_POSITIONS = threading.Lock()


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """At most ``length`` bytes from ``offset`` on. The file's own position stays."""
    if sys.platform != "win32" and hasattr(os, "pread"):
        return os.pread(descriptor, length, offset)
    with _moved_to(descriptor, offset):
        return os.read(descriptor, length)


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> int:
    """Write at ``offset``; how many bytes were written. The file's own position stays."""
    if sys.platform != "win32" and hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    with _moved_to(descriptor, offset):
        return os.write(descriptor, data)


@contextmanager
def _moved_to(descriptor: int, offset: int) -> Iterator[None]:
    with _POSITIONS:
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, offset, os.SEEK_SET)
        try:
            yield
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)
