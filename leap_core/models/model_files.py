"""Models on disk: checked, cleaned, described, given a manifest."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..conversation.options import SamplingDefaults
from ..errors import LeapModelLoadingError, LeapModelNotFoundError
from ..inference.gguf.checks import ProjectorInfo, check_projector
from ..inference.gguf.header import GGUFHeader, read_gguf_header
from ..inference.llama.architectures import check_architecture, check_decisions
from ..system.dataclass import dataclass
from ..system.files import hash_file
from ..system.locks import is_locked
from .importing import files_of
from .manifest import INFERENCE_TYPES, Manifest, write_manifest
from .resolving import resolve_local
from .store import (
    LOCKS,
    PART,
    STATE,
    USE_LOCK,
    WRITE_LOCK,
    InstalledModel,
    LeapModelInUseError,
    Store,
    delete,
    size_on_disk,
)


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


def header_or_error(path: Path) -> GGUFHeader | LeapModelLoadingError:
    """The header of a GGUF file, or why it cannot be read."""
    try:
        return read_gguf_header(path)
    except LeapModelLoadingError as error:
        return error


def projector_or_error(path: Path) -> ProjectorInfo | LeapModelLoadingError:
    """What a projector takes, or why it cannot be used."""
    try:
        return check_projector(read_gguf_header(path))
    except LeapModelLoadingError as error:
        return error


def architecture_error(header: GGUFHeader) -> LeapModelLoadingError | None:
    """Why this llama.cpp does not run models of the header's architecture; None where it does."""
    try:
        check_architecture(header.architecture, header.path.name)
        check_decisions(header.decisions, header.path.name)
    except LeapModelLoadingError as error:
        return error
    return None


def installed_model(
    reference: str, store: Store, *, variables: Mapping[str, str] | None = None, cwd: Path | None = None
) -> InstalledModel:
    """The model of the store that a name, or any other reference, leads to. Raises LeapModelNotFoundError."""
    model = store.find(reference)
    if model is None:
        try:
            local = resolve_local(reference, variables=variables, cwd=cwd)
        except LeapModelNotFoundError:
            return store.named(reference)
        if local.owner is not None:
            raise LeapModelNotFoundError(
                f"{local.model_id} belongs to {local.owner}: leap neither changes nor removes it"
            )
        path = local.path
        if path.parent.parent == store.root:
            model = store.at(path.parent)
    return model or store.named(reference)


def create_manifest(
    model: Path,
    target: Path | None = None,
    *,
    sampling: SamplingDefaults | None = None,
    chat_template: str | None = None,
    threads: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> Manifest:
    """A manifest that names the model and the companions beside it, relative to ``target``'s directory (the model's
    when None), and is written there. What ``sampling`` leaves out comes from the catalogue.

    Raises LeapModelNotFoundError or LeapModelLoadingError for what is no model, OSError when it cannot be written.
    """
    local = resolve_local(str(model.absolute()), variables=variables)
    read_gguf_header(local.path)
    directory = local.path.parent if target is None else target.absolute().parent
    files = {role: _relative(path, directory) for role, path in files_of(local) if role != "part"}
    manifest = Manifest(
        files["model"],
        inference_type=INFERENCE_TYPES[local.kind],
        adapters=tuple((str(adapter.path), adapter.scale) for adapter in local.adapters),
        chat_template=chat_template or local.chat_template,
        sampling=(sampling or SamplingDefaults()).over(local.sampling),
        threads=threads or local.threads,
    ).with_files(files)
    if target is not None:
        write_manifest(manifest, target)
    return manifest


def _relative(path: Path, directory: Path) -> str:
    """As manifests write it: a bare name, ``../name`` for the parent directory, else the absolute path."""
    if path.parent == directory:
        return path.name
    if path.parent == directory.parent:
        return f"../{path.name}"
    return os.path.abspath(path)
