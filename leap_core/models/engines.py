"""Engines that are added: builds of llama.cpp from a folder or an archive.

A build is tried in a child process before it gets its name: its libraries are loaded, its structures recognised, and
the built-in model answers with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ..errors import LeapModelLoadingError, LeapOptionsError
from ..inference.llama.engines import (
    DEFAULT,
    RECORD,
    Engine,
    engines_directory,
    find_engine,
    installed_engines,
    libraries_in,
)
from ..inference.llama.library import GPU_BACKEND
from ..inference.trial.trial_child import assertion
from ..system.child import answers_of
from ..system.configuration import read_engine
from ..system.directories import Directories, make_directory
from ..system.files import hash_file, replacing
from ..system.locks import locked
from .builtin import model_path
from .http import DownloadStopped

TASK = "leap_core.inference.trial.trials:try_engine"
TRIAL_SECONDS = 180
MOST_MEMBERS, MOST_BYTES = 20_000, 8 * 1024**3
"""Of an archive."""
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar")
BACKENDS = ("cpu", "vulkan", "cuda", "metal", "hip")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
LIBRARY_FILE = re.compile(r".+\.(?:so(?:\.[\d.]+)?|dylib|dll|metal|metallib)")
BUILD = re.compile(r"b\d{3,6}")
DEVICE_NAMES = {"hip": "rocm", "metal": "mtl"}
"""What a backend's devices are called, where its library has another name."""
LONGEST_LINK = 4096


def add_engine(
    source: Path,
    name: str | None = None,
    *,
    beside: Sequence[Path] = (),
    variables: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    origin: str | None = None,
) -> Engine:
    """Keep the build of llama.cpp in a folder or archive as an engine. ``name``: by default what the file is called.
    ``beside``: archives whose libraries belong in the same folder. ``origin``: where it came from. The record's
    ``unusable`` names backends that see no device here, and the libraries that each lacks. Raises LeapError for what is
    no build that runs here; nothing is kept then."""
    directories = Directories.from_environment(variables)
    root = engines_directory(directories)
    name = checked_name(name if name is not None else _default_name(source))
    if not source.exists():
        raise LeapModelLoadingError(f"there is no {source}")
    try:
        make_directory(root)
        with locked(root / ".lock"):
            for left in (*root.glob(".adding-*"), *root.glob(".removed-*")):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
        with locked(root / ".lock"), tempfile.TemporaryDirectory(prefix=".adding-", dir=root) as staging:
            refuse_known(name, variables)
            folder = Path(staging) / name
            _collect(source, folder, Path(staging))
            for archive in beside:
                _add_libraries(archive, folder, Path(staging))
            facts = _tried(folder, variables, stop)
            hashes = {path.name: hash_file(path) for path in sorted(folder.iterdir()) if path.is_file()}
            record = {
                "version": facts["version"],
                "id": f"llama.cpp {hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()[:16]}",
                "origin": origin or str(source.absolute()),
                "backends": facts["backends"],
                "devices": [device["name"] for device in facts["devices"]],
                "gpu_offload": facts["gpu_offload"],
                "projectors": facts["projectors"],
                "unusable": _unusable_backends(folder, facts),
                "files": hashes,
            }
            with replacing(folder / RECORD) as file:
                file.write(json.dumps(record, indent=2).encode())
            folder.rename(root / name)
    except OSError as error:
        raise LeapModelLoadingError(f"cannot keep the engine in {root}: {error.strerror or error}") from None
    return find_engine(name, variables)


def remove_engine(name: str, variables: Mapping[str, str] | None = None) -> None:
    """Raises LeapError for the default engine, one that is set to be used, and one that is not here."""
    engine = find_engine(name, variables)
    if not engine.record:
        raise LeapOptionsError("name", "the default engine belongs to llama-cpp-python: pip uninstall removes it")
    if read_engine(Directories.from_environment(variables).config_file) == name:
        raise LeapOptionsError("name", f"{name} is in use (leap engine use default)")
    gone = engine.folder.with_name(f".removed-{name}-{os.getpid()}")
    try:
        engine.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    except OSError as error:
        raise LeapModelLoadingError(f"cannot remove {engine.folder}: {error.strerror}") from None


def refuse_known(name: str, variables: Mapping[str, str] | None) -> None:
    if any(each.name == name for each in installed_engines(Directories.from_environment(variables))):
        raise LeapOptionsError("name", f"there is an engine {name!r} already (leap engine remove {name})")


def checked_name(name: str) -> str:
    if not NAME.fullmatch(name) or name == DEFAULT:
        raise LeapOptionsError("name", f"{name!r} cannot be an engine's name: letters, digits and .+-_ only (--name)")
    return name


def _default_name(source: Path) -> str:
    """``b12359-vulkan`` of ``llama-b12359-bin-ubuntu-vulkan-x64.tar.gz``; else what the file or folder is called."""
    name = source.absolute().name
    stem = next((name[: -len(ending)] for ending in ARCHIVES if name.lower().endswith(ending)), name)
    parts = stem.split("-")
    build = next((part for part in parts if BUILD.fullmatch(part)), None)
    if build is None:
        return re.sub(r"[^A-Za-z0-9_.+-]+", "-", stem).strip("-.")
    kinds = [part for part in parts if part in BACKENDS or part.startswith("rocm")]
    return "-".join([build, *(kinds or ["cpu"])])


# What is in a folder or archive.


def _collect(source: Path, folder: Path, staging: Path) -> None:
    """Copy the libraries of a build into ``folder``. Raises LeapModelLoadingError."""
    if source.is_dir():
        found = _folder_with_library(source)
    else:
        unpacked = staging / ".unpacked"
        unpacked.mkdir()
        _unpack(source, unpacked)
        found = _folder_with_library(unpacked)
    folder.mkdir()
    for path in found.iterdir():
        if LIBRARY_FILE.fullmatch(path.name) and path.is_file():  # a link is copied as what it leads to
            shutil.copyfile(path, folder / path.name)
    for library in libraries_in(folder).values():
        with library.open("rb") as file:
            _check_kind(library.name, file.read(20))


def _add_libraries(archive: Path, folder: Path, staging: Path) -> None:
    """Copy the libraries in an archive into a folder that has others. Raises LeapModelLoadingError."""
    unpacked = staging / f".unpacked-{archive.name}"
    unpacked.mkdir()
    _unpack(archive, unpacked)
    for path in sorted(unpacked.rglob("*")):
        if LIBRARY_FILE.fullmatch(path.name) and path.is_file():
            shutil.copyfile(path, folder / path.name)


def _unusable_backends(folder: Path, facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """Backends for GPUs that are among the libraries and show no device here, with the libraries that each lacks."""
    seen = " ".join(device["name"] for device in facts["devices"]).lower()
    found: dict[str, list[str]] = {}
    for path in sorted(folder.iterdir()):
        match = GPU_BACKEND.match(path.name)
        if match is not None and match[1] not in found and DEVICE_NAMES.get(match[1], match[1]) not in seen:
            found[match[1]] = _missing_libraries(path)
    return found


def _missing_libraries(library: Path) -> list[str]:
    """The libraries that one needs and the system does not find, where ``ldd`` says so."""
    try:
        done = subprocess.run(
            ["ldd", f"./{library.name}"], cwd=library.parent, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return re.findall(r"^\s*(\S+) => not found", done.stdout, re.MULTILINE)


def _folder_with_library(root: Path) -> Path:
    folders = [root, *sorted(path for depth in range(1, 5) for path in root.glob("/".join("*" * depth)))]
    for folder in folders:
        if folder.is_dir():
            with suppress(LeapModelLoadingError):
                libraries_in(folder)
                return folder
    libraries_in(root)
    raise AssertionError("libraries_in raised")


MACHINES = {62: ("x86_64", "amd64"), 183: ("aarch64", "arm64"), 40: ("arm", "armv7l"), 243: ("riscv64",)}
"""ELF's numbers of processors; the source is elf.h."""


def _check_kind(name: str, opening: bytes) -> None:
    """Raises LeapModelLoadingError for a library of another system or processor."""
    kinds = {b"\x7fELF": "linux", b"\xcf\xfa\xed\xfe": "darwin", b"\xca\xfe\xba\xbe": "darwin"}
    system = "win32" if opening[:2] == b"MZ" else kinds.get(opening[:4])
    if system is None:
        raise LeapModelLoadingError(f"{name} is no library")
    if not sys.platform.startswith(system):
        raise LeapModelLoadingError(f"{name} is for another system ({system})")
    if system == "linux":
        machines = MACHINES.get(int.from_bytes(opening[18:20], "little"), ("another processor",))
        if platform.machine().lower() not in machines:
            raise LeapModelLoadingError(f"{name} is for {machines[0]}, and this machine is {platform.machine()}")


def _unpack(archive: Path, target: Path) -> None:
    """Unpack files, and links among them, below ``target``. Raises LeapModelLoadingError."""
    total = 0
    try:
        for count, (name, size, link, file) in enumerate(_members(archive)):
            place = PurePosixPath(name.replace("\\", "/"))
            leads_out = link is not None and (not link.strip(".") or "/" in link or "\\" in link)
            if place.is_absolute() or ".." in place.parts or leads_out:
                raise LeapModelLoadingError(f"{archive.name} holds {name!r}, which leads out of it")
            total += size
            if count >= MOST_MEMBERS or total > MOST_BYTES:
                raise LeapModelLoadingError(f"{archive.name} is larger than an engine can be")
            path = target / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if link is not None:
                path.symlink_to(link)
            elif file is not None:
                with closing(file), path.open("xb") as copy:
                    shutil.copyfileobj(file, copy)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib_error(), NotImplementedError, RuntimeError) as error:
        raise LeapModelLoadingError(f"{archive.name} is damaged: {error}") from None
    except FileExistsError as error:
        raise LeapModelLoadingError(f"{archive.name} holds {Path(error.filename).name} twice") from None


def zlib_error() -> type[Exception]:
    """The error of damaged compressed bytes."""
    import zlib

    return zlib.error


def _members(archive: Path) -> Iterator[tuple[str, int, str | None, IO[bytes] | None]]:
    """Of each file and link in an archive: name, size, what a link leads to, and the content."""
    if not archive.name.lower().endswith(ARCHIVES):
        raise LeapModelLoadingError(f"{archive} is neither a folder nor an archive ({', '.join(ARCHIVES)})")
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as packed:
            for each in packed.infolist():
                if not each.is_dir():
                    is_link = (each.external_attr >> 28) == 0xA
                    if is_link and each.file_size > LONGEST_LINK:
                        raise LeapModelLoadingError(f"{archive.name} holds {each.filename!r}, a link that is too long")
                    link = packed.read(each).decode("utf-8", "replace") if is_link else None
                    yield each.filename, each.file_size, link, None if is_link else packed.open(each)
        return
    with tarfile.open(archive) as tape:
        for member in tape:
            if member.issym():
                yield member.name, 0, member.linkname, None
            elif member.isreg():
                yield member.name, member.size, None, tape.extractfile(member)
            elif not member.isdir():
                raise LeapModelLoadingError(f"{archive.name} holds {member.name!r}, which is no file")


def _tried(folder: Path, variables: Mapping[str, str] | None, stop: threading.Event | None) -> dict[str, Any]:
    """What a child process finds out about a build. Raises LeapModelLoadingError where it does not run here."""
    request = {"task": TASK, "folder": str(folder), "model": str(model_path("builtin"))}
    answers, code, words = answers_of(request, TRIAL_SECONDS, variables, stop)
    if stop is not None and stop.is_set():
        raise DownloadStopped
    answer: dict[str, Any] = {}
    for each in answers:
        answer |= each
    if "result" in answer:
        result: dict[str, Any] = answer["result"]
        return result
    if "error" in answer:
        error = answer["error"]
        raise LeapModelLoadingError(error["message"].replace(f"{folder}/", ""), hint=error.get("hint"))
    stage = answer.get("stage", "starting")
    why = "it does not end" if code is None else f"the process ended with code {code}"
    raise LeapModelLoadingError(
        f"this build does not run here: while {stage}, {why}{assertion(words)}",
        hint="its libraries may be of different builds, or for another processor",
    )
