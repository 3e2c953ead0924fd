"""The models that requests may have loaded: all that are installed, or those that are named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ....errors import LeapError, LeapModelNotFoundError
from ....models.installed.model_store import InstalledModel, Store
from ....models.references.alias_file import BUILTINS
from ....models.references.resolving import LocalModel, resolve_local
from ....storage.directories import Directories
from .load_request import LoadRequest

NAME = re.compile(r"[\w][\w.+-]*(:[\w.+-]+)?(/[\w][\w.+-]*(:[\w.+-]+)?)?")
FILE_ENDINGS = (".gguf", ".json", ".bundle")
WILDCARDS = re.compile(r"[*?\[]")
EVERY = "*"


def check_name(name: str) -> None:
    """Raises LeapModelNotFoundError for what could be a path: a request cannot reach files."""
    if not NAME.fullmatch(name) or name.lower().endswith(FILE_ENDINGS):
        raise LeapModelNotFoundError(f"there is no model {name[:80]!r}", hint="name an installed model")


@dataclass(frozen=True)
class Offer:
    """``patterns``: references to models, or names with ``*`` and ``?`` in them. ``default`` answers requests that name
    no model. ``loading``: see ``LoadRequest``."""

    patterns: Sequence[str] = (EVERY,)
    cwd: Path | None = None
    default: str | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raises LeapModelNotFoundError for a name or a pattern that means no model."""
        for pattern in self.patterns:
            if not WILDCARDS.search(pattern):
                resolve_local(pattern, cwd=self.cwd)
            elif pattern != EVERY and not any(self._matching(pattern)):
                raise LeapModelNotFoundError(
                    f"no installed model is called {pattern!r}", hint="leap models list shows what there is"
                )

    def models(self) -> dict[str, LocalModel]:
        """All models that can be had now, by the references that load them. It reads the disk."""
        found: dict[Path, tuple[str, LocalModel]] = {}
        for reference in [name for pattern in self.patterns for name in self._references(pattern)]:
            with suppress(LeapError):  # removed or damaged meanwhile: who asks for it by name hears why
                local = resolve_local(reference, cwd=self.cwd)
                found.setdefault(local.path, (reference, local))
        return dict(found.values())

    def load_request(self, name: str | None) -> LoadRequest:
        """How to load the model that a request names. Raises LeapModelNotFoundError for one that is not offered."""
        if name is None:
            if self.default is None:
                raise LeapModelNotFoundError("no model was named", hint="GET /v1/models lists those that there are")
            return self._request(self.default)
        for pattern in self.patterns:
            if pattern.lower() == name.lower() and not WILDCARDS.search(pattern):
                return self._request(pattern)
        names = [name, *(name[: plus.start()] for plus in re.finditer(r"\+", name))]
        for part in names:  # behind a plus comes an adapter
            with suppress(LeapModelNotFoundError):
                check_name(part)
                path = resolve_local(part, cwd=self.cwd).path
                for reference, local in self.models().items():
                    if local.path == path:
                        return self._request(reference)
        check_name(name)
        resolve_local(name, cwd=self.cwd)  # whose error may say more
        raise LeapModelNotFoundError(f"the model {name!r} is not offered", hint="GET /v1/models lists those that are")

    def _request(self, reference: str) -> LoadRequest:
        return LoadRequest(reference, cwd=self.cwd, **self.loading)

    def _references(self, pattern: str) -> Iterator[str]:
        if not WILDCARDS.search(pattern):
            yield pattern
            return
        yield from (model.name for model in self._matching(pattern))
        yield from (name for name in BUILTINS if fnmatchcase(name, pattern.lower()))

    def _matching(self, pattern: str) -> Iterator[InstalledModel]:
        for model in Store.of(Directories.from_environment()).installed():
            names = (model.name.lower(), model.model.lower())
            if model.state == "ready" and any(fnmatchcase(name, pattern.lower()) for name in names):
                yield model
