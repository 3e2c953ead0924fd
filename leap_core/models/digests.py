"""The SHA-256 of model files: what names a model on every machine. Computed once a file, and kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from leap_core.errors import LeapError
from leap_core.models.aliases_and_endpoints import BUILTINS
from leap_core.models.reference import origin_of
from leap_core.models.resolving import resolve_local
from leap_core.models.store import InstalledModel, Store
from leap_core.system.directories import Directories
from leap_core.system.files import hash_file, replace_text

from ..system.dataclass import dataclass


@dataclass
class ModelDigests:
    """The digests known on this machine, kept in a file of the data directory by path, size, time and inode."""

    directories: Directories
    _known: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with suppress(OSError, ValueError):
            self._known = dict(json.loads(self._file.read_text(encoding="utf-8")))

    @property
    def _file(self) -> Path:
        return self.directories.data / "model-digests.json"

    def of(self, path: Path) -> str:
        """The SHA-256 of a model file. Raises OSError when it cannot be read."""
        path = path.resolve()
        status = path.stat()
        identity = [status.st_size, status.st_mtime_ns, status.st_ino]
        entry = self._known.get(str(path))
        if entry is not None and entry[0] == identity:
            return str(entry[1])
        sha256 = hash_file(path)
        self._known[str(path)] = [identity, sha256]
        with suppress(LeapError):  # computed again next time
            replace_text(self._file, json.dumps(self._known))
        return sha256

    def of_reference(self, reference: str, variables: Mapping[str, str], cwd: Path) -> str:
        """The SHA-256 of the model that a reference leads to. Raises LeapModelNotFoundError, OSError."""
        return self.of(resolve_local(reference, variables=variables, cwd=cwd).path)

    def installed(self) -> dict[str, str]:
        """The models that any job on this machine can name: SHA-256 -> reference."""
        models = {}
        for model in Store.of(self.directories).installed():
            with suppress(LeapError, OSError):
                if model.state == "ready" and model.path is not None:
                    models[_recorded(model) or self.of(model.path)] = model.name
        for name in BUILTINS:
            with suppress(LeapError, OSError):
                models[self.of(resolve_local(name).path)] = name
        return models

    def origins(self) -> dict[str, str]:
        """Where the installed models may be fetched again: SHA-256 -> origin."""
        origins = {}
        for model in Store.of(self.directories).installed():
            with suppress(LeapError, OSError):
                if model.state == "ready" and model.path is not None and (origin := origin_of(model)) is not None:
                    origins[_recorded(model) or self.of(model.path)] = origin
        return origins


def _recorded(model: InstalledModel) -> str | None:
    """The digest that was written down when the model was downloaded."""
    assert model.path is not None
    digest = model.recorded(model.path).get("sha256")
    return digest if isinstance(digest, str) else None
