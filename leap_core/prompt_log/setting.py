"""Whether prompts are logged: ``log`` of config.toml, or ``$LEAP_LOG``, and where the log is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ..configuration import read_table
from ..errors import LeapSerializationError
from ..runner.contract import ModelRunner
from ..storage.directories import Directories

FILE = "log.db"
TRUE = ("true", "1", "yes", "on", "t", "y")


def log_file(directories: Directories) -> Path:
    """Where the log is, if there is one."""
    return directories.data / FILE


def log_is_on(directories: Directories, variables: Mapping[str, str]) -> bool:
    """Whether prompts are logged now; not where the configuration cannot be read."""
    if variables.get("LEAP_LOG"):
        return variables["LEAP_LOG"].strip().lower() in TRUE
    try:
        return read_table(directories.config_file).get("log") is True
    except LeapSerializationError:
        return False


def logged(
    runner: ModelRunner,
    command: str,
    directories: Directories,
    variables: Mapping[str, str],
    on_warning: Callable[[str], object],
) -> ModelRunner:
    """The runner, with everything that is asked of it in the log while that is on."""
    from .logged_runner import LoggedRunner
    from .writer import LogWriter

    writer = LogWriter(log_file(directories), lambda: log_is_on(directories, variables), on_warning)
    return LoggedRunner(runner, writer, command)
