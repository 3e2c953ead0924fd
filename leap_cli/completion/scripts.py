"""The shells' side of completion: a script for each, and putting it where the shell looks.

They know the program's name and the protocol of ``completion``, nothing else, so they never go out of date. Sourced,
they define one function and register it.
"""

from __future__ import annotations

import os
from pathlib import Path

from leap_core.errors import LeapError
from leap_core.system.dataclass import dataclass

from ..framework.environment import Environment
from ..help.topics import shipped

FILE_NAMES = {"bash": "leap.bash", "zsh": "_leap", "fish": "leap.fish", "powershell": "leap.ps1"}
"""What packagers, and ``leap completion --install``, call them: the names that the shells look for."""


def script_of(shell: str) -> str:
    """The script for a shell of FILE_NAMES, a file of ``completions/``.

    Raises LeapError where this installation lacks it.
    """
    script = shipped("completions", FILE_NAMES[shell])
    if script is None:
        raise LeapError(f"completions/{FILE_NAMES[shell]} is not part of this installation", hint="install leap again")
    return script.read_text("utf-8")


@dataclass(frozen=True)
class ScriptPlace:
    """``script``: the file of the script. ``start_file``: the file with which the shell begins, which has to have
    ``line``; None where the shell finds the script by itself."""

    script: Path
    start_file: Path | None = None
    line: str = ""


def place_of(shell: str, env: Environment) -> ScriptPlace:
    """Where the script of this shell belongs for this user."""
    home = Path(env.variables.get("HOME") or env.variables.get("USERPROFILE") or Path.home())
    if shell == "fish":
        config = Path(env.variables.get("XDG_CONFIG_HOME") or home / ".config")
        return ScriptPlace(config / "fish" / "completions" / FILE_NAMES["fish"])
    script = env.directories.data / "completions" / FILE_NAMES[shell]
    if shell == "powershell":
        return ScriptPlace(script, _powershell_profile(env, home), f'. "{script}"')
    quoted = "'" + str(script).replace("'", "'\\''") + "'"
    start = home / ".bashrc" if shell == "bash" else Path(env.variables.get("ZDOTDIR") or home) / ".zshrc"
    return ScriptPlace(script, start, f"[ -r {quoted} ] && . {quoted}  # completion of leap")


def is_installed(place: ScriptPlace) -> bool:
    """Whether the script is there, and the line that loads it."""
    try:
        return place.script.is_file() and (
            place.start_file is None or os.fsencode(place.line) in place.start_file.read_bytes().splitlines()
        )
    except OSError:
        return False


def install(place: ScriptPlace, shell: str) -> bool:
    """Write the script, and the line that loads it unless it is there. Whether the start file was changed.

    Raises LeapError where something cannot be written.
    """
    from leap_core.system.files import replacing

    try:
        place.script.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place.script) as file:
            file.write(script_of(shell).encode())
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
