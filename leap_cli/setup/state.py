"""What is set up already, and the answers that set it up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from ..completion.install import is_installed, place_of
from ..completion.shell import SHELLS
from ..framework.environment import Environment

NONE = "none"
"""The answer that leaves something as it is."""


@dataclass(frozen=True)
class Answers:
    """``model``: a reference to a model, ``completion``: a shell, ``keep_alive``: a length of time as it was written;
    each may be ``NONE``."""

    model: str
    completion: str
    keep_alive: str


@dataclass(frozen=True)
class SetUp:
    """``model``: the default model, ``completion``: the shells that complete leap, ``keep_alive``: how long models
    stay; None where nothing is set."""

    model: str | None
    completion: tuple[str, ...]
    keep_alive: str | None

    def record(self) -> dict[str, object]:
        """As it is printed."""
        return {"model": self.model, "completion": list(self.completion) or None, "keep_alive": self.keep_alive}


def set_up_already(env: Environment) -> SetUp:
    """What is set. Raises LeapSerializationError for a config.toml that cannot be read."""
    from leap_core.configuration import read_configuration

    configured = read_configuration(env.directories.config_file)
    shells = tuple(shell for shell in SHELLS if is_installed(place_of(shell, env)))
    return SetUp(configured.default_model, shells, configured.keep_alive)


def shell_in_use(env: Environment) -> str:
    """The shell that ``$SHELL`` names, if leap completes in it; else ``NONE``, or PowerShell on Windows."""
    named = PurePath(env.variables.get("SHELL", "")).name.removesuffix(".exe")
    known = "powershell" if named == "pwsh" else named
    if not known and env.variables.get("PSModulePath"):
        known = "powershell"
    return known if known in SHELLS else NONE
