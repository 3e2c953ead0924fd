"""Model files that other programs have fetched already: Hugging Face's cache and llama.cpp's.

Nothing is written there. Layouts: huggingface_hub's ``models--<owner>--<repo>/{refs,snapshots,blobs}``, and llama.cpp's
flat ``<owner>_<repo>_<file>``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


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
        directory = self.hugging_face / f"models--{repo.replace('/', '--')}"
        newest = ""
        with suppress(OSError):
            newest = (directory / "refs" / "main").read_text().strip()
        with suppress(OSError):
            snapshots = [path for path in (directory / "snapshots").iterdir() if path.is_dir()]
            yield from sorted(snapshots, key=lambda path: (path.name != newest, -path.stat().st_mtime))


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
