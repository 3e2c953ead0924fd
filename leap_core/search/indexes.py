"""The indexes of this data directory, by name."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from ..errors import LeapNotFoundError, LeapOptionsError
from ..storage.directories import Directories
from ..storage.locks import Busy, locked
from .index_file import IndexFile
from .updating import IndexBusyError
from .vector_table import table_path

NAME = re.compile(r"[^\W_][\w.+-]{0,99}")
ENDING = ".db"
BESIDE = (".db-wal", ".db-shm", ".vectors.new", ".lock")


class IndexNotFoundError(LeapNotFoundError):
    """There is no index of this name."""


class Indexes:
    """The directory of indexes; asking it for something creates nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def of(directories: Directories) -> Indexes:
        return Indexes(directories.data / "indexes")

    def names(self) -> list[str]:
        """Of all indexes, in order."""
        with suppress(OSError):
            return sorted(path.stem for path in self.root.glob(f"*{ENDING}"))
        return []

    def path_of(self, name: str) -> Path:
        """Where an index of this name is or would be. Raises LeapOptionsError for what can be no name."""
        if not NAME.fullmatch(name) or name.endswith("."):
            raise LeapOptionsError("name", f"{name!r} cannot be an index's name: letters, digits and .+-_ only")
        return self.root / f"{name}{ENDING}"

    def open(self, name: str) -> IndexFile:
        """Raises IndexNotFoundError naming those that there are."""
        path = self.path_of(name)
        if not path.is_file():
            there = ", ".join(self.names())
            hint = f"there is {there}" if there else f"`leap index {name} PATH` makes one"
            raise IndexNotFoundError(f"there is no index {name!r}", hint=hint)
        return IndexFile(path)

    def remove(self, name: str) -> None:
        """Delete an index with all that belongs to it. Raises IndexNotFoundError, IndexBusyError."""
        self.open(name).close()
        path = self.path_of(name)
        try:
            with locked(path.with_suffix(".lock"), wait=False):
                for each in (path, table_path(path)):
                    each.unlink(missing_ok=True)
        except Busy:
            raise IndexBusyError(f"another process is changing the index {name}", hint="wait for it") from None
        for ending in BESIDE:
            path.with_suffix(ending).unlink(missing_ok=True)
