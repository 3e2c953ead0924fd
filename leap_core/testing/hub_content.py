"""What the fake hub serves, how it is to misbehave, and the log of its requests."""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

API, RESOLVE, FILES = "/api/", "/resolve/", "/storage/"
"""What to give a fault as ``where`` to hit the API, the hub's answers to downloads, or the storage's."""
FAULTS = ("drop", "stall", "truncate", "shorten", "corrupt", "status", "ignore_range")


@dataclass
class Fault:
    """One way to misbehave, ``times`` times, at requests whose path contains ``where``.

    A fault of the body applies only to answers that are longer than ``after``, or contain the byte that is corrupted.

    drop: reset the connection after ``after`` bytes of the body; stall: send no more for ``seconds``; truncate: end the
    body early but orderly; shorten: announce and send only ``after`` bytes; corrupt: flip the bits of the file's byte
    ``after``; status: answer ``status`` (with ``retry_after``); ignore_range: send the whole file.
    """

    kind: str
    where: str = ""
    times: int = 1
    after: int = 0
    seconds: float = 3600.0
    status: int = 500
    retry_after: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class LoggedRequest:
    """A request as it was answered. ``headers`` have lower-case names; ``sent`` counts bytes of the body."""

    host: str
    method: str
    path: str
    headers: dict[str, str]
    status: int = 0
    sent: int = 0


@dataclass(frozen=True)
class HubFile:
    """A file that is served; ``etag`` None sends no validator."""

    name: str
    content: bytes | Path
    size: int
    sha256: str
    lfs: bool
    etag: str | None

    def read(self, start: int, length: int) -> bytes:
        """A stretch of its bytes."""
        if isinstance(self.content, bytes):
            return self.content[start : start + length]
        with self.content.open("rb") as file:
            file.seek(start)
            return file.read(length)


class HubContent(ABC):
    """The content of a ``FakeHub``. Any thread may call."""

    def __init__(self, token: str, bytes_per_second: float | None) -> None:
        self.token = token
        self.bytes_per_second = bytes_per_second
        self.gated: set[str] = set()
        self.faults: list[Fault] = []
        self.log: list[LoggedRequest] = []
        self.registry: dict[tuple[str, str], str] = {}
        """The LEAP registry: (model, quantization) -> the URL of a manifest."""
        self.described: dict[str, dict[str, Any]] = {}
        """What a search says of a repository: repository -> architecture, total and context_length of its GGUF."""
        self._commits: dict[str, dict[str, dict[str, HubFile]]] = {}
        self._heads: dict[str, str] = {}
        self._plain: dict[str, HubFile] = {}
        self._guard = threading.Lock()
        self.closing = threading.Event()

    @property
    @abstractmethod
    def storage_url(self) -> str:
        """The second host, to which downloads are redirected, and which serves ``add_plain``'s files."""

    def add_file(self, repo: str, path: str, content: bytes | Path, *, lfs: bool | None = None) -> str:
        """Commit a file to a repository, replacing one of the same path; its SHA-256. Files of more than 1 kB are LFS
        files unless a test says otherwise."""
        file = _file_of(path, content, lfs)
        with self._guard:
            files = dict(self._commits.get(repo, {}).get(self._heads.get(repo, ""), {}))
            files[path] = file
            state = "".join(f"{name} {entry.sha256}\n" for name, entry in sorted(files.items()))
            commit = hashlib.sha1(state.encode()).hexdigest()
            self._commits.setdefault(repo, {})[commit] = files
            self._heads[repo] = commit
        return file.sha256

    def add_plain(self, path: str, content: bytes | Path, *, etag: str | None = "") -> str:
        """Serve a file by URL on the second host, and return that URL. ``etag`` None sends no validator at all."""
        file = _file_of(path, content, False)
        tag = f'"{file.sha256[:16]}"' if etag == "" else etag
        with self._guard:
            self._plain[path.lstrip("/")] = HubFile(file.name, file.content, file.size, file.sha256, False, tag)
        return f"{self.storage_url}/plain/{quote(path.lstrip('/'))}"

    def fault(self, kind: str, where: str = FILES, **details: Any) -> Fault:
        """Add a Fault; it applies to the storage's answers unless ``where`` says otherwise."""
        if kind not in FAULTS:
            raise ValueError(f"{kind!r} is not one of {', '.join(FAULTS)}")
        fault = Fault(kind, where, **details)
        self.faults.append(fault)
        return fault

    def requests(self, where: str = "") -> list[LoggedRequest]:
        """The log's requests whose path contains ``where``."""
        with self._guard:
            return [request for request in self.log if where in request.path]

    def bytes_served(self, where: str = FILES) -> int:
        """Bytes of all bodies that were sent for paths that contain ``where``."""
        return sum(request.sent for request in self.requests(where))

    def take_fault(self, path: str, kinds: tuple[str, ...], body: range | None = None) -> Fault | None:
        """The first fault of these kinds that applies to the path, and to a body of these bytes, used up by one."""
        with self._guard:
            for fault in self.faults:
                fits = body is None or fault.after in (body if fault.kind == "corrupt" else range(len(body)))
                if fault.kind in kinds and fault.times > 0 and fault.where in path and fits:
                    fault.times -= 1
                    return fault
        return None

    def write_down(self, host: str, method: str, path: str, headers: dict[str, str]) -> LoggedRequest:
        """Add a request to the log."""
        request = LoggedRequest(host, method, path, headers)
        with self._guard:
            self.log.append(request)
        return request

    def repositories(self, words: str) -> list[str]:
        """Those with a GGUF file and all these words in their names."""
        with self._guard:
            return [
                repo
                for repo, commit in self._heads.items()
                if all(word in repo.lower() for word in words.lower().split())
                and any(name.endswith(".gguf") for name in self._commits[repo][commit])
            ]

    def files_of(self, repo: str, revision: str) -> tuple[str, dict[str, HubFile]] | None:
        """A commit and its files; the revision is main, or a commit's hash."""
        with self._guard:
            commits = self._commits.get(repo)
            commit = self._heads.get(repo, "") if revision == "main" else revision
            return (commit, commits[commit]) if commits and commit in commits else None

    def stored(self, sha256: str) -> HubFile | None:
        """A file of any commit by its hash."""
        with self._guard:
            every = (
                file for commits in self._commits.values() for files in commits.values() for file in files.values()
            )
            return next((file for file in every if file.sha256 == sha256), None)

    def plain(self, path: str) -> HubFile | None:
        """A file that ``add_plain`` put there."""
        with self._guard:
            return self._plain.get(path)


def _file_of(path: str, content: bytes | Path, lfs: bool | None) -> HubFile:
    digest = hashlib.sha256()
    if isinstance(content, bytes):
        size = len(content)
        digest.update(content)
    else:
        size = content.stat().st_size
        with content.open("rb") as file:
            while piece := file.read(1024 * 1024):
                digest.update(piece)
    sha256 = digest.hexdigest()
    is_lfs = size > 1024 if lfs is None else lfs
    return HubFile(path, content, size, sha256, is_lfs, f'"{sha256 if is_lfs else sha256[:40]}"')
