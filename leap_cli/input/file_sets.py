"""The files of a folder or of a pattern, as they are at each run, and those that a command took before."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import click

from ..framework.environment import Environment
from ..framework.output import one_line


def is_file_set(name: str, env: Environment) -> bool:
    """Whether a name is a folder's, or a pattern that is no file's name."""
    with suppress(OSError, ValueError):
        path = env.cwd / name
        return bool(name) and (path.is_dir() or (glob.has_magic(name) and not os.path.lexists(path)))
    return False


def files_in(name: str, env: Environment, *, may_be_empty: bool = False) -> list[str]:
    """The files of a folder, or those that fit a pattern, in order, without hidden ones and folders in it. Raises
    UsageError where there is none and it may not be so."""
    pattern = os.path.join(glob.escape(name), "*") if (env.cwd / name).is_dir() else name
    found = sorted(glob.glob(pattern, root_dir=env.cwd, recursive=True))
    found = [each for each in found if (env.cwd / each).is_file()]
    if not found and not may_be_empty:
        raise click.UsageError(
            f"{one_line(name)} has no files" if pattern != name else f"no file fits {one_line(name)}"
        )
    return found


class TakenFiles:
    """The files that a command has taken, by name, size and time of the last change; each ``command`` has its
    own."""

    def __init__(self, env: Environment, command: str) -> None:
        from hashlib import blake2b

        digest = blake2b(f"{env.cwd}\0{command}".encode(errors="surrogateescape"), digest_size=16).hexdigest()
        self._cwd, self._file = env.cwd, env.directories.data / "taken-files" / f"{digest}.json"
        self._looks: dict[str, list[int]] = {}
        self._seen: dict[str, list[int] | None] = {}
        with suppress(OSError, ValueError):
            self._looks = json.loads(self._file.read_text("utf-8"))

    def has(self, name: str) -> bool:
        """Whether a file was taken, and is still the same. What changes from now on is new again."""
        path = self._path(name)
        self._seen[path] = self._look(path)
        return self._seen[path] == self._looks.get(path, [])

    def add(self, names: Iterable[str]) -> None:
        """Remember that these were taken; files that are gone are forgotten."""
        from leap_core.system.files import replace_text

        looks = {path: self._seen.get(path) for path in map(self._path, names)}
        kept = {path: look for path, look in self._looks.items() if os.path.lexists(path)}
        self._looks = {**kept, **{path: look for path, look in looks.items() if look is not None}}
        replace_text(self._file, json.dumps(self._looks))

    def _path(self, name: str) -> str:
        return os.path.realpath(self._cwd / name)

    def _look(self, path: str) -> list[int] | None:
        with suppress(OSError, ValueError):
            status = Path(path).stat()
            return [status.st_size, status.st_mtime_ns]
        return None
