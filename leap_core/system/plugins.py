"""Plugins: entry points of other installed packages, scanned once for each set of installed distributions."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ..errors import LeapError
from .dataclass import dataclass
from .directories import Directories, make_directory
from .files import replace_text

COMMANDS, OPENERS, TOOLS = "leap.commands", "leap.openers", "leap.tools"
JOBS, ROUTES, HELP = "leap.jobs", "leap.routes", "leap.help"
"""JOBS: functions of a FunctionJob that return what they made, or None when they were stopped."""
GROUPS = (COMMANDS, OPENERS, TOOLS, JOBS, ROUTES, HELP)
LONGEST_NAME = 100
"""Characters of an environment's directory in the name of its cache."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
Warn = Callable[[str], object]


@dataclass(frozen=True)
class Plugin:
    """One entry point. ``value``: ``module:attribute``. ``package``: its distribution. ``summary``: that of the
    distribution."""

    group: str
    name: str
    value: str
    package: str
    summary: str

    def load(self) -> Any:
        """Import the object. Raises LeapError, whatever the import raises."""
        from importlib.metadata import EntryPoint

        try:
            return EntryPoint(self.name, self.value, self.group).load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit: other people's code runs here
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise self.error(f"cannot be loaded: {reason}") from None

    def error(self, problem: str) -> LeapError:
        """The error that says what is wrong with this plugin."""
        hint = f"update or uninstall the package {self.package}"
        return LeapError(f"the plugin {self.name} ({self.group}, package {self.package}) {problem}", hint=hint)


class FunctionJob(Protocol):
    """What a function that a job calls is given. ``arguments``: what it was submitted with. ``variables``: the
    environment. ``stop`` is set when it has to end. ``is_again``: an earlier attempt may have done a part."""

    arguments: Mapping[str, Any]
    variables: Mapping[str, str]
    stop: threading.Event
    is_again: bool

    def note(self, message: str) -> None:
        """A line for people in the job's output."""

    def progress(self, done: int, total: int, unit: str) -> None:
        """How far it is."""


def plugins(
    group: str, directories: Directories, *, reserved: Collection[str] = (), on_warning: Warn | None = None
) -> dict[str, Plugin]:
    """The plugins of a group by name; nothing is imported. A name that is ``reserved``, invalid, or offered twice is
    left out, and ``on_warning`` gets one line."""
    found: dict[str, Plugin] = {}
    for plugin in _all(directories):
        if plugin.group != group:
            continue
        problem = None
        if not NAME.fullmatch(plugin.name):
            problem = "is left out: a name has letters, digits, - and _ only"
        elif plugin.name in reserved:
            problem = "is left out: it cannot replace what leap has under this name"
        elif plugin.name in found:
            problem = f"is left out: the package {found[plugin.name].package} has this name, too"
        if problem is None:
            found[plugin.name] = plugin
        elif on_warning is not None:
            on_warning(plugin.error(problem).message)
    return found


def cache_file(directories: Directories) -> Path:
    """Where the plugins of this environment are kept: those of two are used in turns."""
    return directories.cache / f"plugins-{re.sub(r'[^A-Za-z0-9]+', '-', sys.prefix)[-LONGEST_NAME:].strip('-')}.json"


def _all(directories: Directories) -> list[Plugin]:
    """Those of all groups, from the cache while the set of installed distributions is the same."""
    file, installed = cache_file(directories), _installed()
    with suppress(OSError, ValueError, TypeError, KeyError):
        cached = json.loads(file.read_text("utf-8"))
        if cached["installed"] == installed:
            return [Plugin(*map(str, each)) for each in cached["plugins"]]
    found = _scan()
    rows = [[each.group, each.name, each.value, each.package, each.summary] for each in found]
    with suppress(OSError, LeapError):  # without a cache each start scans
        make_directory(directories.cache)
        replace_text(file, json.dumps({"installed": installed, "plugins": rows}))
    return found


def _installed() -> list[list[Any]]:
    """The metadata directories from which this process could import, with the times at which they changed."""
    found: list[list[Any]] = []
    for place in dict.fromkeys(map(os.path.abspath, sys.path)):
        with suppress(OSError), os.scandir(place) as entries:
            names = [each for each in entries if each.name.endswith((".dist-info", ".egg-info"))]
            found += sorted([each.path, each.stat().st_mtime_ns] for each in names)
    return found


def _scan() -> list[Plugin]:
    from importlib.metadata import distribution, distributions

    with_plugins = dict[str, Any]()
    for each in distributions():
        with suppress(Exception):  # damaged metadata of one package
            if "leap." in (each.read_text("entry_points.txt") or ""):  # metadata of all packages takes 0.2 s to parse
                with_plugins.setdefault(re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower(), each)
    found: list[Plugin] = []
    for name, sound in sorted(with_plugins.items(), key=lambda item: item[0]):
        with suppress(Exception):
            first = distribution(name)  # of its name on the path
            imported = first if first.read_text("METADATA") or first.read_text("PKG-INFO") else sound
            package = imported.metadata["Name"]
            summary = str(imported.metadata.json.get("summary") or f"A command of {package}.")
            points = [point for point in imported.entry_points if point.group in GROUPS]
            found += [Plugin(point.group, point.name, point.value, package, summary) for point in points]
    return found
