"""Where leap keeps things: the system's own directories, or all of them below ``$LEAP_HOME`` when that is set."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from ..errors import LeapError
from .dataclass import dataclass

APPLICATION = "leap"
OF_OTHER_PROGRAMS = (
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME"),
    *("OLLAMA_MODELS", "LMSTUDIO_HOME", "JAN_DATA_FOLDER", "MODELS_PATH", "RAMALAMA_STORE"),
)
"""Variables that say where other programs keep their models."""


PLAIN_PLACES = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_CACHE_HOME": ".cache",
    "XDG_STATE_HOME": ".local/state",
}
"""Where Linux keeps what belongs to a user: a variable, and the place in the user's home without it."""


def absolute_home(variables: Mapping[str, str]) -> str | None:
    """``LEAP_HOME`` as it means the same in any directory; None where it is not set."""
    home = variables.get("LEAP_HOME")
    return os.path.abspath(os.path.expanduser(home)) if home else None


def packages_directory() -> Path:
    """The directory that holds the packages ``leap_core``, ``leap_cli`` and ``jobs``."""
    return Path(__file__).resolve().parents[2]


def _plain_places(variables: Mapping[str, str]) -> list[Path] | None:
    """Configuration, data, cache and state as platformdirs says, whose import takes as long as all of ``leap --help``.
    None where it has to be asked: on other systems than Linux, and where a variable is not an absolute path."""
    home, is_android = variables.get("HOME", ""), hasattr(sys, "getandroidapilevel") or "ANDROID_ROOT" in variables
    places = [variables.get(name) or f"{home.rstrip('/')}/{place}" for name, place in PLAIN_PLACES.items()]
    is_plain = all(place.startswith("/") and place.strip() == place for place in [home, *places])
    if sys.platform != "linux" or is_android or not is_plain:
        return None
    return [Path(place) / APPLICATION for place in places]


@dataclass(frozen=True)
class Directories:
    """Paths; none of them is created by asking for it, except ``run``.

    ``config`` holds config.toml and the user's own catalogue, ``data`` the databases of sessions and jobs, ``models``
    the models, ``cache`` prompt snapshots, ``logs`` what background processes say, ``run`` the state of processes
    that are running.
    """

    config: Path
    data: Path
    models: Path
    cache: Path
    logs: Path
    run_path: Path

    @staticmethod
    def from_environment(variables: Mapping[str, str] | None = None) -> Directories:
        """The directories that these environment variables (the process's own when None) lead to. Raises LeapError
        where the user has no home directory."""
        home = absolute_home(os.environ if variables is None else variables)
        if home:
            root = Path(home)
            return Directories(root, root, root / "models", root / "cache", root / "logs", root / "run")
        if (places := _plain_places(os.environ)) is not None:
            config, data, cache, state = places
            return Directories(config, data, data / "models", cache, state / "log", state / "run")
        import platformdirs

        system = platformdirs.PlatformDirs(APPLICATION, appauthor=False)
        try:
            data = Path(system.user_data_dir)
            return Directories(
                config=Path(system.user_config_dir),
                data=data,
                models=data / "models",
                cache=Path(system.user_cache_dir),
                logs=Path(system.user_log_dir),
                run_path=Path(system.user_state_dir) / "run",
            )
        except RuntimeError:  # neither HOME nor an entry among the system's users
            raise LeapError("you have no home directory", hint="set HOME, or LEAP_HOME") from None

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def sessions_file(self) -> Path:
        return self.data / "leap.db"

    @property
    def jobs_file(self) -> Path:
        """The table of jobs, where it is no server's."""
        return self.data / "jobs.db"

    @property
    def run(self) -> Path:
        """The directory for sockets, locks and tokens of running processes. Created, and private to the user (0700)."""
        return private_directory(self.run_path)


def make_directory(path: Path, mode: int = 0o775) -> None:
    """Create ``path``, and those above it that are missing: not even the umask 0 lets everyone write there."""
    for each in reversed(path.parents):
        if not each.exists():
            each.mkdir(mode=0o775, exist_ok=True)
    path.mkdir(mode=mode, exist_ok=True)


def private_directory(path: Path) -> Path:
    """Create ``path`` with mode 0700, or take from others what rights they have there.

    Raises LeapError when it belongs to another user, who could read what is put there.
    """
    make_directory(path, 0o700)
    if sys.platform != "win32":
        status = path.stat()
        if status.st_uid != os.geteuid():
            raise LeapError(f"{path} belongs to another user", hint="set LEAP_HOME to a directory of your own")
        if stat.S_IMODE(status.st_mode) != 0o700:
            path.chmod(0o700)
    return path
