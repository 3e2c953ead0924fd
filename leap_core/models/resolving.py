"""From a reference to files on this machine. Nothing is fetched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..conversation.loading_options import LoraAdapter
from ..conversation.options import AUTO, SamplingDefaults
from ..errors import LeapModelLoadingError, LeapModelNotDownloadedError, LeapModelNotFoundError, LeapSerializationError
from ..inference.gguf.file_names import (
    AUDIO_DECODER,
    AUDIO_TOKENIZER,
    PROJECTOR,
    by_quantization,
    companions_of,
    model_files,
    name_of,
    preferred_quantization,
    role_of,
)
from ..system.addresses import masked
from ..system.dataclass import dataclass
from ..system.directories import Directories
from ..system.plugins import OPENERS, Plugin, plugins
from .aliases_and_endpoints import BUILTINS, Endpoint, expand, find_endpoint, read_aliases
from .catalogue import folded
from .hub_settings import endpoint_of
from .manifest import Manifest, adapter_key, is_manifest, locate, read_manifest
from .reference import (
    Builtin,
    CatalogueName,
    HubFile,
    InstalledName,
    LocalPath,
    Reference,
    Repository,
    Url,
    bundle_refused,
    parse_reference,
    spellings,
)
from .store import InstalledModel, Store, identity_of

if TYPE_CHECKING:
    from .catalogue import Catalogue, CatalogueEntry
    from .hub_settings import ForeignCaches
    from .other_programs import OtherModel, OtherPrograms


SCHEMES = ("http", "https", "file", "hf")
"""Schemes of references that no plugin may take."""


@dataclass(frozen=True)
class LocalModel:
    """A model that can be loaded: its GGUF, the companions that go with it, and what is recommended for it.

    ``sampling`` and ``threads`` come from the manifest, ``sampling`` beyond that from the catalogue. ``chat_template``
    replaces the file's own when it is not None. ``adapters`` are those that the manifest names. ``parser_name`` is
    auto, lfm or hermes; ``kind`` text, vision or audio.
    """

    model_id: str
    path: Path
    mm_proj_path: Path | None = None
    audio_decoder_path: Path | None = None
    audio_tokenizer_path: Path | None = None
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    chat_template: str | None = None
    parser_name: str = AUTO
    threads: int | None = None
    kind: str = "text"
    manifest_path: Path | None = None
    adapters: tuple[LoraAdapter, ...] = ()
    opener: Plugin | None = None
    """The plugin that opens the model, whose reference is ``model_id``. There is no file at ``path`` then."""
    owner: str | None = None
    """The program that the files belong to, where they are not leap's."""
    note: str | None = None
    """What is done otherwise than in that program."""
    instead: str | None = None
    """How to get a file that runs, where the program's does not."""


def resolve_local(
    reference: str,
    quantization: str | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> LocalModel:
    """``Registry.resolve`` for one reference. ``variables``: None means the process's own."""
    return Registry(variables, cwd).resolve(reference, quantization)


class Registry:
    """What ``-m X`` means here: a model on this machine, an endpoint, or a name whose files are missing.

    ``variables``: the environment that says where models lie, by default this process's. ``cwd``: where a relative
    path begins, by default the working directory.
    """

    def __init__(self, variables: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self.variables = os.environ if variables is None else variables
        self.directories = Directories.from_environment(self.variables)
        self.store = Store.of(self.directories)
        self.aliases = read_aliases(self.directories.config_file)
        self.cwd = cwd

    def find(self, reference: str, quantization: str | None = None) -> Endpoint | LocalModel:
        """The model that answers to a reference (see ``models/reference``). An endpoint is not asked.

        Raises LeapModelNotDownloadedError for a model that can be fetched, LeapModelNotFoundError for a name of
        nothing, LeapModelLoadingError for a damaged manifest or a kind of file that leap cannot run.
        """
        return find_endpoint(reference, self.directories) or self._local(reference, quantization)

    def resolve(self, reference: str, quantization: str | None = None) -> LocalModel:
        """``find`` for what needs files: raises LeapModelLoadingError for an endpoint, too."""
        found = self.find(reference, quantization)
        if isinstance(found, Endpoint):
            raise LeapModelLoadingError(
                f"{found.label} is an endpoint, and this needs a model on this machine",
                hint="leap models list names those that are here",
            )
        return found

    def get(self, reference: str) -> LocalModel | None:
        """``resolve``, or None for a model whose files are missing or a name of nothing."""
        try:
            return self.resolve(reference)
        except LeapModelNotFoundError:
            return None

    def can_answer(self, reference: str) -> bool:
        """False for a model that can be fetched. Raises what ``find`` raises beyond that."""
        try:
            self.find(reference)
        except LeapModelNotDownloadedError:
            return False
        return True

    def path_of(self, reference: str) -> Path | None:
        """The file or directory that a reference names; None when it means something else."""
        if find_endpoint(reference, self.directories) is not None or self.opener_of(reference) is not None:
            return None
        named = self.named(reference, None)
        return (self.cwd or Path.cwd()) / named.path if isinstance(named, LocalPath) else None

    @cached_property
    def catalogue(self) -> Catalogue:
        """Read when a name is in question. Raises LeapModelLoadingError."""
        from .catalogue import Catalogue

        try:
            return Catalogue.load(self.directories.config)
        except LeapSerializationError as error:
            raise LeapModelLoadingError(error.message) from None

    @cached_property
    def caches(self) -> ForeignCaches:
        """What other programs have fetched."""
        from .hub_settings import ForeignCaches

        return ForeignCaches.from_environment(self.variables)

    def named(self, reference: str, quantization: str | None) -> Reference:
        """What the reference says."""
        installed = (model.name for model in self.store.installed())
        return parse_reference(
            reference,
            self.catalogue,
            quantization=quantization,
            installed=installed,
            aliases=self.aliases,
            cwd=self.cwd,
            endpoint=endpoint_of(self.variables),
        )

    @cached_property
    def others(self) -> OtherPrograms:
        """The models of other programs, and whether the user wants to use them."""
        from .other_programs import OtherPrograms

        return OtherPrograms(self.variables, self.directories)

    def _elsewhere(self, reference: str, quantization: str | None, *, begins: bool) -> LocalModel | None:
        """An installed model whose file is called so, else one of another program. ``begins``: the name without its
        tag is enough. Raises LeapModelNotFoundError for a name of several."""
        text, quantization = expand(reference, quantization, self.aliases)
        names = dict.fromkeys((text, *spellings(text, self.cwd)))
        wanted = {folded(f"{name}:{quantization}" if quantization else name) for name in names}
        for model in self.store.installed():
            if model.path is not None and folded(model.path.stem) in wanted:
                return self._of_installed(model)
        found = (self.others.find(name, quantization, begins=begins) for name in names)
        other = next(filter(None, found), None)
        return None if other is None else self.of_other(other)

    def of_other(self, model: OtherModel) -> LocalModel:
        """A model of another program, to be loaded where it is."""
        known = self.catalogue.called(model.name)
        repo = model.repo or (known[0].repo if known else None)
        adapters = tuple((str(path), 1.0) for path in model.adapters)
        manifest = Manifest(model.path.name, adapters=adapters, record={"source": repo} if repo else {})
        files = dict(model.files) | {adapter_key(n): path for n, path in enumerate(model.adapters)}
        local = self._assemble(model.name, model.path, files, manifest, None)
        instead = f"leap download {known[0].repo}" if known else "leap models search finds others"
        return replace(local, owner=model.program, note=model.note, instead=instead)

    def _local(self, reference: str, quantization: str | None) -> LocalModel:
        text, _ = expand(reference, quantization, self.aliases)
        if text.lower() in BUILTINS:
            return _builtin(text.lower())
        opener = self.opener_of(text)
        if opener is not None:
            return LocalModel(text, Path(text), opener=opener)
        if "/" in text and not text.startswith(("/", ".", "~")) and self.others.is_named_in(text):
            found = self._elsewhere(reference, quantization, begins=True)
            if found is not None:
                return found
        named: Reference | None = None
        try:
            named = self.named(reference, quantization)
            return self._of_named(named, reference)
        except LeapModelNotFoundError:
            if isinstance(named, (Builtin, LocalPath, InstalledName)):
                raise
            elsewhere = self._elsewhere(reference, quantization, begins=named is None)
            if elsewhere is None:
                raise
            return elsewhere

    def _of_named(self, named: Reference, reference: str) -> LocalModel:
        if isinstance(named, Builtin):
            return _builtin(named.name)
        if isinstance(named, LocalPath):
            return self._at_path(named.path, reference)
        if isinstance(named, InstalledName):
            return self._of_installed(self.store.named(named.name))
        if isinstance(named, CatalogueName):
            entry = named.entry
            return self._of_repository(reference, entry.name, entry.repo, named.quantization, entry.default)
        if isinstance(named, Repository):
            catalogued = self.catalogue.exact(named.repo) or self.catalogue.of_repository(named.repo)
            model = catalogued.name if catalogued else repository_model(named.repo)
            default = catalogued.default if catalogued else None
            return self._of_repository(reference, model, named.repo, named.quantization, default)
        return self._of_origin(named, reference)

    def opener_of(self, text: str) -> Plugin | None:
        """The plugin whose name is the scheme of a reference, as in ``name://model``."""
        scheme, mark, _ = text.partition("://")
        if not mark or scheme.lower() in SCHEMES:
            return None
        return plugins(OPENERS, self.directories, reserved=SCHEMES).get(scheme)

    def _at_path(self, path: Path, reference: str) -> LocalModel:
        """The model that a file or directory is, with the files beside it."""
        if path.suffix.lower() == ".bundle":
            raise bundle_refused(str(path), self.catalogue)
        if os.path.isdir(path):
            return self._of_directory(path)
        if not os.path.exists(path):
            self._missing_path(path)
        if path.suffix.lower() == ".json":
            return self._of_manifest(path, path.stem)
        return self._of_gguf(path)

    def _of_installed(self, model: InstalledModel) -> LocalModel:
        """A model of the store. Raises LeapModelNotFoundError when its download was not finished."""
        if model.state != "ready" or model.path is None:
            again = model.name if model.origin or self.catalogue.exact(model.model) else "its reference"
            raise LeapModelNotDownloadedError(
                f"the model {model.name} is not complete ({model.state})", hint=f"leap download {again} completes it"
            )
        if model.manifest is None:
            return replace(self._of_gguf(model.path), model_id=model.name)
        return self._of_manifest(model.directory / f"{model.name}.json", model.name)

    def _of_directory(self, directory: Path) -> LocalModel:
        own = directory / f"{directory.name}.json"
        if is_manifest(own):
            return self._of_manifest(own, directory.name)
        names = [path.name for path in directory.iterdir() if path.is_file()]
        files = by_quantization(names)
        models = {name_of(file).model.lower() for file in model_files(names)}
        if len(models) > 1:
            listed = ", ".join(sorted(model_files(names))[:4])
            raise LeapModelNotFoundError(f"{directory} holds several models: {listed}", hint="name one of the files")
        best = preferred_quantization(files)
        if best is None:
            if {"config.json", "adapter_config.json"} & set(names) and any(".safetensors" in name for name in names):
                hint = f"`leap models convert {directory}` makes a model of it"
                raise LeapModelLoadingError(f"{directory} is a checkpoint, not a GGUF model", hint=hint)
            raise LeapModelLoadingError(f"{directory} holds no GGUF model")
        return self._of_gguf(directory / files[best])

    def _of_gguf(self, path: Path) -> LocalModel:
        for manifest_path in (path.with_suffix(".json"), path.parent / f"{path.parent.name}.json"):
            if is_manifest(manifest_path):
                manifest = _read(manifest_path)
                if Path(locate(manifest.model, str(manifest_path))).name == path.name:
                    return self._of_manifest(manifest_path, identity_of(path), model=path)
        names = [other.name for other in path.parent.iterdir() if other.is_file()] if path.parent.is_dir() else []
        companions = companions_of(path.name, names) if role_of(path.name) is None else {}
        files = {role: path.parent / name for role, name in companions.items()}
        return self._assemble(identity_of(path), path, files, Manifest(path.name), None)

    def _of_manifest(self, path: Path, model_id: str, model: Path | None = None) -> LocalModel:
        manifest = _read(path)
        files: dict[str, Path] = {}
        for role, value in manifest.files.items():
            where = locate(value, str(path))
            if where.startswith(("http://", "https://")):
                return self._of_remote_manifest(path)
            files[role] = Path(where)
            if not files[role].is_file():
                raise LeapModelNotFoundError(f"{path} names {value!r}, but there is no {where}")
        weights = model or files["model"]
        return self._assemble(model_id, weights, files, manifest, path)

    def _of_remote_manifest(self, path: Path) -> LocalModel:
        """A manifest on this disk whose files are URLs: the store has them, if they were downloaded."""
        for model in self.store.installed():
            if model.manifest is not None and model.manifest.original_url == path.as_uri():
                return self._of_installed(model)
        raise LeapModelNotDownloadedError(
            f"the files of {path} are on another machine", hint=f"leap download {path} gets them"
        )

    def _assemble(
        self, model_id: str, path: Path, files: Mapping[str, Path], manifest: Manifest, manifest_path: Path | None
    ) -> LocalModel:
        entry = self._entry_of(manifest, path)
        return LocalModel(
            model_id=model_id,
            path=path,
            mm_proj_path=files.get(PROJECTOR),
            audio_decoder_path=files.get(AUDIO_DECODER),
            audio_tokenizer_path=files.get(AUDIO_TOKENIZER),
            sampling=manifest.sampling.over(entry.sampling) if entry else manifest.sampling,
            chat_template=manifest.chat_template,
            parser_name=entry.parser if entry else AUTO,
            threads=manifest.threads,
            kind=manifest.kind if manifest_path else _kind_by_files(files),
            manifest_path=manifest_path,
            adapters=tuple(
                LoraAdapter(files[adapter_key(n)], scale)
                for n, (_, scale) in enumerate(manifest.adapters)
                if adapter_key(n) in files
            ),
        )

    def _entry_of(self, manifest: Manifest, path: Path) -> CatalogueEntry | None:
        source = manifest.record.get("source")
        entry = self.catalogue.of_repository(source) if isinstance(source, str) else None
        return entry or self.catalogue.exact(name_of(path.name).model.replace("_", "-"))

    def _of_repository(
        self, reference: str, model: str, repo: str, quantization: str | None, default: str | None
    ) -> LocalModel:
        installed = self.store.quantizations_of(model, repo)
        chosen = _choose(installed, quantization, default)
        if chosen is not None:
            return self._of_installed(installed[chosen])
        if (entry := self.catalogue.of_repository(repo)) is not None and not installed:
            entry.check_runs()
        cached = {path: file for path, file in self.caches.files_of(repo).items() if "/" not in path}
        by_name = by_quantization(cached)
        chosen = _choose(by_name, quantization, default)
        if chosen is not None:
            return self._of_cached(by_name[chosen], cached, repo)
        self._missing(reference, installed, quantization)

    def _of_cached(self, file: str, cached: Mapping[str, Path], repo: str) -> LocalModel:
        files = {role: cached[name] for role, name in companions_of(file, cached).items()}
        manifest = Manifest(file, record={"source": repo})
        local = self._assemble(identity_of(Path(file)), cached[file], files, manifest, None)
        return replace(local, owner=self.caches.owner_of(cached[file]), instead=f"leap download {repo}")

    def _of_origin(self, named: HubFile | Url, reference: str) -> LocalModel:
        for model in self.store.installed():
            record = model.manifest.record if model.manifest else {}
            origin = hub_url(named) if isinstance(named, HubFile) else named.url
            if record.get("origin") == origin:
                return self._of_installed(model)
        if isinstance(named, HubFile):
            cached = self.caches.files_of(named.repo)
            if named.path in cached and named.path.lower().endswith(".gguf"):
                return self._of_cached(named.path, cached, named.repo)
        self._missing(reference, {}, None)

    def _missing(self, reference: str, installed: Mapping[str, object], quantization: str | None) -> NoReturn:
        suffix = f":{quantization}" if quantization and not reference.endswith(quantization) else ""
        if "://" in reference:  # whose query may be a token
            reference = masked(reference).partition("?")[0]
        message = f"the model {reference}{suffix} is not on this machine"
        if installed:
            message += f" (it is there in {', '.join(sorted(installed))})"
        raise LeapModelNotDownloadedError(message, hint=f"leap download {reference}{suffix}")

    def _missing_path(self, path: Path) -> NoReturn:
        near: list[str] = []
        if path.parent.is_dir():
            from difflib import get_close_matches

            siblings = (other for other in path.parent.iterdir() if other.suffix.lower() in (".gguf", ".json"))
            names = [other.name for other in siblings if other.is_file()]
            near = get_close_matches(path.name, names, 3, 0.6)
        hint = f"there is {', '.join(near)}" if near else None
        if hint is None and path.parent == (self.cwd or Path.cwd()):
            entry = self.catalogue.exact(name_of(path.name).model)
            hint = f"leap download {entry.name} gets it" if entry else None
        raise LeapModelNotFoundError(f"there is no file {path}", hint=hint)


def _builtin(name: str) -> LocalModel:
    from .builtin import model_path

    path = model_path(name)
    if not path.exists():
        raise LeapModelNotFoundError(
            "this installation of leap has no built-in model", hint="leap download LFM2.5-350M gets a real one"
        )
    projector = path.with_name(f"mmproj-{name}.gguf")
    return LocalModel(
        name,
        path,
        mm_proj_path=projector if projector.exists() else None,
        sampling=SamplingDefaults(temperature=0.0),  # it copies and calculates, so the likeliest token is right
        kind={"builtin-vl": "vision", "builtin-audio": "audio"}.get(name, "text"),
    )


def repository_model(repo: str) -> str:
    """The model in a repository, by its name: ``someone/Some-Model-GGUF`` holds Some-Model."""
    name = repo.partition("/")[2]
    return name[: -len("-GGUF")] if name.upper().endswith("-GGUF") else name


def hub_url(file: HubFile) -> str:
    """How a hub's file is written in a model's record."""
    revision = f"@{file.revision}" if file.revision else ""
    return f"hf:{file.repo}{revision}/{file.path}"


def _choose(available: Mapping[str, object], quantization: str | None, default: str | None) -> str | None:
    if quantization is not None:
        return next((name for name in available if name.upper() == quantization.upper()), None)
    return preferred_quantization(available, default)


def _kind_by_files(files: Mapping[str, Path]) -> str:
    if AUDIO_DECODER in files or AUDIO_TOKENIZER in files:
        return "audio"
    return "vision" if PROJECTOR in files else "text"


def _read(path: Path) -> Manifest:
    try:
        return read_manifest(path)
    except LeapSerializationError as error:
        raise LeapModelLoadingError(
            error.message, hint=f"leap models manifest check {path} lists all of its problems"
        ) from None
    except OSError as error:
        raise LeapModelLoadingError(f"cannot read {path}: {error.strerror}") from None
