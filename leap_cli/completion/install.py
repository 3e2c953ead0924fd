"""Where each shell looks for the completion of a command, and putting it there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from leap_core.errors import LeapError

from ..framework.environment import Environment
from .scripts import FILE_NAMES, SCRIPTS


@dataclass(frozen=True)
class Place:
    """``script``: the file of the script. ``start_file``: the file with which the shell begins, which has to have
    ``line``; None where the shell finds the script by itself."""

    script: Path
    start_file: Path | None = None
    line: str = ""


def place_of(shell: str, env: Environment) -> Place:
    """Where the script of this shell belongs for this user."""
    home = Path(env.variables.get("HOME") or env.variables.get("USERPROFILE") or Path.home())
    if shell == "fish":
        config = Path(env.variables.get("XDG_CONFIG_HOME") or home / ".config")
        return Place(config / "fish" / "completions" / FILE_NAMES["fish"])
    script = env.directories.data / "completions" / FILE_NAMES[shell]
    if shell == "powershell":
        return Place(script, _powershell_profile(env, home), f'. "{script}"')
    quoted = "'" + str(script).replace("'", "'\\''") + "'"
    start = home / ".bashrc" if shell == "bash" else Path(env.variables.get("ZDOTDIR") or home) / ".zshrc"
    return Place(script, start, f"[ -r {quoted} ] && . {quoted}  # completion of leap")


def is_installed(place: Place) -> bool:
    """Whether the script is there, and the line that loads it."""
    try:
        return place.script.is_file() and (
            place.start_file is None or os.fsencode(place.line) in place.start_file.read_bytes().splitlines()
        )
    except OSError:
        return False


def install(place: Place, shell: str) -> bool:
    """Write the script, and the line that loads it unless it is there. Whether the start file was changed.

    Raises LeapError where something cannot be written.
    """
    from leap_core.storage.atomic_files import replacing

    try:
        place.script.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place.script) as file:
            file.write(SCRIPTS[shell].encode())
        if place.start_file is None:
            return False
        place.start_file.parent.mkdir(parents=True, exist_ok=True)
        line = os.fsencode(place.line)
        present = place.start_file.read_bytes() if place.start_file.exists() else b""
        if line in present.splitlines():
            return False
        with place.start_file.open("ab") as file:  # appended, so that a link to the user's own file stays one
            file.write((b"" if present.endswith(b"\n") or not present else b"\n") + line + b"\n")
    except OSError as error:
        raise LeapError(
            f"cannot write {error.filename or place.script}: {error.strerror}",
            hint=f"leap completion {shell} prints the script, to be put where you like",
        ) from None
    return True


def _powershell_profile(env: Environment, home: Path) -> Path:
    if os.name == "nt":
        return home / "Documents" / "PowerShell" / "Microsoft.PowerShell_profile.ps1"
    config = Path(env.variables.get("XDG_CONFIG_HOME") or home / ".config")
    return config / "powershell" / "Microsoft.PowerShell_profile.ps1"
