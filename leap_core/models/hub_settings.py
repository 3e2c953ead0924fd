"""What the environment says about hubs, and the caches that other programs keep of them.

Nothing is written there. Layouts: huggingface_hub's ``models--<owner>--<repo>/{refs,snapshots,blobs}``, and llama.cpp's
flat ``<owner>_<repo>_<file>``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from ..errors import LeapModelDownloadError
from ..system.addresses import masked
from ..system.dataclass import dataclass


@dataclass(frozen=True)
class ForeignCaches:
    """Where the two caches are."""

    hugging_face: Path
    llama_cpp: Path

    @staticmethod
    def from_environment(variables: Mapping[str, str]) -> ForeignCaches:
        """``$HF_HUB_CACHE``, ``$HF_HOME/hub``, ``$LLAMA_CACHE``, or the two programs' defaults."""
        hub = variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE")
        llama = variables.get("LLAMA_CACHE")
        return ForeignCaches(
            _expanded(hub) if hub else hugging_face_home(variables) / "hub",
            _expanded(llama) if llama else _llama_cpp_default(variables),
        )

    def owner_of(self, path: Path) -> str:
        """The program whose cache a file lies in."""
        return "llama.cpp" if path.is_relative_to(self.llama_cpp) else "Hugging Face"

    def files_of(self, repo: str) -> dict[str, Path]:
        """Every file of a repository that a cache holds, by its path in the repository, newest snapshot first."""
        files: dict[str, Path] = {}
        for snapshot in self._snapshots(repo):
            for path in sorted(snapshot.rglob("*")):
                if path.is_file():
                    files.setdefault(path.relative_to(snapshot).as_posix(), path)
        start = repo.replace("/", "_") + "_"
        with suppress(OSError):
            for path in sorted(self.llama_cpp.glob("*.gguf")):
                if path.name.startswith(start):
                    files.setdefault(path.name[len(start) :], path)
        return files

    def _snapshots(self, repo: str) -> Iterator[Path]:
        for cache in (self.hugging_face, self.llama_cpp):  # new versions of llama.cpp have the hub's layout
            yield from snapshots_in(cache / f"models--{repo.replace('/', '--')}")


def snapshots_in(directory: Path) -> list[Path]:
    """The snapshots of a repository in the hub's layout, the current one first."""
    newest = ""
    with suppress(OSError, ValueError):
        newest = (directory / "refs" / "main").read_text().strip()
    with suppress(OSError):
        snapshots = [path for path in (directory / "snapshots").iterdir() if path.is_dir()]
        return sorted(snapshots, key=lambda path: (path.name != newest, -path.stat().st_mtime))
    return []


def hugging_face_home(variables: Mapping[str, str]) -> Path:
    """``$HF_HOME``, else huggingface_hub's default."""
    home = variables.get("HF_HOME")
    if home:
        return _expanded(home)
    return _user_cache(variables) / "huggingface"


def _user_cache(variables: Mapping[str, str]) -> Path:
    return _expanded(variables.get("XDG_CACHE_HOME") or "~/.cache")


def _expanded(path: str) -> Path:
    """With the home directory for ``~``; where there is none, the path leads nowhere."""
    return Path(os.path.expanduser(path))


def _llama_cpp_default(variables: Mapping[str, str]) -> Path:
    if sys.platform == "darwin":
        return _expanded("~/Library/Caches/llama.cpp")
    if os.name == "nt":
        return _expanded(variables.get("LOCALAPPDATA") or "~/AppData/Local") / "llama.cpp"
    return _user_cache(variables) / "llama.cpp"


HUGGING_FACE = "https://huggingface.co"
REGISTRY = "https://leap.liquid.ai"
STALL_SECONDS = 20.0
TRUE = ("1", "on", "yes", "true")


@dataclass(frozen=True)
class HubSettings:
    """``endpoint``: the hub. ``token``: sent to that origin only. ``offline``: send nothing. ``registry``: the LEAP
    registry. ``stall_seconds``: how long a connection may be silent."""

    endpoint: str = HUGGING_FACE
    token: str | None = field(default=None, repr=False)
    offline: bool = False
    registry: str = REGISTRY
    stall_seconds: float = STALL_SECONDS
    caches: ForeignCaches = field(default_factory=lambda: ForeignCaches.from_environment({}))

    @staticmethod
    def from_environment(variables: Mapping[str, str]) -> HubSettings:
        """Read HF_ENDPOINT, HF_TOKEN (or the token file), HF_HOME, HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT,
        and LEAP_REGISTRY.

        Raises LeapModelDownloadError for a value that cannot be used.
        """
        return HubSettings(
            endpoint=endpoint_of(variables),
            token=_token(variables),
            offline=variables.get("HF_HUB_OFFLINE", "").lower() in TRUE,
            registry=_base(variables.get("LEAP_REGISTRY") or REGISTRY, "LEAP_REGISTRY"),
            stall_seconds=_seconds(variables.get("HF_HUB_DOWNLOAD_TIMEOUT")),
            caches=ForeignCaches.from_environment(variables),
        )

    def with_stall(self, seconds: float) -> HubSettings:
        """A copy with another patience for silent connections."""
        return replace(self, stall_seconds=seconds)


def endpoint_of(variables: Mapping[str, str]) -> str:
    """The hub's base URL, without a slash at its end."""
    return _base(variables.get("HF_ENDPOINT") or HUGGING_FACE, "HF_ENDPOINT")


def _base(url: str, name: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise LeapModelDownloadError(f"{name} is {masked(url)!r}, which is not a http(s) URL")
    return url.rstrip("/")


def _seconds(text: str | None) -> float:
    if not text:
        return STALL_SECONDS
    with suppress(ValueError):
        if 0 < (value := float(text)) < 86_400:
            return value
    raise LeapModelDownloadError(f"HF_HUB_DOWNLOAD_TIMEOUT is {text!r}, which is not a number of seconds")


def _token(variables: Mapping[str, str]) -> str | None:
    token = variables.get("HF_TOKEN") or variables.get("HUGGING_FACE_HUB_TOKEN") or ""
    where = "HF_TOKEN"
    if not token and variables.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").lower() not in TRUE:
        path = variables.get("HF_TOKEN_PATH")
        file = Path(os.path.expanduser(path)) if path else hugging_face_home(variables) / "token"
        where = str(file)
        with suppress(OSError):
            token = file.read_text(encoding="utf-8", errors="replace")
    token = token.strip()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise LeapModelDownloadError(f"the token in {where} holds characters that no token has")
    return token or None
