"""What has to be fetched for a reference: which files, from where, and into which directory under which names.

Asks the hub; writes nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from ...errors import LeapModelDownloadError, LeapModelNotFoundError, LeapSerializationError
from ...inference.gguf.file_names import (
    AUDIO_DECODER,
    AUDIO_TOKENIZER,
    PROJECTOR,
    by_quantization,
    companions_of,
    directory_name,
    file_name_of_url,
    folder_of,
    name_of,
    parts_of,
    preferred_quantization,
    safe_file_name,
    safe_repository_path,
)
from ...system.dataclass import dataclass
from ...system.memory import MOST_OF_MEMORY
from ..catalogue import Catalogue, CatalogueEntry
from ..http import Web
from ..hub import Hub, RemoteFile, RepositoryListing
from ..manifest import INFERENCE_TYPES, Manifest, locate, parse_manifest, read_manifest
from ..reference import CatalogueName, HubFile, LocalPath, Repository, Url
from ..resolving import hub_url, repository_model
from ..store import Store
from .transfer import PartFile, discard_part


@dataclass(frozen=True)
class PlannedFile:
    """``role``: model, a companion's role, or part (of a split model). ``name``: what it is called on this disk."""

    role: str
    name: str
    remote: RemoteFile
    repository_path: str | None = None


@dataclass(frozen=True)
class DownloadPlan:
    """A model's files and the directory that they go to. ``source`` is the repository or URL it comes from,
    ``revision`` the commit, ``pinned`` the revision that was asked for by name."""

    model: str
    quantization: str
    directory: Path
    files: tuple[PlannedFile, ...]
    manifest: Manifest
    source: str
    origin: str
    revision: str | None = None
    pinned: str | None = None
    notices: tuple[str, ...] = field(default=())
    license: str | None = None

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def total_bytes(self) -> int:
        return sum(file.remote.size for file in self.files)

    @property
    def model_path(self) -> Path:
        return self.directory / self.files[0].name

    def with_model_called(self, wish: str | None) -> DownloadPlan:
        """The plan with another name for its model's file; the parts of a split one keep theirs, which llama.cpp
        looks for."""
        first, *others = self.files
        name = own_file_name(wish, first.name)
        if name == first.name or any(file.role == "part" for file in others):
            return self
        files = _distinct([replace(first, name=name), *others], self.name, self.source)
        return replace(self, files=files)

    def manifest_on_disk(self, hashes: Mapping[str, str]) -> Manifest:
        """The manifest to write beside the files: bare names, and what is known of each file."""
        files = {
            file.name: {"size": file.remote.size, "sha256": hashes.get(file.name), "url": file.remote.url}
            for file in self.files
        }
        record: dict[str, Any] = {
            "model": self.model,
            "quantization": self.quantization,
            "source": self.source,
            "origin": self.origin,
            "revision": self.revision,
            "pinned": self.pinned,
            "files": files,
        }
        named = {file.role: file.name for file in self.files if file.role != "part"}
        written = self.manifest.with_files(named)
        return replace(written, path_on_disk=str(self.model_path), record=record)


class DownloadPlanner:
    """Makes plans for references that are not files on this machine, which has so many bytes of memory; None where
    that is not known."""

    def __init__(self, hub: Hub, store: Store, catalogue: Catalogue, memory: int | None = None) -> None:
        self.hub = hub
        self.store = store
        self.catalogue = catalogue
        self._room = None if memory is None else memory * MOST_OF_MEMORY

    def plan(
        self, named: CatalogueName | Repository | HubFile | Url | LocalPath, revision: str | None = None
    ) -> DownloadPlan:
        """Raises LeapModelNotFoundError when the repository has no such model, LeapModelDownloadError when it cannot be
        asked, or names files that cannot be."""
        if isinstance(named, CatalogueName):
            return self._of_repository(named.entry.repo, named.quantization, revision, named.entry)
        if isinstance(named, Repository):
            entry = self.catalogue.exact(named.repo) or self.catalogue.of_repository(named.repo)
            return self._of_repository(
                entry.repo if entry else named.repo, named.quantization, revision or named.revision, entry
            )
        if isinstance(named, HubFile):
            return self._of_hub_file(replace(named, revision=revision or named.revision))
        if isinstance(named, Url):
            return self._of_url(named.url)
        return self._of_local_manifest(named.path)

    def _of_repository(
        self, repo: str, quantization: str | None, revision: str | None, entry: CatalogueEntry | None
    ) -> DownloadPlan:
        listing = self.hub.listing(repo, revision)
        models = by_quantization(path for path in listing.files if "/" not in path) or by_quantization(listing.files)
        manifests = _manifests(listing)
        available = [*models, *(name for name in manifests if name not in models)]
        chosen = _choose(available, quantization, entry.default if entry else None)
        if chosen is None:
            missing = f"quantization {quantization}" if quantization and available else "GGUF model"
            raise LeapModelNotFoundError(f"{repo} has no {missing}", hint=_what_else(repo, available))
        origin = repo + (f"@{revision}" if revision else "")
        notices: tuple[str, ...] = ()
        if quantization is None:
            chosen, notices = self._fitting(listing, models, chosen)
        if chosen in manifests:
            try:
                return self._of_hub_manifest(listing, manifests[chosen], chosen, entry, revision, origin)
            except LeapSerializationError as error:
                if chosen not in models:
                    raise LeapModelDownloadError(f"{repo}: {error.message}") from None
                notices = (f"the manifest that {repo} brings along is not used: {error.message}",)
        plan = self._of_model_file(listing, models[chosen], entry, revision, origin)
        return replace(plan, notices=notices)

    def _fitting(
        self, listing: RepositoryListing, models: Mapping[str, str], usual: str
    ) -> tuple[str, tuple[str, ...]]:
        """The usual quantization, or the largest that fits into memory where that does not; what to say about it."""
        parts = {name: parts_of(path, listing.files) for name, path in models.items()}
        sizes = {name: sum(listing.files[part].size for part in parts[name]) for name in models}
        if self._room is None or sizes.get(usual, 0) <= self._room:
            return usual, ()
        fitting = {name: size for name, size in sizes.items() if size <= self._room}
        if not fitting:
            return usual, (f"{listing.repo} has no quantization that fits into this machine's memory",)
        best = max(fitting, key=lambda name: fitting[name])
        return best, (f"{usual} does not fit into this machine's memory, so {best} is taken; :{usual} asks for it",)

    def _of_hub_file(self, file: HubFile) -> DownloadPlan:
        listing = self.hub.listing(file.repo, file.revision)
        if file.path not in listing.files:
            near = [path for path in listing.files if path.lower() == file.path.lower()] or sorted(
                path for path in listing.files if path.lower().endswith((".gguf", ".json"))
            )
            there = f"there is {', '.join(near[:5])}" if near else None
            raise LeapModelDownloadError(f"{file.repo} has no file {file.path}", hint=there)
        entry = self.catalogue.of_repository(file.repo)
        if file.path.lower().endswith(".gguf"):
            return self._of_model_file(listing, file.path, entry, file.revision, hub_url(file))
        try:
            return self._of_hub_manifest(listing, file.path, "", entry, file.revision, hub_url(file))
        except LeapSerializationError as error:
            raise LeapModelDownloadError(error.message) from None

    def _of_model_file(
        self, listing: RepositoryListing, path: str, entry: CatalogueEntry | None, revision: str | None, origin: str
    ) -> DownloadPlan:
        folder = folder_of(path)
        beside = [other for other in listing.files if folder_of(other) == folder]
        paths = {"model": path, **companions_of(path, beside)}
        files = [_from_listing(listing, role, each) for role, each in paths.items()]
        files += [_from_listing(listing, "part", part) for part in parts_of(path, beside)[1:]]
        kind = _kind(paths, entry)
        manifest = Manifest(path, inference_type=INFERENCE_TYPES[kind])
        return self._assemble(listing, files, manifest, entry, revision, origin)

    def _of_hub_manifest(
        self,
        listing: RepositoryListing,
        path: str,
        quantization: str,
        entry: CatalogueEntry | None,
        revision: str | None,
        origin: str,
    ) -> DownloadPlan:
        url = self.hub.file_url(listing.repo, listing.commit, path)
        manifest = self._fetch_manifest(url)
        start = self.hub.file_url(listing.repo, "", "")
        files = []
        for role, value in manifest.files.items():
            where = locate(value, url)
            own = _path_in_repository(where, start)
            if own is not None and own in listing.files:
                files.append(_from_listing(listing, role, own))
                beside = list(listing.files)
                files += [_from_listing(listing, "part", p) for p in parts_of(own, beside)[1:] if role == "model"]
            else:
                files.append(self._from_url(role, where, url))
        return self._assemble(
            listing, files, replace(manifest, original_url=url), entry, revision, origin, quantization
        )

    def _assemble(
        self,
        listing: RepositoryListing,
        files: list[PlannedFile],
        manifest: Manifest,
        entry: CatalogueEntry | None,
        revision: str | None,
        origin: str,
        quantization: str = "",
    ) -> DownloadPlan:
        named, file_quantization = name_of(files[0].name)
        quantization = file_quantization or quantization
        directory = hub_directory(entry, listing.repo, files[0].name, revision, quantization)
        return DownloadPlan(
            model=entry.name if entry else (named or repository_model(listing.repo)),
            quantization=quantization,
            directory=self.store.root / directory,
            files=_distinct(files, directory, listing.repo),
            manifest=manifest,
            source=listing.repo,
            origin=origin,
            revision=listing.commit,
            pinned=revision,
            license=(entry.license if entry else None) or listing.license,
        )

    def _of_url(self, url: str) -> DownloadPlan:
        if not urlsplit(url).path.lower().endswith(".json"):
            file = PlannedFile("model", file_name_of_url(url), self.hub.probe(url, file_name_of_url(url)))
            return self._of_urls(url, [file], Manifest(url))
        try:
            manifest = replace(self._fetch_manifest(url), original_url=url)
        except LeapSerializationError as error:
            raise LeapModelDownloadError(error.message) from None
        files = [self._from_url(role, locate(value, url), url) for role, value in manifest.files.items()]
        return self._of_urls(url, files, manifest)

    def _of_local_manifest(self, path: Path) -> DownloadPlan:
        try:
            manifest = read_manifest(path)
        except LeapSerializationError as error:
            raise LeapModelDownloadError(error.message) from None
        files = [self._from_url(role, locate(value, str(path)), str(path)) for role, value in manifest.files.items()]
        return self._of_urls(path.as_uri(), files, replace(manifest, original_url=path.as_uri()))

    def _of_urls(self, url: str, files: list[PlannedFile], manifest: Manifest) -> DownloadPlan:
        model, quantization = name_of(files[0].name)
        directory = url_directory(files[0].name)
        there = self.store.find(directory)
        if there is not None and there.source != url and (there.source is not None or there.state == "ready"):
            directory = directory_name(f"{model}-{sha256(url.encode()).hexdigest()[:8]}", quantization)
        return DownloadPlan(
            model=model,
            quantization=quantization,
            directory=self.store.root / directory,
            files=_distinct(files, directory, url),
            manifest=manifest,
            source=url,
            origin=url,
        )

    def _from_url(self, role: str, url: str, source: str) -> PlannedFile:
        if not url.startswith(("http://", "https://")):
            raise LeapModelDownloadError(f"{source} names {url!r}, which is not a http(s) URL")
        name = file_name_of_url(url)
        repo_and_path = _hub_parts(url, self.hub.endpoint)
        if repo_and_path is not None:
            repo, revision, path = repo_and_path
            listing = self.hub.listing(repo, revision)
            if path in listing.files:
                return _from_listing(listing, role, path)
        return PlannedFile(role, name, self.hub.probe(url, name))

    def _fetch_manifest(self, url: str) -> Manifest:
        body, _ = self.hub.retrying(lambda: self.hub.web.document(url, f"manifest {PurePosixPath(url).name}"))
        return parse_manifest(body, url)


def _what_else(repo: str, available: list[str]) -> str | None:
    if any(available):
        return f"it has {', '.join(sorted(filter(None, available)))}"
    return None if repo.upper().endswith("-GGUF") else f"GGUF files often have a repository of their own: {repo}-GGUF"


def hub_directory(
    entry: CatalogueEntry | None, repo: str, file: str, revision: str | None = None, quantization: str = ""
) -> str:
    """The directory of a repository's model file: the catalogue's name for it, else the owner's and the file's."""
    named, file_quantization = name_of(file)
    model = entry.name if entry else f"{repo.partition('/')[0]}--{named or repository_model(repo)}"
    return directory_name(f"{model}-{revision[:12]}" if revision else model, file_quantization or quantization)


def url_directory(file: str) -> str:
    """The directory of a model file that comes from a URL outside the hub."""
    model, quantization = name_of(file)
    return directory_name(model or PurePosixPath(file).stem, quantization)


def own_file_name(wish: str | None, file: str) -> str:
    """The name on this disk of a model's ``file``: the requested name, where it names a GGUF file. Raises
    LeapModelDownloadError for a name that leaves the directory."""
    if wish is None:
        return file
    name = safe_file_name(wish, file)
    return name if name.lower().endswith(".gguf") else file


def _manifests(listing: RepositoryListing) -> dict[str, str]:
    """The manifests that a repository brings along, ``leap/<quantization>.json``, by quantization."""
    return {
        PurePosixPath(path).stem.upper(): path
        for path in listing.files
        if path.lower().startswith("leap/") and path.lower().endswith(".json") and path.count("/") == 1
    }


def _choose(available: Iterable[str], quantization: str | None, default: str | None) -> str | None:
    if quantization is None:
        return preferred_quantization(available, default)
    return next((name for name in available if name.upper() == quantization.upper()), None)


def _from_listing(listing: RepositoryListing, role: str, path: str) -> PlannedFile:
    safe_repository_path(path, listing.repo)
    if listing.files[path].size == 0:
        raise LeapModelDownloadError(f"{path} in {listing.repo} has no bytes", hint="its upload may have failed")
    name = safe_file_name(PurePosixPath(path).name, listing.repo)
    return PlannedFile(role, name, listing.files[path], f"{listing.repo}/{path}")


def _distinct(files: list[PlannedFile], directory: str, source: str) -> tuple[PlannedFile, ...]:
    """The files without repetitions. Two different ones of one name would overwrite each other: an error."""
    by_name: dict[str, PlannedFile] = {}
    for file in files:
        other = by_name.setdefault(file.name.lower(), file)
        if other.remote.url != file.remote.url or file.name.lower() == f"{directory}.json".lower():
            raise LeapModelDownloadError(f"{source} has two files that would both be called {file.name}")
    return tuple(files) if len(by_name) == len(files) else tuple(by_name.values())


def _kind(paths: Mapping[str, str], entry: CatalogueEntry | None) -> str:
    if AUDIO_DECODER in paths or AUDIO_TOKENIZER in paths:
        return "audio"
    if PROJECTOR not in paths:
        return "text"
    return entry.kind if entry is not None and entry.kind == "audio" else "vision"


def _path_in_repository(url: str, start: str) -> str | None:
    """The path of a file of the repository whose resolve URLs begin with ``start``, at any revision."""
    prefix = start.rstrip("/") + "/"
    if not url.startswith(prefix):
        return None
    _, _, path = url[len(prefix) :].partition("/")
    return unquote(urlsplit(path).path) or None


def _hub_parts(url: str, endpoint: str) -> tuple[str, str, str] | None:
    """Repository, revision and path of a resolve URL of the hub."""
    if not url.startswith(endpoint + "/"):
        return None
    parts = unquote(urlsplit(url[len(endpoint) + 1 :]).path).split("/")
    if len(parts) < 5 or parts[2] != "resolve":
        return None
    return "/".join(parts[:2]), parts[3], "/".join(parts[4:])


OPENING_BYTES = 8192
DOCUMENTS = (b"<", b"{", b"version https://git-lfs")


def opening_of(web: Web, file: PlannedFile) -> bytes:
    """The first bytes of a file, where the server gives them."""
    with web.get(file.remote.url, {"Range": f"bytes=0-{OPENING_BYTES - 1}"}) as answer:
        if answer.status not in (200, 206):
            return b""  # the transfer will say why
        opening = b""
        for piece in answer.response.iter_raw():
            opening += piece
            if len(opening) >= OPENING_BYTES:
                break
        return opening[:OPENING_BYTES]


def refuse_document(part: PartFile, file: PlannedFile) -> None:
    """Where no hash is known: do not take a login page or an error message for a model."""
    begin = part.read(0)[:64].lstrip() if part.block_count else b""
    if begin.startswith(DOCUMENTS) and file.name.lower().endswith(".gguf"):
        discard_part(part.target)
        raise LeapModelDownloadError(f"{file.remote.url} gives a document, not a GGUF file: {begin[:24]!r}")


def disk_error(error: OSError, directory: Path) -> LeapModelDownloadError:
    """The error to raise for one of the disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LeapModelDownloadError(
            f"the disk of {directory} is full",
            hint="free disk space; the download so far is kept and the same command resumes",
        )
    reason = error.strerror or str(error)
    return LeapModelDownloadError(f"cannot write to {error.filename or directory}: {reason}")
