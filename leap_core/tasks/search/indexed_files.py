"""The files of directories that are indexed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from ...documents.kinds import kind_of

SKIPPED_DIRECTORIES = {"node_modules", "__pycache__", "venv", "build", "dist", "target", "site-packages"}
Skip = Callable[[str, str], object]
"""Hears of a file or directory that is left out, and why."""


def files_below(
    paths: Sequence[Path], patterns: Sequence[str] = (), on_skipped: Skip = lambda _path, _reason: None
) -> Iterator[Path]:
    """The files to index, in a fixed order: those named, and those below directories whose kind is known, without
    hidden ones, what tools made and links that lead out of the directory. ``patterns``: only those whose path or name
    fits one (``*.md``, ``docs/*``)."""
    for path in paths:
        if os.path.isdir(path):
            inside = os.path.realpath(path)
            yield from (file for file in _walk(path, inside, on_skipped) if _fits(file, path, patterns))
        else:
            yield path


def _walk(directory: Path, inside: str, on_skipped: Skip) -> Iterator[Path]:
    try:
        with os.scandir(directory) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        on_skipped(str(directory), str(error.strerror))
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_DIRECTORIES:
                    yield from _walk(Path(entry.path), inside, on_skipped)
            elif kind_of(Path(entry.name)) is not None and entry.is_file():
                if not entry.is_symlink() or Path(os.path.realpath(entry.path)).is_relative_to(inside):
                    yield Path(entry.path)
                else:
                    on_skipped(entry.path, "it is a link to a file outside; name that file to index it")
        except OSError as error:  # a link to itself, for one
            on_skipped(entry.path, str(error.strerror))


def _fits(file: Path, below: Path, patterns: Sequence[str]) -> bool:
    relative = file.relative_to(below).as_posix()
    return not patterns or any(fnmatch(relative, pattern) or fnmatch(file.name, pattern) for pattern in patterns)
