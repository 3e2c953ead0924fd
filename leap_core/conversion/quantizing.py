"""A model of this machine in another quantization: a file, or a model of the store with its companions."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import LeapError, LeapOptionsError
from ..load_check.subject import Subject
from ..load_check.trying import error_of, problem_after_fetching, verdict_on
from ..models.gguf.header import GGUFHeader, read_gguf_header
from ..models.installed.model_store import InstalledModel, Store
from ..models.maintenance.importing import files_of, record_files
from ..models.names.file_names import name_of
from ..models.names.safe_names import directory_name
from ..models.references.resolving import LocalModel
from ..storage.linking import place
from .child import run_in_child
from .quantize_request import QuantizeRequest, check_source

UNFINISHED = ".unfinished"
ROOM = 16 * 1024**2

Progress = Callable[[int, int, str], object]


@dataclass(frozen=True)
class Quantized:
    """A file that was made. ``before`` and ``after``: bytes of the model's files. ``fallbacks``: how many tensors are
    of another type than meant, since their rows are no multiple of its blocks. ``problem``: what the trial found."""

    path: Path
    name: str
    before: int
    after: int
    fallbacks: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class Making:
    """How work is followed and given up: ``on_tensor`` hears of each tensor's number, their count and its name."""

    on_tensor: Progress = lambda done, total, name: None
    stop: threading.Event | None = None
    variables: Mapping[str, str] | None = None


def quantize_into_store(
    model: LocalModel, name: str, request: QuantizeRequest, store: Store, making: Making, *, replace: bool = False
) -> Quantized:
    """Make ``name`` in ``request.to`` of a model, companions included. Raises LeapError where such a model is, or the
    disk is too small, LeapModelLoadingError for what cannot be quantized, and Stopped; then nothing is left."""
    header = checked_source(model.path, request, making)
    directory = store.root / directory_name(name, request.to)
    if not replace:
        check_free(store, directory)
    companions = [(role, path) for role, path in files_of(model) if role not in ("model", "part")]
    with making_directory(store, directory, f"quantize {directory.name}") as unfinished:
        fallbacks = _quantize(model.path, unfinished / f"{directory.name}.gguf", request, making, header)
        problem = problem_after_fetching(_first(unfinished), variables=making.variables, stop=making.stop)
        made = settle(unfinished, directory)
        for _, source in companions:
            place(source.resolve(), directory / source.name)
        roles = [("model", made[0]), *(("part", part) for part in made[1:]), *companions]
        record_files(directory, name, request.to, model, roles)
    before = size_of(model)
    after = sum(path.stat().st_size for path in made)
    return Quantized(made[0], directory.name, before, after, fallbacks, problem)


def check_free(store: Store, directory: Path) -> None:
    """Raises LeapError where a model is in this directory of the store."""
    if store.at(directory) is not None:
        raise LeapError(
            f"there is a model {directory.name} already", hint="choose another with --name, or use --replace"
        )


def check_target(target: Path, sources: Iterable[Path], *, replace: bool) -> None:
    """Raises LeapOptionsError where a result cannot become the file ``target``: it has no directory, or it is there
    and one of ``sources`` or not to be replaced."""
    if not target.parent.is_dir():
        raise LeapOptionsError("output", f"there is no directory {target.parent}")
    if not target.exists():
        return
    if any(source.exists() and source.samefile(target) for source in sources):
        raise LeapOptionsError("output", f"{target} is what the result is made from: choose another name")
    if not replace:
        raise LeapOptionsError("output", f"{target} exists; --replace takes its place")


def quantize_to_file(source: Path, target: Path, request: QuantizeRequest, making: Making) -> Quantized:
    """Make one GGUF of another, projectors included, as far as llama.cpp can."""
    header = checked_source(source, request, making)
    unfinished = target.with_name(f".{target.name}{UNFINISHED}")
    try:
        fallbacks = _quantize(source, unfinished, request, making, header)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return Quantized(target, str(target), source.stat().st_size, target.stat().st_size, fallbacks)


def checked_source(path: Path, request: QuantizeRequest, making: Making) -> GGUFHeader:
    """The header of a file that may be quantized and that llama.cpp survives. Raises LeapModelLoadingError."""
    header = read_gguf_header(path)
    check_source(header, request)
    if not header.is_projector:
        verdict = verdict_on(Subject(path), variables=making.variables, stop=making.stop)
        if verdict is not None and not verdict.is_sound:
            raise error_of(Subject(path), verdict)
    return header


def _quantize(source: Path, target: Path, request: QuantizeRequest, making: Making, header: GGUFHeader) -> int:
    """Quantize, if what it gives fits; how many tensors fell back to another type. Finding that out and doing it is one
    process's work: to start another takes longer than to quantize a small model."""
    # llama.cpp appends the parts' numbers by itself
    target = target.with_suffix("") if request.keep_split else target
    extra = header.data_start + ROOM
    asked = {"source": str(source), "target": str(target), "settings": request.to_json()}
    made = run_in_child(
        "quantize",
        asked | {"room": shutil.disk_usage(target.parent).free - extra},
        on_progress=lambda step: making.on_tensor(*step),
        stop=making.stop,
        variables=making.variables,
    )
    if not made["fits"]:
        raise no_space(target.parent, made["bytes"] + extra)
    return len(made["fallbacks"])


def require_space(directory: Path, needed: int) -> None:
    """Raises LeapError where a disk has not so many bytes left."""
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise no_space(directory, needed)


def no_space(directory: Path, needed: int) -> LeapError:
    """The error for a disk without so many bytes left."""
    free = shutil.disk_usage(directory).free
    return LeapError(
        f"{directory} has {free / 1e9:.1f} GB left, and {needed / 1e9:.1f} GB are needed",
        hint="leap models list --sort size",
    )


@contextmanager
def making_directory(store: Store, directory: Path, intent: str) -> Iterator[Path]:
    """A fresh directory within a model's for what is not finished; whatever happens, nothing of it stays."""
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / UNFINISHED
    try:
        with store.writing(directory, intent):
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            yield unfinished
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        if store.at(directory) is None:
            shutil.rmtree(directory, ignore_errors=True)


def settle(unfinished: Path, directory: Path) -> list[Path]:
    """Move finished files to their place, the first part first."""
    moved = []
    for path in sorted(unfinished.iterdir()):
        os.replace(path, directory / path.name)
        moved.append(directory / path.name)
    return moved


def _first(directory: Path) -> Path:
    return min(directory.iterdir())


def size_of(model: LocalModel) -> int:
    """Bytes of a model's own files, without companions."""
    return sum(path.stat().st_size for role, path in files_of(model) if role in ("model", "part"))


def name_for(model: LocalModel, installed: InstalledModel | None) -> str:
    """What a model is called without its quantization."""
    if installed is not None:
        return installed.model
    return name_of(model.path.name).model or read_gguf_header(model.path).name or model.path.stem
