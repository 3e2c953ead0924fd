"""llama.cpp's releases: which archives are the build for this system and a backend, and fetching them.

The list is GitHub's: ``/repos/ggml-org/llama.cpp/releases/tags/bNNNNN`` or ``/releases/latest`` with ``assets[].name,
size, digest ("sha256:…"), browser_download_url``. A release vX.Y.Z is a pointer: its one asset, ``nightly-tag.txt``,
holds the tag of a build, which is a pre-release. Names of archives: ``llama-b12359-bin-ubuntu-cuda-12.8-x64.tar.gz``;
CUDA's runtime is beside it in ``cudart-llama-b12359-bin-ubuntu-cuda-12.8-x64.tar.gz``.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ..errors import LeapModelDownloadError
from ..inference.llama.engines import Engine
from ..system.dataclass import dataclass
from ..system.directories import Directories
from ..system.locks import locked
from .download.plan import disk_error
from .download.transfer import PartFile, RemoteChanged, Transfer, discard_part
from .engines import ARCHIVES, BACKENDS, NAME, add_engine, checked_name, refuse_known
from .http import RetryPolicy, Web
from .hub import RemoteFile
from .hub_settings import HubSettings

RELEASES = "https://api.github.com/repos/ggml-org/llama.cpp/releases"
RELEASES_VARIABLE = "LEAP_ENGINE_RELEASES"
BUILD_TAG = re.compile(r"b\d{3,6}")
POINTER, LONGEST_POINTER = "nightly-tag.txt", 64
PAGE = 30
"""Releases that are looked through where the latest has no build."""
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,150}")
CUDA_DRIVERS = ((580, 13), (525, 12))
"""The oldest driver for a major version of CUDA, newest first."""


@dataclass(frozen=True)
class Release:
    """A build that can be fetched: ``tag`` of its release, and its archives for this system and a backend, whose files
    belong in one folder."""

    tag: str
    backend: str
    files: tuple[RemoteFile, ...]


SYSTEM = {"darwin": ("macos",), "win32": ("win",)}.get(sys.platform, ("ubuntu", "linux"))
MACHINE = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x64"
OTHERS = ("vulkan", "cuda", "cudart", "hip", "rocm", "sycl", "opencl", "openvino", "cann", "kleidiai", "s390x", "310p")


def find_release(
    web: Web, tag: str | None, backend: str, variables: Mapping[str, str], stop: threading.Event
) -> Release:
    """The archives of a release (the latest for None) for this system. Raises LeapModelDownloadError."""
    base = (variables.get(RELEASES_VARIABLE) or RELEASES).rstrip("/")
    source = _Source(web, base, stop)
    release = source.one("latest" if tag is None else f"tags/{tag}", "release" if tag is None else f"release {tag}")
    candidates = iter([release])
    if tag is None:
        candidates = source.latest(release)
    offered: set[str] = set()
    for found_tag, assets in candidates:
        files = _files_for(assets, backend)
        if files:
            return Release(found_tag, backend, files)
        offered |= {each for each in BACKENDS if any(_is_for(str(asset.get("name")), each) for asset in assets)}
    raise LeapModelDownloadError(
        f"the release {release[0]} has no {backend} build for {SYSTEM[0]} {MACHINE}",
        hint=f"it has {', '.join(sorted(offered))}" if offered else None,
    )


Assets = list[Mapping[str, Any]]


class _Source:
    """Reads releases below ``base``. Raises LeapModelDownloadError."""

    def __init__(self, web: Web, base: str, stop: threading.Event) -> None:
        self._web, self._base, self._stop = web, base, stop

    def one(self, path: str, what: str, *, follow: bool = True) -> tuple[str, Assets]:
        """A release: its tag and assets; that of the build where it points to one."""
        tag, assets = self._read(self._json(path, f"{what} of llama.cpp"), f"{what} of llama.cpp")
        if not follow or [each.get("name") for each in assets] != [POINTER]:
            return tag, assets
        build = self._pointer(assets[0])
        if not BUILD_TAG.fullmatch(build):
            raise LeapModelDownloadError(f"the release {tag} points to {build[:40]!r}, which is no build of llama.cpp")
        return self.one(f"tags/{build}", f"release {build}, to which {tag} points,", follow=False)

    def latest(self, first: tuple[str, Assets]) -> Iterator[tuple[str, Assets]]:
        """The latest release, then the newest ones, pre-releases included."""
        yield first
        answer = self._json(f"?per_page={PAGE}", "releases of llama.cpp")
        for each in answer if isinstance(answer, list) else []:
            with suppress(LeapModelDownloadError):
                yield self._read(each, "release")

    def _json(self, path: str, what: str) -> Any:
        url = self._base + path if path.startswith("?") else f"{self._base}/{path}"
        accept = {"Accept": "application/vnd.github+json"}
        return RetryPolicy(self._stop).run(lambda: self._web.json(url, what, accept))[0]

    def _pointer(self, asset: Mapping[str, Any]) -> str:
        url = _remote(asset, POINTER, needs_hash=False).url

        def read() -> bytes:
            with self._web.get(url) as answer:
                if answer.status != 200:
                    raise self._web.refusal(answer, url, POINTER)
                text = b""
                for piece in answer.pieces():
                    text += piece
                    if len(text) > LONGEST_POINTER:
                        break
                return text[:LONGEST_POINTER]

        return RetryPolicy(self._stop).run(read).decode("utf-8", "replace").strip()

    def _read(self, answer: Any, what: str) -> tuple[str, Assets]:
        assets = answer.get("assets") if isinstance(answer, dict) else None
        tag = answer.get("tag_name") if isinstance(answer, dict) else None
        if not isinstance(assets, list) or not isinstance(tag, str) or not NAME.fullmatch(tag):
            raise LeapModelDownloadError(f"the answer about the {what} is no release")
        return tag, [each for each in assets if isinstance(each, dict)]


def _files_for(assets: Assets, backend: str) -> tuple[RemoteFile, ...]:
    """The archives of a build for this system; none where there is none."""
    named = {name: each for each in assets if isinstance(name := each.get("name"), str) and FILE_NAME.fullmatch(name)}
    fitting = sorted(name for name in named if _is_for(name, backend))
    if not fitting:
        return ()
    name = max(fitting, key=_fits_driver) if backend == "cuda" else fitting[0]
    runtime = _runtime_of(name, list(named)) if backend == "cuda" else None
    return tuple(_remote(named[each], each) for each in (name, runtime) if each is not None)


def _cuda_version(name: str) -> tuple[int, int]:
    found = re.search(r"-cuda-(\d+)\.(\d+)-", name)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _fits_driver(name: str) -> tuple[bool, tuple[int, int]]:
    """Larger for a CUDA build that this driver runs, the newest of them first."""
    driver, version = nvidia_driver(), _cuda_version(name)
    newest = next((major for least, major in CUDA_DRIVERS if driver is not None and driver >= least), 12)
    return version[0] <= newest, version if version[0] <= newest else (-version[0], 0)


def nvidia_driver() -> int | None:
    """The major version of NVIDIA's driver; None where there is none."""
    with suppress(OSError):
        if match := re.search(r"\s(\d{3,4})\.\d", Path("/proc/driver/nvidia/version").read_text()):
            return int(match[1])
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
        return int(said.partition(".")[0])
    return None


def _runtime_of(name: str, names: list[str]) -> str | None:
    """The archive with CUDA's runtime for a build. On Windows its name has no build number."""
    return next(
        (
            each
            for each in sorted(names)
            if each.startswith("cudart-") and _cuda_version(each) == _cuda_version(name) and _is_of_system(each)
        ),
        None,
    )


def _words(name: str) -> list[str]:
    ending = next((each for each in ARCHIVES if name.endswith(each)), None)
    return [] if ending is None else name[: -len(ending)].split("-")


def _is_of_system(name: str) -> bool:
    words = _words(name)
    return MACHINE in words and bool(set(SYSTEM) & set(words))


def _is_for(name: str, backend: str) -> bool:
    if not name.startswith("llama-") or not _is_of_system(name):
        return False
    kinds = [word for word in _words(name) if word in OTHERS]
    if backend in ("cpu", "metal"):
        return not kinds and (backend == "cpu" or sys.platform == "darwin")
    return kinds == [backend] or (backend == "hip" and kinds in (["rocm"], ["hip", "radeon"]))


def _remote(asset: Mapping[str, Any], name: str, *, needs_hash: bool = True) -> RemoteFile:
    url, size, digest = asset.get("browser_download_url"), asset.get("size"), asset.get("digest")
    sha256 = digest.partition(":")[2] if isinstance(digest, str) and digest.startswith("sha256:") else ""
    if not isinstance(url, str) or not url.startswith(("https://", "http://")) or not isinstance(size, int) or size < 1:
        raise LeapModelDownloadError(f"the release does not say where {name} is, or how large")
    if needs_hash and not re.fullmatch(r"[0-9a-f]{64}", sha256):
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
    ``on_progress`` gets the file, and how many of its bytes are here. Raises LeapError; DownloadStopped once ``stop``
    is set, and what has arrived is kept."""
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
        name = checked_name(name or f"{release.tag}-{backend}")
        refuse_known(name, variables)
        targets = [cache / file.name for file in release.files]
        try:
            cache.mkdir(parents=True, exist_ok=True)
            for file, target in zip(release.files, targets, strict=True):
                _fetch(web, file, target, stop, on_progress)
        except RemoteChanged as changed:
            raise LeapModelDownloadError(f"the server does not send the file it announced: {changed}") from None
        except OSError as error:
            raise disk_error(error, cache) from None
    with ExitStack() as cleaning:
        for target in targets:
            cleaning.callback(discard_part, target)
            cleaning.callback(target.unlink, missing_ok=True)
        origin = release.files[0].url
        return add_engine(targets[0], name, beside=targets[1:], variables=variables, stop=stop, origin=origin)


def _fetch(
    web: Web, file: RemoteFile, target: Path, stop: threading.Event, on_progress: Callable[[str, int, int], object]
) -> None:
    with locked(target.parent / ".lock"), PartFile(target, file) as part:
        transfer = Transfer(web, part, stop=stop, on_progress=lambda count: on_progress(file.name, count, file.size))
        sha256 = transfer.run()
        if sha256 != file.sha256:
            part.discard()
            raise LeapModelDownloadError(
                f"{file.name} arrived with SHA-256 {sha256} instead of {file.sha256}",
                hint="the server or something on the way is broken",
            )
        part.finish()
