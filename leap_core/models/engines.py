"""Engines added and fetched: builds of llama.cpp from a folder, an archive, or llama.cpp's releases.

The list of releases is GitHub's: ``/repos/ggml-org/llama.cpp/releases/tags/bNNNNN`` or ``/releases/latest`` with
``assets[].name, size, digest ("sha256:…"), browser_download_url``. What comes is tried in a child process before it
gets its name: its libraries are loaded, its structures recognised, and the built-in model answers with it.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ..errors import LeapModelDownloadError, LeapModelLoadingError, LeapOptionsError
from ..inference.llama.engines import (
    DEFAULT,
    RECORD,
    Engine,
    engines_directory,
    find_engine,
    installed_engines,
    libraries_in,
)
from ..inference.trial.child import assertion
from ..system.child import child_for, killed_when
from ..system.configuration import read_engine
from ..system.dataclass import dataclass
from ..system.directories import Directories, make_directory
from ..system.files import replacing
from ..system.locks import locked
from .builtin import model_path
from .download.plan import disk_error
from .download.transfer import PartFile, RemoteChanged, Transfer, discard_part
from .http import DownloadStopped, RetryPolicy, Web
from .hub import RemoteFile
from .hub_settings import HubSettings

RELEASES = "https://api.github.com/repos/ggml-org/llama.cpp/releases"
RELEASES_VARIABLE = "LEAP_ENGINE_RELEASES"
TASK = "leap_core.inference.trial.trials:try_engine"
TRIAL_SECONDS = 180
MOST_MEMBERS, MOST_BYTES = 20_000, 8 * 1024**3
"""Of an archive."""
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar")
BACKENDS = ("cpu", "vulkan", "cuda", "metal", "hip")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
LIBRARY_FILE = re.compile(r".+\.(?:so(?:\.[\d.]+)?|dylib|dll|metal|metallib)")
BUILD = re.compile(r"b\d{3,6}")


def add_engine(
    source: Path,
    name: str | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    origin: str | None = None,
) -> Engine:
    """Keep the build of llama.cpp in a folder or archive as an engine. ``name``: by default what the file is called.
    ``origin``: where it came from. Raises LeapError for what is no build that runs here; nothing is kept then."""
    directories = Directories.from_environment(variables)
    root = engines_directory(directories)
    name = _checked_name(name if name is not None else _default_name(source))
    if not source.exists():
        raise LeapModelLoadingError(f"there is no {source}")
    try:
        make_directory(root)
        with locked(root / ".lock"):
            for left in (*root.glob(".adding-*"), *root.glob(".removed-*")):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
        with locked(root / ".lock"), tempfile.TemporaryDirectory(prefix=".adding-", dir=root) as staging:
            _refuse_known(name, variables)
            folder = Path(staging) / name
            _collect(source, folder, Path(staging))
            facts = _tried(folder, variables, stop)
            hashes = {path.name: _sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
            record = {
                "version": facts["version"],
                "id": f"llama.cpp {hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()[:16]}",
                "origin": origin or str(source.absolute()),
                "backends": facts["backends"],
                "devices": [device["name"] for device in facts["devices"]],
                "gpu_offload": facts["gpu_offload"],
                "projectors": facts["projectors"],
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
    if read_engine(_directories(variables).config_file) == name:
        raise LeapOptionsError("name", f"{name} is in use (leap engine use default)")
    gone = engine.folder.with_name(f".removed-{name}-{os.getpid()}")
    try:
        engine.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    except OSError as error:
        raise LeapModelLoadingError(f"cannot remove {engine.folder}: {error.strerror}") from None


def _directories(variables: Mapping[str, str] | None) -> Directories:
    return Directories.from_environment(variables)


def _refuse_known(name: str, variables: Mapping[str, str] | None) -> None:
    if any(each.name == name for each in installed_engines(_directories(variables))):
        raise LeapOptionsError("name", f"there is an engine {name!r} already (leap engine remove {name})")


def _checked_name(name: str) -> str:
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
    with tempfile.TemporaryFile() as words:
        answer: dict[str, Any] = {}
        with child_for(request, stdout=subprocess.PIPE, stderr=words, variables=variables) as process:
            assert process.stdout is not None
            with killed_when(stop or threading.Event(), process, TRIAL_SECONDS) as late:
                for line in process.stdout:
                    with suppress(ValueError):
                        answer |= json.loads(line)
            code = process.wait()
        if stop is not None and stop.is_set():
            raise DownloadStopped
        if "result" in answer:
            result: dict[str, Any] = answer["result"]
            return result
        if "error" in answer:
            error = answer["error"]
            raise LeapModelLoadingError(error["message"].replace(f"{folder}/", ""), hint=error.get("hint"))
        words.seek(0)
        stage = answer.get("stage", "starting")
        why = "it does not end" if late.is_set() else f"the process ended with code {code}"
        said = assertion(words.read().decode("utf-8", "replace"))
        raise LeapModelLoadingError(
            f"this build does not run here: while {stage}, {why}{said}",
            hint="its libraries may be of different builds, or for another processor",
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
        return digest.hexdigest()


# llama.cpp's releases.


@dataclass(frozen=True)
class Release:
    """A build that can be fetched: ``tag`` of its release, and the archive for this system and a backend."""

    tag: str
    backend: str
    file: RemoteFile


SYSTEM = {"darwin": ("macos",), "win32": ("win",)}.get(sys.platform, ("ubuntu", "linux"))
MACHINE = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x64"
OTHERS = ("vulkan", "cuda", "cudart", "hip", "rocm", "sycl", "opencl", "openvino", "cann", "kleidiai", "s390x", "310p")


def find_release(
    web: Web, tag: str | None, backend: str, variables: Mapping[str, str], stop: threading.Event
) -> Release:
    """The archive of a release (the latest for None) for this system. Raises LeapModelDownloadError."""
    base = (variables.get(RELEASES_VARIABLE) or RELEASES).rstrip("/")
    url = f"{base}/latest" if tag is None else f"{base}/tags/{tag}"
    what = "release of llama.cpp" if tag is None else f"release {tag} of llama.cpp"
    answer, _ = RetryPolicy(stop).run(lambda: web.json(url, what, {"Accept": "application/vnd.github+json"}))
    assets = answer.get("assets") if isinstance(answer, dict) else None
    found_tag = answer.get("tag_name") if isinstance(answer, dict) else None
    if not isinstance(assets, list) or not isinstance(found_tag, str) or not NAME.fullmatch(found_tag):
        raise LeapModelDownloadError(f"the answer about the {what} is no release")
    for asset in sorted((each for each in assets if isinstance(each, dict)), key=lambda each: str(each.get("name"))):
        name = asset.get("name")
        if isinstance(name, str) and _is_for(name, backend):
            return Release(found_tag, backend, _remote(asset, name))
    offered = sorted({each for each in BACKENDS if any(_is_for(str(a.get("name")), each) for a in assets)})
    raise LeapModelDownloadError(
        f"the release {found_tag} has no {backend} build for {SYSTEM[0]} {MACHINE}",
        hint=f"it has {', '.join(offered)}" if offered else None,
    )


def _is_for(name: str, backend: str) -> bool:
    ending = next((each for each in ARCHIVES if name.endswith(each)), None)
    if ending is None or not name.startswith("llama-"):
        return False
    words = name[: -len(ending)].split("-")
    if MACHINE not in words or not set(SYSTEM) & set(words):
        return False
    kinds = [word for word in words if word in OTHERS]
    if backend in ("cpu", "metal"):
        return not kinds and (backend == "cpu" or sys.platform == "darwin")
    return kinds == [backend] or (backend == "hip" and kinds in (["rocm"], ["hip", "radeon"]))


def _remote(asset: Mapping[str, Any], name: str) -> RemoteFile:
    url, size, digest = asset.get("browser_download_url"), asset.get("size"), asset.get("digest")
    sha256 = digest.partition(":")[2] if isinstance(digest, str) and digest.startswith("sha256:") else ""
    if not isinstance(url, str) or not url.startswith(("https://", "http://")) or not isinstance(size, int) or size < 1:
        raise LeapModelDownloadError(f"the release does not say where {name} is, or how large")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise LeapModelDownloadError(f"the release gives no SHA-256 of {name}, so it cannot be checked")
    return RemoteFile(name, url, size, sha256)


def install_engine(
    tag: str | None,
    backend: str = "cpu",
    name: str | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    on_progress: Callable[[str, int, int], object] = lambda file, done, total: None,
) -> Engine:
    """Fetch a release of llama.cpp (the latest for None), checked and resumed, and keep it as an engine.
    ``on_progress`` hears of the file, and how many of its bytes are here. Raises LeapError; DownloadStopped once
    ``stop`` is set, and what has arrived is kept."""
    variables = os.environ if variables is None else variables
    stop = stop or threading.Event()
    settings = HubSettings.from_environment(variables)
    if settings.offline:
        raise LeapModelDownloadError(
            "HF_HUB_OFFLINE is set, so nothing is fetched", hint="leap engine add takes a file"
        )
    cache = Directories.from_environment(variables).cache / "engines"
    with Web(settings, stop) as web:
        release = find_release(web, tag, backend, variables, stop)
        name = _checked_name(name or f"{release.tag}-{backend}")
        _refuse_known(name, variables)
        target = cache / release.file.name
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with locked(cache / ".lock"), PartFile(target, release.file) as part:
                transfer = Transfer(
                    web,
                    part,
                    stop=stop,
                    on_progress=lambda count: on_progress(release.file.name, count, release.file.size),
                )
                sha256 = transfer.run()
                if sha256 != release.file.sha256:
                    part.discard()
                    raise LeapModelDownloadError(
                        f"{release.file.name} arrived with SHA-256 {sha256} instead of {release.file.sha256}",
                        hint="the server or something on the way is broken",
                    )
                part.finish()
        except RemoteChanged as changed:
            raise LeapModelDownloadError(f"the server does not send the file it announced: {changed}") from None
        except OSError as error:
            raise disk_error(error, cache) from None
    try:
        return add_engine(target, name, variables=variables, stop=stop, origin=release.file.url)
    finally:
        target.unlink(missing_ok=True)
        discard_part(target)
