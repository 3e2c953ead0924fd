"""Fetch a model into the store: plan, look what is here already, transfer, verify, write the manifest."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...errors import (
    LeapModelDownloadError,
    LeapModelDownloadSha256MismatchError,
    LeapModelDownloadSizeMismatchError,
    LeapModelLoadingError,
    LeapModelNotDownloadedError,
    LeapModelNotFoundError,
    LeapSerializationError,
)
from ...inference.gguf.file_names import REPOSITORY
from ...inference.gguf.header import read_gguf_header
from ...inference.llama.architectures import architecture_in, check_architecture, check_decisions, decisions_in
from ...inference.trial.verdicts import problem_after_fetching
from ...system.dataclass import dataclass
from ...system.directories import Directories
from ...system.files import hash_file, place, sync_directory
from ...system.locks import locked
from ...system.memory import machine_memory
from ..digests import ModelDigests
from ..http import FIRST_DELAY, RETRIES, DownloadStopped, RetryPolicy, Web
from ..hub import Hub
from ..hub_settings import HubSettings
from ..manifest import read_manifest, write_manifest
from ..reference import (
    Builtin,
    CatalogueName,
    InstalledName,
    LocalPath,
    Reference,
    Repository,
    parse_reference,
    read_origin,
)
from ..resolving import LocalModel, Registry, resolve_local
from ..store import PART, WRITE_LOCK, Store, free_space, size_on_disk
from .plan import DownloadPlan, DownloadPlanner, PlannedFile, disk_error, opening_of, refuse_document
from .transfer import CONNECTIONS, PartFile, RemoteChanged, Transfer, discard_part

WINDOW_SECONDS = 5.0
PAUSE_SECONDS = 0.1
"""Events of progress are this far apart at least."""


@dataclass(frozen=True)
class Event:
    """The base of all events; ``to_json`` is what ``--format jsonl`` prints."""

    @property
    def kind(self) -> str:
        """planned, progress, notice, file_finished or finished."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()

    def to_json(self) -> dict[str, Any]:
        """The event's fields, paths as text, with its kind under "type"."""
        fields = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(self).items()}
        return {"type": self.kind, **fields}


@dataclass(frozen=True)
class Planned(Event):
    """What will be fetched: files with their sizes in bytes, and how many bytes of them are here already."""

    model: str
    files: tuple[dict[str, Any], ...]
    bytes: int
    total: int
    destination: Path


@dataclass(frozen=True)
class Progress(Event):
    """``bytes`` of ``total`` of all files are here; ``speed`` in bytes a second, ``eta`` in seconds or None."""

    file: str
    bytes: int
    total: int
    speed: float
    eta: float | None


@dataclass(frozen=True)
class Notice(Event):
    """Something worth a line: a retry, a start from the beginning, waiting for another process."""

    message: str


@dataclass(frozen=True)
class Unusable(Notice):
    """A notice that the model came whole, and cannot be run."""

    @property
    def kind(self) -> str:
        return "notice"


@dataclass(frozen=True)
class FileFinished(Event):
    """A file is in its place. ``source``: downloaded, present (it was there), or linked (from another cache)."""

    file: str
    path: Path
    sha256: str | None
    source: str


@dataclass(frozen=True)
class Finished(Event):
    """All files are there; ``path`` is the model's."""

    model: str
    path: Path


Listener = Callable[[Event], object]


class Speedometer:
    """Turns counts of bytes into Progress events, a few a second."""

    def __init__(self, listener: Listener, total: int) -> None:
        self._listener = listener
        self._total = total
        self._samples: deque[tuple[float, int]] = deque()
        self._last = 0.0

    def at(self, file: str, count: int) -> None:
        """``count`` bytes of all files are here, and ``file`` is being fetched."""
        now = time.monotonic()
        if not self._samples:
            self._samples.append((now, count))
        if now - self._last < PAUSE_SECONDS:
            return
        self._last = now
        self._samples.append((now, count))
        while len(self._samples) > 2 and now - self._samples[0][0] > WINDOW_SECONDS:
            self._samples.popleft()
        since, before = self._samples[0]
        speed = (count - before) / (now - since) if now > since else 0.0
        eta = (self._total - count) / speed if speed > 0 else None
        self._listener(Progress(file, count, self._total, speed, eta))


SPARE_BYTES = 16 * 1024**2
"""What must stay free on the disk after a download."""
WORTH_A_LOOK = 4_000_000
"""Bytes. A smaller file is fetched as quickly as looked at."""
ATTEMPTS = 3
"""How often a file is begun anew when the remote one changes or does not match its hash."""


@dataclass(frozen=True)
class DownloadOptions:
    """``force`` fetches files again that are here. ``connections``: most at once for one file. ``retries``: failures in
    a row that are borne, the first after ``retry_delay`` seconds and each after twice the delay of the one before.
    ``stall_seconds``: how long a connection may be silent (None: the environment's). ``file_name``: how the model's
    GGUF is called on this disk, by default as where it comes from."""

    force: bool = False
    connections: int = CONNECTIONS
    retries: int = RETRIES
    retry_delay: float = FIRST_DELAY
    stall_seconds: float | None = None
    file_name: str | None = None


def download_model(
    reference: str,
    quantization: str | None = None,
    *,
    revision: str | None = None,
    options: DownloadOptions | None = None,
    on_event: Listener | None = None,
    stop: threading.Event | None = None,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> LocalModel:
    """Make sure that the model is on this machine, and return its files. See ``grammar`` for references.

    ``on_event`` is called with progress; setting ``stop`` ends with DownloadStopped and keeps what has arrived. Raises
    LeapModelNotFoundError for a name that nothing answers to, and LeapModelDownloadError for everything that goes
    wrong on the way.
    """
    download = Download(options, on_event=on_event, stop=stop, variables=variables, cwd=cwd)
    return download.run(reference, quantization, revision)


class _StartOver(Exception):
    """The file that arrived, or was arriving, is not the planned one; ``final`` is the error if that continues."""

    def __init__(self, reason: str, final: LeapModelDownloadError) -> None:
        super().__init__(reason)
        self.final = final


class Download:
    """One download; the arguments are ``download_model``'s."""

    def __init__(
        self,
        options: DownloadOptions | None = None,
        *,
        on_event: Listener | None = None,
        stop: threading.Event | None = None,
        variables: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.options = options or DownloadOptions()
        self.variables = os.environ if variables is None else variables
        self.stop = stop or threading.Event()
        self.cwd = cwd
        self._on_event = on_event or (lambda _event: None)
        self._registry = Registry(self.variables, cwd)
        self.store = self._registry.store
        settings = HubSettings.from_environment(self.variables)
        if self.options.stall_seconds is not None:
            settings = settings.with_stall(self.options.stall_seconds)
        self.settings = settings

    def in_place(self, reference: str, quantization: str | None) -> LocalModel | None:
        """A model of another program that this name finds and that llama.cpp runs; a notice says whose it is."""
        with suppress(LeapModelLoadingError):
            model = self._registry.resolve(reference, quantization)
            if model.owner is None or self.options.force:
                return None
            problem = problem_after_fetching(model.path, variables=self.variables, stop=self.stop)
            if self.stop.is_set():
                return None  # the download ends at once, and says so
            if problem is not None:
                self._tell(Notice(f"{model.owner} has {model.model_id}, and it cannot be used: {problem}"))
                return None
            used = f"{model.owner} has it on this machine, and leap uses it in place; --replace downloads it"
            self._tell(Notice(used))
            self._tell(Finished(model.model_id, model.path))
            return model
        return None

    def plan(self, reference: str, quantization: str | None, revision: str | None) -> DownloadPlan | None:
        """Ask for what there is. None when the reference is a file on this machine."""
        named = self._parse(reference, quantization)
        if _is_local(named):
            return None
        if self.settings.offline:
            raise LeapModelDownloadError(f"HF_HUB_OFFLINE is set, so no hub can be asked for {reference}")
        with Web(self.settings, self.stop) as web:
            return self._planned(web, named, revision)

    def run(self, reference: str, quantization: str | None, revision: str | None) -> LocalModel:
        """See ``download_model``."""
        named = self._parse(reference, quantization)
        if isinstance(named, CatalogueName) and not self.options.force:
            named.entry.check_runs()
        if _is_local(named) or self.settings.offline:
            model = self._without_network(reference, quantization)
            if isinstance(named, LocalPath):
                read_gguf_header(model.path)  # raises for a file that is no model
            return model
        with Web(self.settings, self.stop) as web:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    plan = self._planned(web, named, revision)
                except DownloadStopped:
                    raise
                except LeapModelDownloadError as error:
                    if revision is not None or self.options.force:
                        raise
                    return self._installed_anyway(reference, quantization, error)
                try:
                    return self._fetch(web, plan)
                except _StartOver as again:
                    if attempt == ATTEMPTS:
                        raise again.final from None
                    self._tell(Notice(f"{again}; starting over"))
                except OSError as error:
                    raise disk_error(error, plan.directory) from None
        raise AssertionError("unreachable")

    def _parse(self, reference: str, quantization: str | None) -> Reference | None:
        """What is to be fetched; None for a model of another program, which is here. Raises LeapModelNotFoundError."""
        try:
            named = self._registry.named(reference, quantization)
        except LeapModelNotFoundError:
            self._registry.resolve(reference, quantization)
            return None
        return self._origin_of(named) if isinstance(named, InstalledName) else named

    def _origin_of(self, named: InstalledName) -> Reference:
        """Where an installed model came from, so that it can be completed, repaired or renewed by its own name."""
        model = self.store.named(named.name)
        origin, catalogue, endpoint = model.origin, self._registry.catalogue, self.settings.endpoint
        if origin is None:  # its download was not finished
            with suppress(LeapModelNotFoundError):
                return parse_reference(named.name, catalogue, endpoint=endpoint)
            return named
        if origin.startswith("file:"):
            return named
        repo, _, revision = origin.partition("@")
        if REPOSITORY.fullmatch(repo):
            return Repository(repo, model.quantization or None, revision or None)
        return parse_reference(origin, catalogue, endpoint=endpoint)

    def _planned(self, web: Web, named: Reference | None, revision: str | None) -> DownloadPlan:
        hub = Hub(web, self._retry_policy(self.stop).run)
        plan = DownloadPlanner(hub, self.store, self._registry.catalogue, machine_memory()).plan(named, revision)  # type: ignore[arg-type]
        return plan.with_model_called(self.options.file_name)

    def _without_network(self, reference: str, quantization: str | None) -> LocalModel:
        try:
            return self._registry.resolve(reference, quantization)
        except LeapModelNotDownloadedError as error:
            if self.settings.offline:
                message = f"{error.message}, and HF_HUB_OFFLINE is set"
                raise LeapModelDownloadError(message, hint="unset HF_HUB_OFFLINE to download it") from None
            raise

    def _installed_anyway(self, reference: str, quantization: str | None, error: LeapModelDownloadError) -> LocalModel:
        """When the hub cannot be asked: the copy that is here, if there is one."""
        with suppress(LeapModelLoadingError):
            model = self._registry.resolve(reference, quantization)
            self._tell(Notice(f"{error.message}; the copy on this machine is used as it is"))
            self._tell(Finished(model.model_id, model.path))
            return model
        raise error

    def _fetch(self, web: Web, plan: DownloadPlan) -> LocalModel:
        for notice in plan.notices:
            self._tell(Notice(notice))
        waited = False

        def while_waiting() -> None:
            nonlocal waited
            if not waited:
                self._tell(Notice(f"another process is downloading {plan.name}; waiting for it"))
            waited = True
            if self.stop.is_set():
                raise DownloadStopped

        with locked(plan.directory / WRITE_LOCK, while_waiting=while_waiting):
            hashes = self._fetch_files(web, plan, force=self.options.force and not waited)
            self._write_manifest(plan, hashes)
        problem = problem_after_fetching(plan.model_path, variables=self.variables, stop=self.stop)
        if problem is not None:
            self._tell(Unusable(problem))
        self._tell(Finished(plan.name, plan.model_path))
        return resolve_local(str(plan.directory), variables=self.variables)

    def _fetch_files(self, web: Web, plan: DownloadPlan, *, force: bool) -> dict[str, str]:
        kept_hashes = {} if force else self._known_hashes(plan)
        present = {file.name for file in plan.files if not force and self._is_present(plan, file, kept_hashes)}
        absent = [file for file in plan.files if file.name not in present]
        here = sum(file.remote.size for file in plan.files if file.name in present)
        partial = sum(size_on_disk(plan.directory / (file.name + PART)) for file in absent)
        listed = tuple({"file": file.name, "role": file.role, "size": file.remote.size} for file in plan.files)
        self._tell(Planned(plan.name, listed, here + partial, plan.total_bytes, plan.directory))
        linked = {file.name: sha256 for file in absent if (sha256 := self._from_cache(plan, file)) is not None}
        missing = [file for file in absent if file.name not in linked]
        here += sum(file.remote.size for file in absent if file.name in linked)
        fetched = self._fetch_missing(web, plan, missing, here)
        hashes: dict[str, str] = {}
        for file in plan.files:
            path = plan.directory / file.name
            new = fetched.get(file.name) or linked.get(file.name)
            source = "downloaded" if file.name in fetched else "linked" if file.name in linked else "present"
            hashes[file.name] = new or kept_hashes.get(file.name) or file.remote.sha256 or hash_file(path)
            self._tell(FileFinished(file.name, path, hashes[file.name], source))
        return hashes

    def _fetch_missing(self, web: Web, plan: DownloadPlan, missing: list[PlannedFile], here: int) -> dict[str, str]:
        """Transfer files; their hashes. They get their names together, when the last one has arrived: a set is never
        half old and half new."""
        self._check_space(plan, missing)
        speedometer = Speedometer(self._on_event, plan.total_bytes)
        hashes: dict[str, str] = {}
        with ExitStack() as closing:
            parts = []
            for file in missing:
                self._check_opening(web, file, plan.directory)
                part = closing.enter_context(PartFile(plan.directory / file.name, file.remote))
                hashes[file.name] = self._transfer(web, file, part, here, speedometer)
                parts.append(part)
                here += file.remote.size
            for part in parts:
                part.finish()
        return hashes

    def _check_opening(self, web: Web, file: PlannedFile, directory: Path) -> None:
        """Before gigabytes are fetched: does this llama.cpp know the model's architecture? Asked of the first bytes."""
        is_resumed = (directory / (file.name + PART)).exists()
        if file.role != "model" or file.remote.size < WORTH_A_LOOK or is_resumed or self.options.force:
            return
        opening = self._retry_policy(self.stop).run(lambda: opening_of(web, file))
        check_architecture(architecture_in(opening), f"{file.remote.name} at {file.remote.url}")
        check_decisions(decisions_in(opening), f"{file.remote.name} at {file.remote.url}")

    def _known_hashes(self, plan: DownloadPlan) -> dict[str, str]:
        """The hashes that an earlier download wrote down."""
        installed = self.store.at(plan.directory)
        if installed is None:
            return {}
        hashes = {file.name: installed.recorded(plan.directory / file.name).get("sha256") for file in plan.files}
        return {name: sha256 for name, sha256 in hashes.items() if isinstance(sha256, str)}

    def _is_present(self, plan: DownloadPlan, file: PlannedFile, hashes: Mapping[str, str]) -> bool:
        path = plan.directory / file.name
        if not path.is_file() or path.stat().st_size != file.remote.size:
            return False
        remote_sha256 = file.remote.sha256
        return remote_sha256 is None or (hashes.get(file.name) or hash_file(path)) == remote_sha256

    def _from_cache(self, plan: DownloadPlan, file: PlannedFile) -> str | None:
        """Take a file from another program's cache, if it has the right bytes; its hash, or None."""
        if file.repository_path is None or file.remote.sha256 is None or self.options.force:
            return None
        repo = "/".join(file.repository_path.split("/")[:2])
        cached = self.settings.caches.files_of(repo).get(file.remote.name)
        if cached is None or cached.stat().st_size != file.remote.size or hash_file(cached) != file.remote.sha256:
            return None
        how = place(cached.resolve(), plan.directory / file.name, allow_link=True)
        discard_part(plan.directory / file.name)
        self._tell(Notice(f"{file.name} was found in {cached.parent} and not downloaded ({how})"))
        return file.remote.sha256

    def _transfer(self, web: Web, file: PlannedFile, part: PartFile, before: int, speedometer: Speedometer) -> str:
        if part.started_over:
            self._tell(Notice(f"{part.started_over}; {file.name} starts over"))
        elif part.resumed and not part.is_complete:
            self._tell(Notice(f"{file.name} resumes at {part.resumed} of {part.size} bytes"))
        transfer = Transfer(
            web,
            part,
            stop=self.stop,
            connections=self.options.connections,
            retry_policy=self._retry_policy,
            on_progress=lambda count: speedometer.at(file.name, before + count),
        )
        try:
            sha256 = transfer.run()
        except RemoteChanged as changed:
            short = LeapModelDownloadSizeMismatchError(f"the server does not send the file it announced: {changed}")
            raise _StartOver(str(changed), short) from None
        if file.remote.sha256 is not None and sha256 != file.remote.sha256:
            part.discard()
            wrong = LeapModelDownloadSha256MismatchError(
                f"{file.name} arrived with SHA-256 {sha256} instead of {file.remote.sha256}",
                hint="the server or something on the way is broken",
            )
            raise _StartOver(f"{file.name} does not have the right SHA-256", wrong)
        if file.remote.sha256 is None:
            refuse_document(part, file)
        return sha256

    def _check_space(self, plan: DownloadPlan, missing: list[PlannedFile]) -> None:
        needed = sum(file.remote.size - size_on_disk(plan.directory / (file.name + PART)) for file in missing)
        free = free_space(plan.directory)
        if missing and needed + SPARE_BYTES > free:
            raise LeapModelDownloadError(
                f"{plan.name} needs {needed / 1e6:,.1f} MB more; {plan.directory.parent} has {free / 1e6:,.1f} MB free",
                hint="free disk space, or set LEAP_HOME to a directory on another disk",
            )

    def _write_manifest(self, plan: DownloadPlan, hashes: Mapping[str, str]) -> None:
        write_manifest(plan.manifest_on_disk(hashes), plan.directory / f"{plan.name}.json")
        sync_directory(plan.directory)

    def _retry_policy(self, stop: threading.Event) -> RetryPolicy:
        options = self.options
        return RetryPolicy(stop, retries=options.retries, first_delay=options.retry_delay, on_wait=self._waits)

    def _waits(self, reason: str, seconds: float) -> None:
        self._tell(Notice(f"{reason}; trying again in {seconds:.1f} s"))

    def _tell(self, event: Event) -> None:
        self._on_event(event)


def _is_local(named: Reference | None) -> bool:
    """Whether nothing has to be fetched: a file, a directory, or what the store has under its own name."""
    if isinstance(named, LocalPath):
        return not _names_urls(named.path)
    return named is None or isinstance(named, (Builtin, InstalledName))


def _names_urls(path: Path) -> bool:
    if path.suffix.lower() != ".json":
        return False
    with suppress(OSError, LeapSerializationError):
        return any(value.startswith(("http://", "https://")) for value in read_manifest(path).files.values())
    return False


def fetch_by_digest(
    digest: str,
    origin: str,
    variables: Mapping[str, str],
    *,
    stop: threading.Event | None = None,
    on_begin: Callable[[str], object] = lambda _name: None,
) -> None:
    """Install the model with this SHA-256. ``origin``: see ``ModelDigests.origins``; ``on_begin`` gets the model's
    name before it comes. Raises LeapModelDownloadError for what is not that model, or would replace another one, and
    ValueError for what is no origin."""
    reference, quantization, revision = read_origin(origin)
    directories = Directories.from_environment(variables)
    download = Download(stop=stop, variables=variables, cwd=directories.data)
    plan = download.plan(reference, quantization, revision)
    if plan is None:
        raise LeapModelDownloadError(f"{reference} is a file of another machine")
    _check(plan, digest, directories)
    on_begin(plan.name)
    model = download.run(reference, quantization, revision)
    if (found := ModelDigests(directories).of(model.path)) != digest:
        raise LeapModelDownloadError(f"{plan.name} has the SHA-256 {found} there")


def _check(plan: DownloadPlan, digest: str, directories: Directories) -> None:
    offered = plan.files[0].remote.sha256
    if offered not in (None, digest):
        raise LeapModelDownloadError(f"{plan.name} has the SHA-256 {offered} there")
    if any(model.name == plan.name and model.state == "ready" for model in Store.of(directories).installed()):
        raise LeapModelDownloadError(f"another file is here as {plan.name}")
