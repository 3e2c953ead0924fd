"""Which LoRA adapters compute an answer, as options name them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LeapOptionsError


@dataclass(frozen=True)
class LoraAdapter:
    """A GGUF file with an adapter, and how strongly it works: ``scale`` 1.0 as trained, 0.0 not at all."""

    path: Path
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)) or not os.fspath(self.path):
            raise LeapOptionsError("adapters", f"{self.path!r} is not a path")
        object.__setattr__(self, "path", Path(self.path))
        scale = self.scale
        if not isinstance(scale, (int, float)) or isinstance(scale, bool) or not math.isfinite(scale):
            raise LeapOptionsError("adapters", f"{scale!r} is not a finite number")

    def to_json(self) -> dict[str, Any]:
        """With an absolute path, so that it means the same in another process."""
        return {"path": os.path.abspath(self.path), "scale": self.scale}

    @staticmethod
    def parse(text: str) -> LoraAdapter:
        """Read ``PATH`` or ``PATH=SCALE``. Raises LeapOptionsError."""
        path, equals, scale = text.rpartition("=")
        if equals:
            try:
                return LoraAdapter(Path(path), float(scale))
            except ValueError:
                pass  # the name of a file may have the sign in it
        return LoraAdapter(Path(text))


def adapters_of(value: object) -> tuple[LoraAdapter, ...]:
    """Adapters from themselves, paths, or objects with ``path`` and ``scale``. Raises LeapOptionsError."""
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise LeapOptionsError("adapters", f"{value!r} is not a list of adapters")
    return tuple(map(_adapter_of, value))


def refuse_adapters(adapters: object, model: str = "MODEL") -> None:
    """See to it that the client of a server names no file of it as an adapter. Raises LeapOptionsError."""
    if adapters:
        raise LeapOptionsError("adapters", f"clients name no files; ask for the model {model}+ADAPTER")


def _adapter_of(value: object) -> LoraAdapter:
    if isinstance(value, LoraAdapter):
        return value
    if isinstance(value, Mapping) and set(value) <= {"path", "scale"} and "path" in value:
        return LoraAdapter(value["path"], value.get("scale", 1.0))
    if isinstance(value, (str, os.PathLike)):
        return LoraAdapter(Path(value))
    raise LeapOptionsError("adapters", f"{value!r} is no adapter")
