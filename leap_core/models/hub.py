"""Questions to the Hugging Face hub: a repository's commit and files, with their sizes and SHA-256.

End points: ``/api/models?search=…&filter=gguf``,
``/api/models/<repo>/revision/<rev>?blobs=true``, ``/api/models/<repo>/tree/<rev>?recursive=true`` (pages by
the Link header) and ``/<repo>/resolve/<rev>/<path>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urljoin

from ..errors import LeapModelDownloadError
from ..system.dataclass import dataclass
from .http import Web

SHA256 = re.compile(r"[0-9a-f]{64}")
COMMIT = re.compile(r"[0-9a-zA-Z_-][0-9a-zA-Z._/-]{0,199}")
MOST_PAGES = 100
Value = TypeVar("Value")


@dataclass(frozen=True)
class RemoteFile:
    """A file that can be fetched. ``name`` is its path in the repository, or its name. ``sha256`` and ``etag`` are None
    where it is not said."""

    name: str
    url: str
    size: int
    sha256: str | None = None
    etag: str | None = None


@dataclass(frozen=True)
class RepositoryListing:
    """The files of a repository at one commit, by path; ``license`` where the hub says it."""

    repo: str
    commit: str
    files: dict[str, RemoteFile]
    license: str | None = None


@dataclass(frozen=True)
class HubSearchResult:
    """A repository of GGUF files that a search found. ``architecture``, ``parameters`` and ``context`` are of the file
    that the hub has read, None where it does not say; ``downloads`` in the last month."""

    repo: str
    architecture: str | None
    parameters: int | None
    context: int | None
    downloads: int


class Hub:
    """The API over one Web; ``retrying`` runs a question again while failures may pass."""

    def __init__(self, web: Web, retrying: Callable[[Callable[[], Value]], Value]) -> None:
        self.web = web
        self.retrying: Callable[[Callable[[], Any]], Any] = retrying
        self.endpoint = web.settings.endpoint

    def listing(self, repo: str, revision: str | None = None) -> RepositoryListing:
        """Commit and files of a repository. Raises LeapModelDownloadError when it is not there or not for us."""
        what = f"repository {repo}" + (f" at {revision}" if revision else "")
        revision_path = quote(revision or "main", safe="")
        base = f"{self.endpoint}/api/models/{repo}"
        info, _ = self.retrying(lambda: self.web.json(f"{base}/revision/{revision_path}?blobs=true", what))
        commit = info.get("sha", revision or "main") if isinstance(info, dict) else None
        if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
            raise LeapModelDownloadError(f"the hub does not say which commit of {what} is current")
        siblings = info.get("siblings")
        entries = [_of_sibling(entry) for entry in siblings] if isinstance(siblings, list) else []
        if not entries or any(entry is None for entry in entries):
            entries = [_of_tree(entry) for entry in self._tree(f"{base}/tree/{commit}?recursive=true", what)]
        files = {}
        for entry in entries:
            if entry is not None:
                path, size, sha256 = entry
                files[path] = RemoteFile(path, self.file_url(repo, commit, path), size, sha256)
        tags = info.get("tags") if isinstance(info, dict) else None
        licenses = [tag[8:] for tag in tags or () if isinstance(tag, str) and tag.startswith("license:")]
        return RepositoryListing(repo, commit, files, next(iter(licenses), None))

    def search(self, words: str, most: int = 100) -> list[HubSearchResult]:
        """The repositories of GGUF files that answer to these words, the most downloaded first. Raises
        LeapModelDownloadError."""
        parts = [("search", words), ("filter", "gguf"), ("sort", "downloads"), ("direction", "-1"), ("limit", most)]
        query = urlencode([*parts, ("expand[]", "gguf"), ("expand[]", "downloads")])
        what = f"a search for {words!r}"
        answer, _ = self.retrying(lambda: self.web.json(f"{self.endpoint}/api/models?{query}", what))
        if not isinstance(answer, list):
            raise LeapModelDownloadError(f"the hub's answer to {what} is not a list")
        return [found for each in answer if (found := _found(each)) is not None]

    def file_url(self, repo: str, revision: str, path: str) -> str:
        """Where a file of a repository is fetched from."""
        return f"{self.endpoint}/{repo}/resolve/{quote(revision, safe='')}/{quote(path)}"

    def probe(self, url: str, name: str) -> RemoteFile:
        """Size and validators of a file known by its URL only. Raises LeapModelDownloadError."""
        return self.retrying(lambda: self._probe(url, name))  # type: ignore[no-any-return]

    def _probe(self, url: str, name: str) -> RemoteFile:
        with self.web.get(url, {"Range": "bytes=0-0"}) as answer:
            size: str | None = None
            if answer.status == 206:
                size = answer.headers.get("content-range", "").rpartition("/")[2]
            elif answer.status == 200:
                size = answer.headers.get("content-length")
            elif answer.status == 416:
                size = answer.headers.get("content-range", "*/0").rpartition("/")[2]
            else:
                raise self.web.refusal(answer, url, f"file {name}")
            linked = answer.first.get("x-linked-size")
            size = linked if linked and linked.isdecimal() else size
            if size is None or not size.isdecimal():
                raise LeapModelDownloadError(f"{url} does not say how large it is, so it cannot be fetched safely")
            if int(size) == 0:
                raise LeapModelDownloadError(f"{url} has no bytes")
            sha256 = _hash_in(answer.first.get("x-linked-etag"))
            return RemoteFile(name, url, int(size), sha256, strong_etag(answer.headers))

    def _tree(self, url: str, what: str) -> list[Any]:
        entries: list[Any] = []
        for _ in range(MOST_PAGES):
            page, headers = self.retrying(lambda url=url: self.web.json(url, what))  # type: ignore[misc]
            if not isinstance(page, list):
                raise LeapModelDownloadError(f"the hub's list of the files of {what} is not a list")
            entries += page
            following = re.search(r'<([^>]+)>;\s*rel="next"', headers.get("link", ""))
            if following is None:
                return entries
            url = urljoin(url, following[1])
        raise LeapModelDownloadError(f"{what} has too many files")


def strong_etag(headers: Mapping[str, str]) -> str | None:
    """The ETag if it promises identical bytes; weak ones do not (RFC 9110, 8.8.1)."""
    etag = headers.get("etag", "").strip()
    return etag if len(etag) > 2 and etag.startswith('"') and etag.endswith('"') else None


def _found(entry: Any) -> HubSearchResult | None:
    """None for what names no repository."""
    repo = entry.get("id") if isinstance(entry, dict) else None
    if not isinstance(repo, str):
        return None
    gguf = entry.get("gguf")
    gguf = gguf if isinstance(gguf, dict) else {}
    architecture = gguf.get("architecture")
    return HubSearchResult(
        repo,
        architecture if isinstance(architecture, str) else None,
        _count(gguf.get("total")),
        _count(gguf.get("context_length")),
        _count(entry.get("downloads")) or 0,
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _of_sibling(entry: Any) -> tuple[str, int, str | None] | None:
    """None where the hub left out the size."""
    return _entry(entry, "rfilename", "sha256")


def _of_tree(entry: Any) -> tuple[str, int, str | None] | None:
    """None for a directory."""
    return _entry(entry, "path", "oid") if isinstance(entry, dict) and entry.get("type") == "file" else None


def _entry(entry: Any, path_key: str, hash_key: str) -> tuple[str, int, str | None] | None:
    if not isinstance(entry, dict):
        return None
    path, size = entry.get(path_key), entry.get("size")
    lfs = entry.get("lfs")
    sha256 = None
    if isinstance(lfs, dict):
        size = lfs.get("size", size)
        sha256 = _hash_in(lfs.get(hash_key))
    if not isinstance(path, str) or not _is_text(path):
        return None
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        return None
    return path, size, sha256


def _is_text(path: str) -> bool:
    """JSON can spell halves of surrogate pairs, which no URL and no disk can hold."""
    return path.isascii() or not any("\ud800" <= character <= "\udfff" for character in path)


def _hash_in(value: Any) -> str | None:
    text = value.strip('"').removeprefix("sha256:").lower() if isinstance(value, str) else ""
    return text if SHA256.fullmatch(text) else None
