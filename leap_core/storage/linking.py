"""Put a file that is on this machine already into the store, without a second copy where the system can do that."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

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
    target.parent.mkdir(parents=True, exist_ok=True)
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
    shutil.copyfile(source, target)
    with target.open("r+b") as file:  # on Windows only a file that may be written is brought to the disk
        os.fsync(file.fileno())
