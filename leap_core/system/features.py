"""What features and plugins add at one place of leap, such as routes. A feature is a row there, ``name:
"module:attribute"``, and is left out where its files are not there; a plugin is an entry point of the place's group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ..errors import LeapError
from .directories import Directories

PACKAGES = Path(__file__).parent.parent.parent


def is_there(value: str) -> bool:
    """Whether the module of ``module:attribute`` is part of this installation; it is looked for and not imported."""
    module = value.partition(":")[0]
    return PathFinder.find_spec(module, [str(PACKAGES.joinpath(*module.split(".")[:-1]))]) is not None


def own_parts(rows: Mapping[str, str]) -> dict[str, Any]:
    """The objects of leap's own rows, by name."""
    return {name: _load(value) for name, value in rows.items() if is_there(value)}


def _load(value: str) -> Any:
    module, _, attribute = value.partition(":")
    return getattr(import_module(module), attribute)


def loaded_plugins(group: str, directories: Directories, on_warning: Callable[[str], object]) -> list[Any]:
    """The objects of a group of plugins. One that cannot be loaded is left out, and ``on_warning`` gets one line."""
    found = []
    for load in parts({}, group, directories, on_warning).values():
        try:
            found.append(load())
        except LeapError as error:
            on_warning(error.message)
    return found


def parts(
    rows: Mapping[str, str], group: str, directories: Directories, on_warning: Callable[[str], object] | None = None
) -> dict[str, Callable[[], Any]]:
    """What loads each object by name: leap's own rows, and the plugins of a group. Loading raises LeapError."""
    from .plugins import plugins

    own = {name: partial(_load, value) for name, value in rows.items() if is_there(value)}
    others = plugins(group, directories, reserved=rows, on_warning=on_warning)
    return {**own, **{name: plugin.load for name, plugin in others.items()}}
