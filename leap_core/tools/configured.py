"""The tools that one user has on one machine, and their policy: registered commands, leap's own, files of functions.

Takes paths and the table ``[tools]`` of config.toml, so that a command, a job and the library find the same tools.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..configuration import check_setting
from ..functions.declaration import LeapFunction
from .policy import ALLOW, FunctionPolicy, ToolPolicy, policy_from_table
from .sources import CommandRegistry, builtin_functions, functions_of_file, is_own

REGISTRY_FILE = "tools.json"


@dataclass(frozen=True)
class ConfiguredTools:
    """``config_directory`` holds the registered commands; ``table`` is ``[tools]`` of config.toml; relative paths are
    below ``cwd``, which is also what ``read_file`` reads where the table names no directory."""

    config_directory: Path
    cwd: Path
    table: Mapping[str, Any] = field(default_factory=dict)

    @property
    def registry(self) -> CommandRegistry:
        """The registered commands."""
        return CommandRegistry(self.config_directory / REGISTRY_FILE)

    def functions(self) -> list[LeapFunction]:
        """Registered commands, then leap's own tools."""
        return [*self.registry.functions(), *builtin_functions(self.readable_directory)]

    def functions_of_files(
        self, files: Sequence[str], names: Sequence[str] = (), on_warning: Callable[[str], object] | None = None
    ) -> list[LeapFunction]:
        """The tools of all files, in order; ``names`` and ``on_warning`` as in ``functions_of_python``."""
        return [each for file in files for each in functions_of_file(self.cwd / file, names, on_warning)]

    @property
    def readable_directory(self) -> Path:
        """Where ``read_file`` may read: ``directory`` in ``[tools.read_file]``. Raises LeapOptionsError."""
        entry = self.table.get("read_file", {})
        directory = entry.get("directory") if isinstance(entry, Mapping) else None
        if directory is None:
            return self.cwd
        check_setting("tools.read_file.directory", directory, "tools.read_file.directory")
        return self.cwd / os.path.expanduser(str(directory))

    def policy(self, functions: Sequence[LeapFunction]) -> FunctionPolicy:
        """The policy of these functions. leap's own, and not another one of the same name, are allowed where the table
        says nothing else. Raises LeapOptionsError naming the entry."""
        own = {function.name: ToolPolicy(ALLOW) for function in functions if is_own(function)}
        table = {
            name: {key: item for key, item in value.items() if key != "directory"} if name == "read_file" else value
            for name, value in self.table.items()
        }
        return policy_from_table(table, FunctionPolicy(own))
