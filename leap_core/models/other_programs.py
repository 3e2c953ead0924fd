"""Models that other programs have downloaded here: ollama, LM Studio, llama.cpp, Hugging Face's library, Jan, GPT4All,
Docker Model Runner and RamaLama.

They are loaded where they are. Nothing is written, locked or removed there, and no weights are opened to list them.
Whatever is damaged, unfinished, unreadable or not of the expected form is left out.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import LeapModelNotFoundError
from ..inference.gguf.file_names import (
    PROJECTOR,
    companions_of,
    model_files,
    name_of,
    parts_of,
    preferred_quantization,
)
from ..system.configuration import uses_other_programs
from ..system.dataclass import dataclass
from ..system.directories import Directories
from .catalogue import folded, plain, same_size
from .hub_settings import ForeignCaches, snapshots_in

OLLAMA, LM_STUDIO, LLAMA_CPP, HUGGING_FACE = "ollama", "LM Studio", "llama.cpp", "Hugging Face"
JAN, GPT4ALL, DOCKER, RAMALAMA = "Jan", "GPT4All", "Docker Model Runner", "RamaLama"
LONGEST_TEXT = 4_000_000
"""Bytes of a manifest or an index; a longer one is none."""
LONGEST_NAME = 500
"""Characters of a model's name; one with a longer name is left out."""
MOST_ENTRIES = 20_000
"""Entries of a directory, and manifests of a program, that are looked at."""
OLLAMA_SERVICES = ("/usr/share/ollama/.ollama/models", "/var/lib/ollama/.ollama/models", "/var/lib/ollama")
"""Where ollama keeps its models as a service."""
GO_TEMPLATE = "ollama's template is in Go's language; the chat template in the model's file is used instead"
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_PARTS = re.compile(r"-of-(\d{5})\.gguf$", re.IGNORECASE)
_LAYER = "application/vnd.ollama.image."
_DOCKER_WEIGHTS = ("application/vnd.docker.ai.gguf.v3", "application/vnd.cncf.model.weight.v1.gguf")


@dataclass(frozen=True)
class OtherModel:
    """A model of another program. ``name``: what that program calls it. ``files``: its companions by role. ``repo``:
    the repository on the hub that it came from, None where that is not known."""

    program: str
    name: str
    path: Path
    files: Mapping[str, Path] = field(default_factory=dict)
    adapters: tuple[Path, ...] = ()
    repo: str | None = None
    note: str | None = None

    @property
    def size(self) -> int:
        """Bytes of its file; 0 where it is gone by now."""
        with suppress(OSError):
            return self.path.stat().st_size
        return 0

    @property
    def quantization(self) -> str:
        """What the names say about it, else empty."""
        tag = self.name.rpartition(":")[2]
        return name_of(self.path.name).quantization or name_of(f"x-{tag}").quantization

    @property
    def reference(self) -> str:
        """A reference that finds this model, whatever else is called so."""
        return f"{'docker' if self.program == DOCKER else self.program.lower().replace(' ', '-')}/{self.name}"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All that it is called, without a quantization."""
        names = [self.name, self.name.removeprefix("hf.co/")]
        if self.repo is not None:
            names += [self.repo, self.repo.partition("/")[2]]
        if self.path.suffix.lower() == ".gguf" and self.path.stem != "model":
            names += [self.path.stem, name_of(self.path.name).model]
        return tuple(dict.fromkeys(filter(None, names)))


class OtherPrograms:
    """The models of all programs, read when they are asked for; none where the user does not want that."""

    def __init__(self, variables: Mapping[str, str], directories: Directories) -> None:
        self._variables, self._directories = variables, directories

    @cached_property
    def models(self) -> list[OtherModel]:
        """Each file once a program and name, in the order in which programs are preferred."""
        if not uses_other_programs(self._directories.config_file, self._variables):
            return []
        found: dict[tuple[str, str], OtherModel] = {}
        for model in _all(self._variables):
            is_name = len(model.name) <= LONGEST_NAME and model.name.isprintable()
            if is_name and not model.path.is_relative_to(self._directories.models):
                found.setdefault((model.program, model.name), model)
        return list(found.values())

    @staticmethod
    def is_named_in(text: str) -> bool:
        """Whether a name begins with that of a program, as in ``ollama/NAME``."""
        return _program_in(text)[0] is not None

    def find(self, text: str, quantization: str | None = None, *, begins: bool = False) -> OtherModel | None:
        """The model of this name, in any case and punctuation. ``begins``: a name without its tag is enough. Of one
        repository the preferred quantization is taken, of several programs the first.

        Raises LeapModelNotFoundError for a name that several answer to."""
        program, text = _program_in(text.strip())
        models = [model for model in self.models if program in (None, model.program)]
        text = text[: -len(":latest")] if text.lower().endswith(":latest") else text
        wanted = f"{text}:{quantization}" if quantization else text
        for key in (str.lower, folded, plain):
            found = [
                model
                for model in models
                if any(key(name) == key(wanted) and same_size(name, wanted) for name in _spelled(model))
            ]
            if found:
                return _only(found, wanted)
        if begins and quantization is None:
            start = folded(text)
            tagged = [model for model in models if start and folded(model.name.partition(":")[0]) == start]
            return _only(tagged, wanted) if tagged else None
        return None


def _spelled(model: OtherModel) -> Iterator[str]:
    """The names of a model, each also with its quantization."""
    for name in model.names:
        yield name.removesuffix(":latest")
        if model.quantization:
            yield f"{name}:{model.quantization}"


def _only(models: list[OtherModel], text: str) -> OtherModel:
    first = [model for model in models if model.program == models[0].program]
    by_quantization = {model.quantization: model for model in reversed(first)}
    same = len(by_quantization) == len(first) and len({model.repo or model.name for model in first}) == 1
    paths = {os.path.realpath(model.path) for model in first}
    if len(paths) == 1:
        return first[0]
    if same and (best := preferred_quantization(by_quantization)) is not None:
        return by_quantization[best]
    listed = ", ".join(sorted(model.name for model in first)[:5])
    raise LeapModelNotFoundError(f"{text!r} could be {listed} ({first[0].program})", hint="write the whole name")


def _program_in(text: str) -> tuple[str | None, str]:
    """The program that a name begins with, as in ``ollama/NAME``, and the rest."""
    before, _, rest = text.partition("/")
    programs = {folded(name): name for name in (OLLAMA, LM_STUDIO, LLAMA_CPP, HUGGING_FACE, JAN, GPT4ALL, RAMALAMA)}
    program = programs.get(folded(before)) or (DOCKER if folded(before) == "docker" else None)
    return (program, rest.lstrip("/")) if program and rest else (None, text)


def _all(variables: Mapping[str, str]) -> Iterator[OtherModel]:
    home = variables.get("HOME") or variables.get("USERPROFILE")
    places = _Places(variables, None if not home else Path(home))
    for root in places.ollama():
        yield from islice(_ollama(root), MOST_ENTRIES)
    for root in places.lm_studio():
        yield from _lm_studio(root)
    caches = ForeignCaches.from_environment(variables)
    if home or variables.get("LLAMA_CACHE"):
        yield from _flat(caches.llama_cpp)
        yield from _hub(LLAMA_CPP, caches.llama_cpp)
    if home or variables.get("HF_HUB_CACHE") or variables.get("HF_HOME"):
        yield from _hub(HUGGING_FACE, caches.hugging_face)
    for root in places.jan():
        yield from _jan(root)
    for root in places.gpt4all():
        yield from _in_folder(GPT4ALL, root)
    for root in places.docker():
        yield from _docker(root)
    for root in places.ramalama():
        yield from _ramalama(root)


@dataclass(frozen=True)
class _Places:
    """Where programs keep their models. ``home`` is None where nobody's home directory is known."""

    variables: Mapping[str, str]
    home: Path | None

    def ollama(self) -> list[Path]:
        return self._first("OLLAMA_MODELS", ".ollama/models", *map(Path, OLLAMA_SERVICES))

    def lm_studio(self) -> list[Path]:
        homes = self._first("LMSTUDIO_HOME", *_pointed(self.home), ".cache/lm-studio", ".lmstudio")
        for home in [each for each in homes if each.is_dir()][:1]:
            folder = _json(home / "settings.json").get("downloadsFolder")
            return [Path(folder) if isinstance(folder, str) and os.path.isabs(folder) else home / "models"]
        return []

    def jan(self) -> list[Path]:
        data = [place / "Jan" for place in self._data()]
        named = (_json(place / "settings.json").get("data_folder") for place in data)
        folders = [Path(each) for each in named if isinstance(each, str) and os.path.isabs(each)]
        return self._first("JAN_DATA_FOLDER", *folders, *(place / "data" for place in data), "jan")

    def gpt4all(self) -> list[Path]:
        local = self.variables.get("LOCALAPPDATA")
        data = [Path(local)] if local else self._data()
        return self._first("", *(place / "nomic.ai" / "GPT4All" for place in data), ".cache/gpt4all")

    def docker(self) -> list[Path]:
        return self._first("MODELS_PATH", ".docker/models")

    def ramalama(self) -> list[Path]:
        return self._first("RAMALAMA_STORE", ".local/share/ramalama", Path("/var/lib/ramalama"))

    def _data(self) -> list[Path]:
        """Where programs with windows keep their data."""
        if sys.platform == "darwin":
            return self._first("", "Library/Application Support")
        if sys.platform == "win32":
            return self._first("APPDATA")
        return self._first("XDG_DATA_HOME", ".local/share", ".config")

    def _first(self, variable: str, *places: str | Path) -> list[Path]:
        """The place that a variable names, then the others; those that are relative lie in the home directory."""
        named = self.variables.get(variable)
        below = [Path(each) for each in places if isinstance(each, Path)] if self.home is None else places
        found = [Path(named)] if named else []
        return [*found, *((self.home or Path("/")) / each for each in below)]


def _pointed(home: Path | None) -> list[Path]:
    """The directory that LM Studio's pointer file names."""
    text = "" if home is None else _text(home / ".lmstudio-home-pointer").strip()
    return [Path(text)] if os.path.isabs(text) else []


def _ollama(root: Path) -> Iterator[OtherModel]:
    manifests = root / "manifests"
    for path in _files_below(manifests, depth=4):
        host, *others = path.relative_to(manifests).parts
        if len(others) != 3:
            continue
        files: dict[str, list[Path]] = {}
        for layer in _list(_json(path).get("layers")):
            kind, blob = _text_of(layer.get("mediaType")).removeprefix(_LAYER), _blob(root / "blobs", "-", layer)
            if blob is not None:
                files.setdefault(kind, []).append(blob)
        if not files.get("model") or any(kind.startswith("tensor") for kind in files):
            continue  # a model of the cloud, of another form, or an unfinished one
        namespace, model, tag = others
        plain_host = "" if host == "registry.ollama.ai" else f"{host}/"
        owner = "" if namespace == "library" and not plain_host else f"{namespace}/"
        yield OtherModel(
            OLLAMA,
            f"{plain_host}{owner}{model}:{tag}",
            files["model"][0],
            {PROJECTOR: files["projector"][0]} if "projector" in files else {},
            tuple(files.get("adapter", ())),
            f"{namespace}/{model}" if host in ("hf.co", "huggingface.co") else None,
            GO_TEMPLATE if "template" in files else None,
        )


def _blob(blobs: Path, mark: str, layer: Mapping[str, Any]) -> Path | None:
    """The file of a layer; None for one that is not whole. ``mark`` comes before the digits of its digest."""
    match = _DIGEST.fullmatch(_text_of(layer.get("digest")))
    if match is None:
        return None
    path = blobs / f"sha256{mark}{match[1]}"
    with suppress(OSError):
        size = layer.get("size")
        if path.is_file() and os.access(path, os.R_OK) and size in (None, path.stat().st_size):
            return path
    return None


def _lm_studio(root: Path) -> Iterator[OtherModel]:
    yield from _hub(LM_STUDIO, root)  # some people let it use the hub's cache
    for publisher in _directories(root):
        for model in _directories(publisher):
            if not publisher.name.startswith("models--"):
                yield from _in_folder(LM_STUDIO, model, f"{publisher.name}/{model.name}")


def _hub(program: str, root: Path) -> Iterator[OtherModel]:
    for directory in _directories(root):
        mark, owner, name = (*directory.name.split("--", 2), "", "")[:3]
        if mark == "models" and owner and name:
            for snapshot in snapshots_in(directory)[:1]:
                yield from _in_folder(program, snapshot, f"{owner}/{name}")
                for folder in _directories(snapshot):
                    yield from _in_folder(program, folder, f"{owner}/{name}")


def _flat(root: Path) -> Iterator[OtherModel]:
    """llama.cpp's former cache: ``OWNER_REPO_FILE``, where the names of manifests tell OWNER from REPO."""
    names = [path.name for path in _paths(root)]
    manifests = [name.split("=") for name in names if name.startswith("manifest=") and name.count("=") == 3]
    repos = {f"{owner}_{repo}_": f"{owner}/{repo}" for _, owner, repo, _ in manifests}
    for start, repo in repos.items():
        yield from _in_folder(LLAMA_CPP, root, repo, start)
    for model in _in_folder(LLAMA_CPP, root):
        if not model.path.name.startswith(tuple(repos)):
            yield model


def _jan(root: Path) -> Iterator[OtherModel]:
    models = root / "llamacpp" / "models"
    for path in _files_below(models, depth=4):
        if path.name == "model.yml":
            about = dict(re.findall(r"^(model_path|mmproj_path):(.*)$", _text(path), re.MULTILINE))
            paths = {key: root / value.strip(" \t\"'") for key, value in about.items()}
            weights, projector = paths.get("model_path"), paths.get("mmproj_path")
            if weights is not None and _is_readable(weights):
                files = {PROJECTOR: projector} if projector is not None and _is_readable(projector) else {}
                yield OtherModel(JAN, path.parent.relative_to(models).as_posix(), weights, files)
    if root.name == "jan":  # of old versions
        for directory in _directories(root / "models"):
            yield from _in_folder(JAN, directory)


def _docker(root: Path) -> Iterator[OtherModel]:
    for entry in islice(_list(_json(root / "models.json").get("models")), MOST_ENTRIES):
        match = _DIGEST.fullmatch(_text_of(entry.get("id")))
        listed = entry.get("tags")
        tags = [tag for tag in listed if isinstance(tag, str)] if isinstance(listed, list) else []
        if match is None or not tags:
            continue
        name = re.sub(r"^(index\.)?docker\.io/", "", tags[0])
        layers = list(_list(_json(root / "manifests" / "sha256" / match[1]).get("layers")))
        blobs = {_text_of(layer.get("mediaType")): _blob(root / "blobs", "/", layer) for layer in layers}
        weights = [layer for layer in layers if layer.get("mediaType") in _DOCKER_WEIGHTS]
        model = next((path for kind, path in blobs.items() if kind in _DOCKER_WEIGHTS), None)
        projector = blobs.get("application/vnd.docker.ai.mmproj")
        if len(weights) != 1 or model is None:  # of several parts: their names are right in its bundle only
            bundle = root / "bundles" / "sha256" / match[1] / "model"
            model = next((each.path for each in _in_folder(DOCKER, bundle)), None)
        if model is not None:
            yield OtherModel(DOCKER, name, model, {PROJECTOR: projector} if projector is not None else {})


def _ramalama(root: Path) -> Iterator[OtherModel]:
    store = root / "store"
    for path in _files_below(store, depth=7):
        if path.parent.name != "refs" or path.suffix != ".json" or path.parent.parent == store:
            continue
        about, base = _json(path), path.parent.parent
        snapshot = base / "snapshots" / _text_of(about.get("hash")).replace(":", "-")
        named = _list(about.get("files"))
        files = {_text_of(each.get("type")): snapshot / _text_of(each.get("name")) for each in named}
        if "gguf" in files and _is_readable(files["gguf"]):
            transport, *others = base.relative_to(store).parts
            name = "/".join(others).removeprefix("library/")
            tag = "" if path.stem == "latest" else f":{path.stem}"
            repo = "/".join(others) if transport in ("huggingface", "hf") and len(others) == 2 else None
            projector = {PROJECTOR: files["mmproj"]} if "mmproj" in files and _is_readable(files["mmproj"]) else {}
            yield OtherModel(RAMALAMA, f"{name}{tag}", files["gguf"], projector, repo=repo)


def _in_folder(program: str, folder: Path, repo: str | None = None, start: str = "") -> Iterator[OtherModel]:
    """The models in a folder of GGUF files. ``start``: what each name begins with, and is left out."""
    names = {path.name[len(start) :]: path for path in _paths(folder) if path.name.startswith(start)}
    for file in model_files(names):
        parts = _PARTS.search(file)
        if not _is_readable(names[file]) or (parts is not None and len(parts_of(file, names)) < int(parts[1])):
            continue
        files = {role: names[name] for role, name in companions_of(file, names).items() if _is_readable(names[name])}
        quantization = name_of(file).quantization
        name = PurePosixPath(file).stem if repo is None else f"{repo}:{quantization}" if quantization else repo
        yield OtherModel(program, name, names[file], files, repo=repo)


def _paths(directory: Path) -> list[Path]:
    """What is in a directory, by name; nothing where it cannot be read."""
    with suppress(OSError, ValueError), os.scandir(directory) as entries:
        return sorted(Path(entry.path) for entry in islice(entries, MOST_ENTRIES) if not entry.name.startswith("."))
    return []


def _directories(directory: Path) -> list[Path]:
    return [path for path in _paths(directory) if _is_directory(path)]


def _files_below(directory: Path, depth: int, seen: frozenset[tuple[int, int]] = frozenset()) -> Iterator[Path]:
    """The files at most so many levels below; a link that leads back is not followed."""
    for path in _paths(directory):
        with suppress(OSError):
            status = path.stat()
            if path.is_file():
                yield path
            elif depth > 1 and _is_directory(path) and (status.st_dev, status.st_ino) not in seen:
                yield from _files_below(path, depth - 1, seen | {(status.st_dev, status.st_ino)})


def _is_directory(path: Path) -> bool:
    with suppress(OSError):
        return path.is_dir()
    return False


def _is_readable(path: Path) -> bool:
    """Whether it is a file, also at the end of a link, that this user may read."""
    with suppress(OSError, ValueError):
        return path.is_file() and os.access(path, os.R_OK)
    return False


def _text(path: Path) -> str:
    """A short text file; empty for any other thing."""
    with suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= LONGEST_TEXT:
            return path.read_text("utf-8", "replace")
    return ""


def _json(path: Path) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        value = json.loads(_text(path) or "{}")
        return value if isinstance(value, dict) else {}
    return {}


def _list(value: object) -> Iterable[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else ""
