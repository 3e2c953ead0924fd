"""The LEAP SDK's model downloader in Python: LeapModelDownloader and what it downloads.

    model = HuggingFaceDownloadableModel("LiquidAI", "LFM2-350M-GGUF", "LFM2-350M-Q4_0.gguf")
    path = LeapModelDownloader().download_model(model)
    runner = Leap.load(path)

Files go where ``leap download`` puts them, and are resumed and verified alike.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import quote, urlencode, urlsplit

from ...errors import LeapError, LeapModelDownloadError, LeapModelLoadingError, LeapModelNotFoundError, LeapOptionsError
from ...inference.gguf.file_names import file_name_of_url, name_of, safe_file_name, safe_repository_path
from ...system.dataclass import dataclass
from ...system.directories import Directories
from ...system.locks import is_locked
from ..catalogue import Catalogue
from ..http import DownloadStopped, RetryPolicy, Web
from ..hub import Hub
from ..hub_settings import HubSettings, endpoint_of
from ..manifest import Manifest, read_manifest
from ..reference import HubFile, Url, parse_reference
from ..resolving import hub_url, repository_model, resolve_local
from ..store import STATE, WRITE_LOCK, InstalledModel, Store, free_space
from .downloading import Download, DownloadOptions, Event, Progress
from .plan import DownloadPlanner, hub_directory, own_file_name, url_directory


class DownloadableModel(Protocol):
    """Anything with these can be downloaded. ``uri``: http(s) URL of a GGUF file or of a manifest."""

    @property
    def uri(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def local_filename(self) -> str: ...


@dataclass(frozen=True)
class HuggingFaceDownloadableModel:
    """One GGUF file, or manifest, of a repository on the hub; companions come along."""

    owner_name: str
    repo_name: str
    filename: str

    @property
    def uri(self) -> str:
        base = endpoint_of(os.environ)
        return f"{base}/{self.owner_name}/{self.repo_name}/resolve/main/{quote(self.filename)}"

    @property
    def name(self) -> str:
        return name_of(self.filename).model or self.filename

    @property
    def local_filename(self) -> str:
        return safe_repository_path(self.filename, "the model").rpartition("/")[2]


@dataclass(frozen=True)
class LeapDownloadableModel:
    """A model of the LEAP library, found by ``resolve``."""

    model_slug: str
    quantization_slug: str
    uri: str

    @property
    def name(self) -> str:
        return self.model_slug

    @property
    def local_filename(self) -> str:
        return file_name_of_url(self.uri)

    @staticmethod
    def resolve(model_slug: str, quantization_slug: str) -> LeapDownloadableModel | None:
        """Ask the LEAP registry for the model's manifest, and where it has none, Liquid's repositories on the hub.

        None when no hub has it. Raises LeapModelDownloadError when none could be asked.
        """
        settings = HubSettings.from_environment(os.environ)
        if settings.offline:
            raise LeapModelDownloadError("HF_HUB_OFFLINE is set, so no hub can be asked")
        with Web(settings) as web:
            uri = _ask_registry(web, model_slug, quantization_slug)
            uri = uri or _ask_hub(web, model_slug, quantization_slug)
        return None if uri is None else LeapDownloadableModel(model_slug, quantization_slug, uri)

    @staticmethod
    async def resolve_async(model_slug: str, quantization_slug: str) -> LeapDownloadableModel | None:
        """``resolve`` without blocking the event loop."""
        return await asyncio.to_thread(LeapDownloadableModel.resolve, model_slug, quantization_slug)


@dataclass(frozen=True)
class ModelDownloadStatus:
    """NotOnLocal, DownloadInProgress or Downloaded."""


@dataclass(frozen=True)
class NotOnLocal(ModelDownloadStatus):
    """The model is not here, or not all of it, and no process is fetching it."""


@dataclass(frozen=True)
class DownloadInProgress(ModelDownloadStatus):
    """It is being fetched; ``progress`` from 0 to 1. ``bytes`` of ``total`` have arrived, as far as that is known: a
    download of another process reports its progress alone."""

    progress: float
    bytes: int | None = None
    total: int | None = None


@dataclass(frozen=True)
class Downloaded(ModelDownloadStatus):
    """All of its files are here and were verified when they arrived."""


@dataclass
class _Running:
    thread: threading.Thread | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    progress: float = 0.0
    bytes: int | None = None
    total: int | None = None
    error: LeapError | None = None
    ended: bool = False


class LeapModelDownloader:
    """Downloads models into leap's store, several at a time. Safe to use from several threads."""

    def __init__(self, options: DownloadOptions | None = None) -> None:
        self._options = options or DownloadOptions()
        self._running: dict[str, _Running] = {}
        self._guard = threading.Lock()

    def request_download_model(self, model: DownloadableModel, force_download: bool = False) -> None:
        """Begin to download in the background, unless that is continuing already; see ``query_status``."""
        _check_model(model)
        with self._guard:
            current = self._running.get(model.uri)
            if current is not None and not current.ended:
                return
            running = _Running()
            running.thread = threading.Thread(
                target=self._run_quietly, args=(model, running, force_download), name="leap-downloader", daemon=True
            )
            self._running[model.uri] = running
            running.thread.start()

    def download_model(
        self, model: DownloadableModel, force_download: bool = False, progress: Callable[[Event], object] | None = None
    ) -> Path:
        """Download and wait; the path of the model's file. Raises LeapModelDownloadError.

        ``force_download`` fetches files again that are here; they are replaced when the new ones are complete.
        """
        _check_model(model)
        with self._guard:
            current = self._running.get(model.uri)
            running = _Running() if current is None or current.ended else _Running(current.thread, current.stop)
            self._running[model.uri] = running
        return self._run(model, running, force_download, progress)

    async def download_model_async(self, model: DownloadableModel, force_download: bool = False) -> Path:
        """``download_model`` without blocking the event loop. Cancelling the task stops the download; what has arrived
        is kept."""
        try:
            return await asyncio.to_thread(self.download_model, model, force_download)
        except asyncio.CancelledError:
            self.request_stop_download(model)
            raise

    def request_stop_download(self, model: DownloadableModel) -> None:
        """Stop this downloader's downloads of the model, if there are any. What has arrived is kept."""
        with self._guard:
            running = self._running.get(model.uri)
        if running is not None:
            running.stop.set()

    def query_status(self, model: DownloadableModel) -> ModelDownloadStatus:
        """How far the model's download is; downloads by other processes are seen too."""
        with self._guard:
            running = self._running.get(model.uri)
        if running is not None and not running.ended:
            return DownloadInProgress(running.progress, running.bytes, running.total)
        if self._installed(model) is not None:
            return Downloaded()
        directory = self._expected(model).parent
        if is_locked(directory / WRITE_LOCK, shared=True):
            return DownloadInProgress(_progress_on_disk(directory))
        return NotOnLocal()

    def get_error(self, model: DownloadableModel) -> LeapError | None:
        """Why the last requested download of the model ended, None when it did not fail."""
        with self._guard:
            running = self._running.get(model.uri)
        return running.error if running is not None else None

    def get_model_file(self, model: DownloadableModel) -> Path:
        """Where the model's file is, or will be."""
        installed = self._installed(model)
        path = installed.path if installed is not None else None
        return path or self._expected(model)

    def get_model_file_size(self, model: DownloadableModel) -> int | None:
        """Bytes of the model's file, None while it is not here."""
        with suppress(FileNotFoundError):
            return self.get_model_file(model).stat().st_size
        return None

    def get_cached_manifest(self, model: DownloadableModel) -> Manifest | None:
        """The manifest that was written when the model was installed, None while it is not here."""
        installed = self._installed(model)
        path = None if installed is None else installed.directory / f"{installed.directory.name}.json"
        return read_manifest(path) if path is not None and path.is_file() else None

    def get_available_disk_space(self) -> int | None:
        """Bytes that are free where models are kept, None where the system does not say."""
        with suppress(OSError):
            return free_space(self._store.root)
        return None

    def remove_model(self, model: DownloadableModel) -> None:
        """Remove the model and what has arrived of it. Raises LeapModelInUseError while a process uses it."""
        self.request_stop_download(model)
        with self._guard:
            running = self._running.pop(model.uri, None)
        if running is not None and running.thread is not None:
            running.thread.join(30)
        installed = self._installed(model) or self._store.at(self._expected(model).parent)
        if installed is not None:
            self._store.remove(installed)

    @property
    def _store(self) -> Store:
        return Store.of(Directories.from_environment())

    def _run_quietly(self, model: DownloadableModel, running: _Running, force: bool) -> None:
        with suppress(LeapError):
            self._run(model, running, force, None)

    def _run(
        self, model: DownloadableModel, running: _Running, force: bool, listener: Callable[[Event], object] | None
    ) -> Path:
        def on_event(event: Event) -> None:
            if isinstance(event, Progress) and event.total:
                running.bytes, running.total = event.bytes, event.total
                running.progress = event.bytes / event.total
            if listener is not None:
                listener(event)

        options = replace(self._options, force=force, file_name=model.local_filename)
        try:
            return Download(options, on_event=on_event, stop=running.stop).run(_reference(model), None, None).path
        except LeapError as error:
            running.error = None if isinstance(error, DownloadStopped) else error
            raise
        finally:
            running.ended = True

    def _installed(self, model: DownloadableModel) -> InstalledModel | None:
        with suppress(LeapModelLoadingError):
            directory = resolve_local(_reference(model)).path.parent
            return self._store.at(directory) if directory.parent == self._store.root else None
        return None

    def _expected(self, model: DownloadableModel) -> Path:
        """Where the download puts the model's file. A manifest may name another one: then it is there when it has
        arrived. Raises LeapModelDownloadError for a ``local_filename`` that is no file's name."""
        directories = Directories.from_environment()
        catalogue = Catalogue.load(directories.config)
        named = parse_reference(_reference(model), catalogue, endpoint=endpoint_of(os.environ))
        if not isinstance(named, (HubFile, Url)):
            return directories.models / safe_file_name(model.local_filename, model.name)
        path = PurePosixPath(named.path if isinstance(named, HubFile) else urlsplit(named.url).path)
        is_manifest = path.suffix.lower() == ".json"
        file = f"{model.name}-{path.stem}.gguf" if is_manifest else path.name
        if isinstance(named, HubFile):
            entry = catalogue.of_repository(named.repo)
            if is_manifest:
                file = f"{entry.name if entry else repository_model(named.repo)}-{path.stem}.gguf"
            directory = hub_directory(entry, named.repo, file, named.revision)
        else:
            directory = url_directory(file)
        return directories.models / directory / (file if is_manifest else own_file_name(model.local_filename, file))


def _check_model(model: object) -> None:
    """Raises LeapOptionsError for what cannot be downloaded."""
    if not all(isinstance(getattr(model, name, None), str) for name in ("uri", "name", "local_filename")):
        raise LeapOptionsError(
            "model", f"{model!r} is no DownloadableModel; `leap_core.models.download.download_model` takes a name"
        )


def _reference(model: DownloadableModel) -> str:
    if isinstance(model, HuggingFaceDownloadableModel):
        return hub_url(HubFile(f"{model.owner_name}/{model.repo_name}", model.filename))
    return model.uri


def _progress_on_disk(directory: Path) -> float:
    """How much of the file that is arriving is there, by its state's blocks."""
    for state in directory.glob(f"*{STATE}"):
        with suppress(OSError):
            blocks = state.read_bytes().partition(b"\n")[2]
            return blocks.count(b"#") / len(blocks) if blocks else 1.0
    return 0.0


def _ask_registry(web: Web, model: str, quantization: str) -> str | None:
    from ...system import __version__

    query = urlencode({"model_name": model, "quantization_method": quantization, "platform": "Android"})
    url = f"{web.settings.registry}/api/edge-sdk/model-manifest?{query}"
    retry_policy = RetryPolicy(threading.Event(), retries=1)
    with suppress(LeapModelDownloadError):  # the hub is asked then
        answer, _ = retry_policy.run(lambda: web.json(url, "manifest", {"X-Client-Version": __version__}))
        manifest_url = answer.get("manifest_url") if isinstance(answer, Mapping) else None
        return (
            manifest_url if isinstance(manifest_url, str) and manifest_url.startswith(("https://", "http://")) else None
        )
    return None


def _ask_hub(web: Web, model: str, quantization: str) -> str | None:
    directories = Directories.from_environment()
    catalogue = Catalogue.load(directories.config)
    entry = catalogue.exact(model)
    repo = entry.repo if entry else f"LiquidAI/{model}-GGUF"
    normal = name_of(quantization).quantization or quantization
    hub = Hub(web, RetryPolicy(threading.Event()).run)
    try:
        named = parse_reference(f"{repo}:{normal}", catalogue, endpoint=hub.endpoint)
        plan = DownloadPlanner(hub, Store.of(directories), catalogue).plan(named)  # type: ignore[arg-type]
    except (LeapModelNotFoundError, LeapModelLoadingError):
        return None
    except LeapModelDownloadError as error:
        if error.status == 404:
            return None
        raise
    if plan.manifest.original_url is not None:
        path = plan.manifest.original_url.partition(f"{repo}/resolve/")[2].partition("/")[2]
    else:
        path = plan.files[0].remote.name
    return f"{hub.endpoint}/{repo}/resolve/main/{path}"
