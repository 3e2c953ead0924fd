"""The models on this machine's disk: one directory a model, locked while it is in use.

Beside them lie ``*.part`` and ``*.part.state`` of unfinished downloads, and two lock files: ``.lock`` is held
by the process that writes, ``.in-use`` is shared by processes that have the model loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path

from ..errors import LeapError, LeapModelNotFoundError, LeapSerializationError
from ..inference.gguf.file_names import by_quantization, companions_of, preferred_quantization, split_name
from ..system.dataclass import dataclass
from ..system.directories import Directories
from ..system.files import text_of
from ..system.locks import GLANCE_SECONDS, Busy, is_locked, locked
from .manifest import Manifest, read_manifest

LOCKS = WRITE_LOCK, USE_LOCK = ".lock", ".in-use"


class Hold:
    """Marks a model as in use until it is closed, or the process ends."""

    def __init__(self, lock: AbstractContextManager[None] | None) -> None:
        self._lock = lock

    def close(self) -> None:
        """Release it; again is harmless."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.__exit__(None, None, None)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def hold(path: Path) -> Hold:
    """Mark the model that ``path`` (a file in a store's directory) belongs to as in use: ``leap models remove`` then
    leaves it alone. Elsewhere, and where nothing can be written, it does nothing."""
    directory = path.parent
    if (directory / f"{directory.name}.json").is_file():
        with suppress(OSError, Busy):
            lock = locked(directory / USE_LOCK, shared=True, wait=GLANCE_SECONDS)
            lock.__enter__()
            with suppress(OSError):
                os.utime(directory / USE_LOCK)  # when it was last used
            return Hold(lock)
    return Hold(None)


PART, STATE = ".part", ".part.state"


class LeapModelInUseError(LeapError):
    """A model cannot be removed or replaced now: it is loaded, or being downloaded."""


@dataclass(frozen=True)
class InstalledModel:
    """One directory of the store. ``manifest`` is None where there is none, or none that can be read."""

    directory: Path
    manifest: Manifest | None

    @property
    def name(self) -> str:
        """The directory's name: a reference that always finds this model."""
        return self.directory.name

    @property
    def model(self) -> str:
        return self._recorded("model") or split_name(self.name).model or self.name

    @property
    def quantization(self) -> str:
        return self._recorded("quantization") or split_name(self.name).quantization

    @property
    def source(self) -> str | None:
        """Where it came from: a repository, or a URL."""
        return self._recorded("source") or (self.manifest.original_url if self.manifest else None)

    @property
    def origin(self) -> str | None:
        """The reference that fetches it again: a repository, ``hf:`` and a file, or a URL."""
        return self._recorded("origin")

    @property
    def is_pinned(self) -> bool:
        """Whether a revision was asked for by name; then it answers to its directory's name only."""
        return self._recorded("pinned") is not None

    def is_from(self, source: str) -> bool:
        """Whether it may pass for a model of this source: it comes from there, or was imported by hand."""
        own = self.source
        return own is None or own.startswith("file:") or own.lower() == source.lower()

    @cached_property
    def files(self) -> dict[str, Path]:
        """The model and its companions by their key in a manifest; they may be missing on disk."""
        if self.manifest is not None:
            named = self.manifest.files
        else:
            names = [path.name for path in _files_in(self.directory)]
            models = by_quantization(names)
            best = preferred_quantization(models)
            named = {} if best is None else {"model": models[best], **companions_of(models[best], names)}
        return {key: self.directory / name for key, name in named.items()}

    @property
    def all_files(self) -> list[Path]:
        """Every file of the model, the further parts of a split one included."""
        extra = [self.directory / name for name in self._records]
        return list(dict.fromkeys([*self.files.values(), *extra]))

    @property
    def path(self) -> Path | None:
        """The model's GGUF."""
        return self.files.get("model")

    @property
    def state(self) -> str:
        """ready; partial: a download was not finished; damaged: files are missing or have another size."""
        parts = any(self.directory.glob(f"*{PART}"))
        if parts and self.manifest is None:  # a first download, of which some files may have their names already
            return "partial"
        if self.path is not None and all(path.is_file() and self._has_size(path) for path in self.all_files):
            return "ready"
        return "partial" if parts else "damaged"

    @property
    def size_bytes(self) -> int:
        """What its directory takes, partial files included."""
        return sum(size_on_disk(path) for path in _files_in(self.directory))

    @property
    def in_use(self) -> bool:
        return is_locked(self.directory / USE_LOCK)

    @property
    def used(self) -> float | None:
        """When it was last loaded, or else installed, in seconds since 1970; None where that is not known."""
        with suppress(OSError):
            return (self.directory / USE_LOCK).stat().st_mtime
        return None

    def recorded(self, path: Path) -> dict[str, object]:
        """What was written down about a file when it was fetched: size, sha256, url; empty when nothing was."""
        return self._records.get(path.name, {})

    @property
    def _records(self) -> dict[str, dict[str, object]]:
        files = self.manifest.record.get("files") if self.manifest else None
        entries = files.items() if isinstance(files, dict) else ()
        return {name: entry for name, entry in entries if isinstance(entry, dict)}

    def _recorded(self, key: str) -> str | None:
        value = self.manifest.record.get(key) if self.manifest else None
        return value if isinstance(value, str) and value else None

    def _has_size(self, path: Path) -> bool:
        size = path.stat().st_size
        return size > 0 and self.recorded(path).get("size", size) == size


class Store:
    """The directory of models. Asking it for something creates nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def of(directories: Directories) -> Store:
        return Store(directories.models)

    def installed(self) -> list[InstalledModel]:
        """All models, by name, unfinished ones included."""
        with suppress(FileNotFoundError, NotADirectoryError):
            directories = sorted(self.root.iterdir(), key=lambda path: path.name.lower())
            models = (self.at(path) for path in directories if path.is_dir() and not path.name.startswith("."))
            return [model for model in models if model is not None]
        return []

    def at(self, directory: Path) -> InstalledModel | None:
        """The model in this directory of the store, or None when there is nothing of one."""
        manifest = None
        with suppress(OSError, LeapSerializationError):
            manifest = read_manifest(directory / f"{directory.name}.json")
        if manifest is not None:
            return InstalledModel(directory, manifest)
        with suppress(OSError):
            if any(path.suffix.lower() in (".gguf", PART) for path in directory.iterdir()):
                return InstalledModel(directory, None)
        return None

    def find(self, name: str) -> InstalledModel | None:
        """The model whose directory has this name, in any case."""
        return next((model for model in self.installed() if model.name.lower() == name.lower()), None)

    def named(self, name: str) -> InstalledModel:
        """``find``, or LeapModelNotFoundError with the names there are."""
        model = self.find(name)
        if model is None:
            there = [model.name for model in self.installed()]
            near = [other for other in there if other.lower().startswith(name.lower())] or there
            listed = f"there is {', '.join(near[:4])}" if near else "no model is installed"
            raise LeapModelNotFoundError(f"there is no model {name!r} in {self.root}", hint=listed)
        return model

    def quantizations_of(self, model: str, source: str | None = None) -> dict[str, InstalledModel]:
        """The finished models of this name by quantization, and of this source where one is given; no pinned ones."""
        return {
            each.quantization.upper(): each
            for each in self.installed()
            if each.model.lower() == model.lower()
            and not each.is_pinned
            and (source is None or each.is_from(source))
            and each.state == "ready"
        }

    def remove(self, model: InstalledModel) -> int:
        """Delete the model's directory; the bytes that this freed. Nothing outside the store is deleted. Raises
        LeapModelInUseError, and LeapModelNotFoundError for a remote model."""
        if os.path.abspath(model.directory.parent) != os.path.abspath(self.root):
            raise LeapModelNotFoundError(f"{model.directory} is not in {self.root}: only models there are removed")
        if model.directory.is_symlink():
            model.directory.unlink()
            return 0
        with self.removing(model.directory, f"remove {model.name}"):
            freed = freed_by(model)
            for path in list(model.directory.iterdir()):
                if path.name not in LOCKS:
                    delete(path)
        return freed

    @contextmanager
    def writing(self, directory: Path, intent: str) -> Iterator[None]:
        """Have a model's directory for oneself. Raises LeapModelInUseError when it is loaded or being written."""
        try:
            with locked(directory / WRITE_LOCK, wait=GLANCE_SECONDS), locked(directory / USE_LOCK, wait=GLANCE_SECONDS):
                yield
        except Busy as busy:
            loaded = busy.path.name == USE_LOCK
            reason = "a running job, host or session has it loaded" if loaded else "another process is downloading it"
            raise LeapModelInUseError(f"cannot {intent}: {reason}", hint="stop that first") from None

    @contextmanager
    def removing(self, directory: Path, intent: str) -> Iterator[None]:
        """``writing``, and at the end the directory goes if nothing is left in it."""
        with self.writing(directory, intent):
            yield
            _drop_if_empty(directory)
        if os.name == "nt":  # where no file is removed that is open
            _drop_if_empty(directory)


def _drop_if_empty(directory: Path) -> None:
    with suppress(OSError):  # another process has made a lock of its own meanwhile
        if all(path.name in LOCKS for path in directory.iterdir()):
            for name in LOCKS:
                (directory / name).unlink(missing_ok=True)
            directory.rmdir()


def delete(path: Path) -> None:
    """Remove a file, a link or a directory with all that is in it; nothing where it is gone."""
    if path.is_dir() and not path.is_symlink():
        import shutil

        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _files_in(directory: Path) -> list[Path]:
    """None where the directory has just been removed."""
    with suppress(FileNotFoundError):
        return [path for path in directory.iterdir() if path.is_file()]
    return []


def size_on_disk(path: Path) -> int:
    """Bytes that the file takes here: less than its length while it has holes, nothing for a link to another place."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        if path.is_symlink():
            return 0
        blocks = getattr(status, "st_blocks", None)
        return status.st_size if blocks is None else min(status.st_size, blocks * 512)
    return 0


def freed_by(model: InstalledModel) -> int:
    """Bytes that removing a model gives back: not those of files that have another name in another place."""
    return sum(size_on_disk(path) for path in _files_in(model.directory) if path.lstat().st_nlink == 1)


def free_space(path: Path) -> int:
    """Bytes that may still be written where ``path`` is or will be."""
    while not path.exists():
        path = path.parent
    import shutil

    return shutil.disk_usage(path).free


def identity_of(path: Path) -> str:
    """How a model found without the store is called: its file's name without ending and split number."""
    return text_of(re.sub(r"-\d{5}-of-\d{5}$", "", path.stem))
