"""The environment of processes that leap starts: the same home, and the packages of this leap."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..storage.directories import absolute_home, packages_directory


def child_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables (this process's when None) for a process of leap's in another directory: ``LEAP_HOME`` is absolute,
    and ``PYTHONPATH`` leads to these packages where they are not installed."""
    child = dict(os.environ if variables is None else variables)
    home = absolute_home(child)
    if home is not None:
        child["LEAP_HOME"] = home
    root, paths = str(packages_directory()), child.get("PYTHONPATH", "")
    if root not in paths.split(os.pathsep):
        child["PYTHONPATH"] = os.pathsep.join(part for part in (root, paths) if part)
    return child
