"""Engines: builds of llama.cpp by name. ``default`` is the one that llama-cpp-python compiled; others are folders below
leap's data directory, each with its libraries and an ``engine.json`` that says what they are.

``LEAP_ENGINE``, else ``engine`` in config.toml, names the one that a process runs, or the folder that it lies in.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import LeapError, LeapModelLoadingError, LeapNotFoundError
from ...system.configuration import read_engine
from ...system.dataclass import dataclass
from ...system.directories import Directories
from ...system.files import hash_file, replace_text

DEFAULT = "default"
RECORD = "engine.json"
CHECKED = "engines.json"
"""In the cache: which files of engines had the right hashes."""
PACKAGE = "llama_cpp"
VERSION = re.compile(r"""(?m)^__version__ = ["'](.+?)["']""")
LIBRARY = re.compile(r"(?:lib)?(ggml-base|ggml|llama|mtmd)(?:[.-]v?[\d.]+)?\.(?:so(?:\.[\d.]+)?|dylib|dll)")
ENDING = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
INSTALL_HINT = "leap engine install gets one, `leap engine add FILE` takes an archive of llama.cpp's releases"


@dataclass(frozen=True)
class Engine:
    """A build of llama.cpp. ``id`` names its content: what was saved or judged with it belongs to it. ``record``: what
    its engine.json says, empty for the default."""

    name: str
    folder: Path
    version: str
    id: str
    record: Mapping[str, Any] = field(default_factory=dict)

    def libraries(self) -> dict[str, Path]:
        """The libraries in its folder. Raises LeapModelLoadingError where there is no llama.cpp among them."""
        return libraries_in(self.folder)

    def knows(self, name: str) -> bool:
        """Whether the build has this name of an architecture or kind of model."""
        return name.encode() + b"\0" in self._bytes_of("llama")

    def _bytes_of(self, library: str) -> bytes:
        try:
            return self.libraries()[library].read_bytes()
        except (OSError, KeyError, LeapModelLoadingError):
            return b""

    @cached_property
    def has_projectors(self) -> bool:
        """Whether it brings what images and audio need."""
        return b"mtmd_tokenize_from_parts\0" in self._bytes_of("mtmd")


def libraries_in(folder: Path) -> dict[str, Path]:
    """llama.cpp's libraries in a folder by their names: llama, ggml, ggml-base, mtmd. Raises LeapModelLoadingError."""
    try:
        names = sorted(os.listdir(folder), key=lambda name: (not name.endswith(ENDING), len(name)))
    except OSError as error:
        raise LeapModelLoadingError(f"cannot read {folder}: {error.strerror}") from None
    found: dict[str, Path] = {}
    for name in names:
        if match := LIBRARY.fullmatch(name):
            found.setdefault(match[1], folder / name)
    if "llama" not in found:
        raise LeapModelLoadingError(f"{folder} holds no libllama{ENDING}", hint=INSTALL_HINT)
    return found


def require_unchanged(engine: Engine) -> None:
    """Make sure that the libraries of an added engine are those that were tried: by their hashes, which are computed
    again when a file's size, inode or times are others. Raises LeapModelLoadingError."""
    expected = engine.record.get("files")
    if not isinstance(expected, dict):
        return
    file, kept = Directories.from_environment().cache / CHECKED, dict[str, Any]()
    with suppress(OSError, ValueError, TypeError):
        kept = dict(json.loads(file.read_bytes()))
    try:
        paths = [path for path in sorted(engine.folder.iterdir()) if path.name in expected or ENDING in path.name]
        status = [(path.name, path.stat()) for path in paths]
        version = [[name, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns] for name, s in status]
        version.append([json.dumps(expected, sort_keys=True)])
        if kept.get(str(engine.folder)) == version:
            return
        hashes = {path.name: hash_file(path) for path in paths if path.is_file()}
    except OSError as error:
        raise LeapModelLoadingError(f"cannot read {error.filename}: {error.strerror}") from None
    for name in sorted(expected.keys() | hashes.keys()):
        if expected.get(name) != hashes.get(name):
            how = "is gone" if name not in hashes else "is new" if name not in expected else "has changed"
            raise LeapModelLoadingError(
                f"{name} of the engine {engine.name} {how} since it was added",
                hint=f"leap engine remove {engine.name}, and add or install it again",
            )
    with suppress(OSError, LeapError):
        replace_text(file, json.dumps(kept | {str(engine.folder): version}))


def default_engine() -> Engine | None:
    """The engine of llama-cpp-python, which is not imported; None where it is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    try:  # the file says it in a tenth of a millisecond; importlib.metadata takes thirty to be imported
        version = VERSION.search(Path(spec.origin).read_text("utf-8"))
    except OSError:
        version = None
    text = f"llama-cpp-python {'unknown' if version is None else version[1]}"
    folder = os.environ.get("LLAMA_CPP_LIB_PATH") or package / "lib"
    return Engine(DEFAULT, Path(folder), text, text)


def engines_directory(directories: Directories) -> Path:
    """Where engines are kept."""
    return directories.data / "engines"


def installed_engines(directories: Directories) -> list[Engine]:
    """The engines that were added or installed, by name."""
    root = engines_directory(directories)
    names = sorted(path.parent.name for path in root.glob(f"[!.]*/{RECORD}"))
    return [engine for name in names if (engine := _read(root / name)) is not None]


def find_engine(name: str, variables: Mapping[str, str] | None = None) -> Engine:
    """The engine of this name, or in this folder (a text with a separator). Raises LeapNotFoundError for one that is
    not here, LeapModelLoadingError for a folder without libraries."""
    if os.sep in name:
        return _in_folder(Path(name).expanduser().absolute())
    if name == DEFAULT and (engine := default_engine()) is not None:
        return engine
    directories = Directories.from_environment(variables)
    folder = engines_directory(directories) / name
    engine = _read(folder) if re.fullmatch(r"[\w][\w.+-]*", name) else None
    if engine is None:
        others = [each.name for each in installed_engines(directories)]
        if name != DEFAULT and default_engine() is not None:
            others.insert(0, DEFAULT)
        hint = f"there are {', '.join(others)}" if others else INSTALL_HINT
        raise LeapNotFoundError(f"there is no engine {name!r}", hint=hint)
    return engine


def chosen_engine(variables: Mapping[str, str] | None = None) -> Engine:
    """The engine that the environment or config.toml names; the default one, or the only one, where they name none.
    Raises LeapError."""
    variables = os.environ if variables is None else variables
    directories = Directories.from_environment(variables)
    name = variables.get("LEAP_ENGINE") or read_engine(directories.config_file)
    if name:
        return find_engine(name, variables)
    engine = default_engine()
    if engine is not None:
        return engine
    others = installed_engines(directories)
    if len(others) == 1:
        return others[0]
    hint = f"leap engine use {others[0].name}" if others else INSTALL_HINT
    raise LeapModelLoadingError("there is no engine to run models with", hint=hint)


def _in_folder(folder: Path) -> Engine:
    known = _read(folder)
    if known is not None:
        return known
    digest = hashlib.sha256()
    for _, library in sorted(libraries_in(folder).items()):
        digest.update(library.read_bytes())
    identity = f"llama.cpp {digest.hexdigest()[:16]}"
    return Engine(str(folder), folder, identity, identity, {"origin": str(folder)})


def _read(folder: Path) -> Engine | None:
    try:
        record = json.loads((folder / RECORD).read_bytes())
        return Engine(folder.name, folder, str(record["version"]), str(record["id"]), record)
    except (OSError, ValueError, KeyError, TypeError):
        return None
