"""What features add at one place of leap, such as routes: each is a row there, ``name: "module:attribute"``, and is
left out where its files are not there."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

PACKAGES = Path(__file__).parent.parent.parent


def is_there(value: str) -> bool:
    """Whether the module of ``module:attribute`` is part of this installation; it is looked for and not imported."""
    module = value.partition(":")[0]
    return PathFinder.find_spec(module, [str(PACKAGES.joinpath(*module.split(".")[:-1]))]) is not None


def own_parts(rows: Mapping[str, str]) -> dict[str, Any]:
    """The objects of leap's own rows, by name."""
    split = {name: value.partition(":") for name, value in rows.items() if is_there(value)}
    return {name: getattr(import_module(module), attribute) for name, (module, _, attribute) in split.items()}
