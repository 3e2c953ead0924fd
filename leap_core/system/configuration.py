"""``config.toml``: the user's settings, declared and read in one place. A file that is not there is an empty one.

SETTINGS lists what may be in it beside ``[aliases]``, ``[tools.NAME]`` (TOOL_SETTINGS) and the ``[options]`` of
commands: reading, ``leap config`` and the reference follow it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import LeapOptionsError, LeapSerializationError
from .dataclass import dataclass
from .directories import Directories

_tables: dict[Path, tuple[object, dict[str, Any]]] = {}
"""The file of each path as it was last read: how a change is noticed, and its tables."""
POSTGRESQL = ("postgresql://", "postgres://")


@dataclass(frozen=True)
class Setting:
    """One value of the file. ``key``: in dots. ``variable``: the one that overrides it. A number is from ``low`` (not
    that itself where ``above``) to ``high``; a text is one of ``choices``, or begins with one of ``schemes``, where
    there are some. ``is_time``: the text is a length of time, such as 10m."""

    key: str
    kind: type[bool] | type[int] | type[float] | type[str]
    meaning: str
    default: bool | int | float | str | None = None
    variable: str | None = None
    low: float | None = None
    high: float | None = None
    above: bool = False
    choices: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    is_time: bool = False

    @property
    def rule(self) -> str:
        """What a value must be."""
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return f"one of {', '.join(self.choices)}" if self.choices else "a text, and not empty"
        if self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        return f"a number above {self.low:g}" if self.above else f"{self.low:g} or more"

    def allows(self, value: object) -> bool:
        """Whether this can be its value. The text behind a scheme is for those who use the address."""
        if self.kind is str:
            return isinstance(value, str) and bool(value.strip()) and (not self.choices or value in self.choices)
        if self.kind is bool or isinstance(value, bool):
            return self.kind is bool and isinstance(value, bool)
        if not isinstance(value, int if self.kind is int else (int, float)):
            return False
        low, high = -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high
        return low <= value <= high and value != math.inf and not (self.above and value == low)


POLICIES = ("allow", "ask", "decide", "deny")
CALL_QUESTION = "Does the call do what the user asked for, and nothing else?"
SETTINGS = (
    Setting(
        "default_model",
        str,
        "The model that is used when a command names none; by default the only installed one, else builtin.",
        None,
        "LEAP_MODEL",
    ),
    Setting("default_index", str, "The index that `leap search` and `leap ask` read where none is named."),
    Setting(
        "engine",
        str,
        "The build of llama.cpp that runs models, of `leap engine list`; by default the one that came with leap.",
        None,
        "LEAP_ENGINE",
    ),
    Setting("keep_alive", str, "How long `leap load` keeps a model without use, such as 10m.", "10m", is_time=True),
    Setting(
        "auto_download",
        str,
        "Whether a model that is known and not here is downloaded when it is first used; ask is at a terminal only.",
        "ask",
        "LEAP_AUTO_DOWNLOAD",
        choices=("ask", "yes", "no"),
    ),
    Setting(
        "other_programs",
        bool,
        "Whether models that other programs have downloaded are found, such as those of ollama.",
        True,
        "LEAP_OTHER_PROGRAMS",
    ),
    Setting("offline", bool, "Refuse remote models: no prompt leaves this machine.", False, "LEAP_OFFLINE"),
    Setting("log", bool, "Keep prompts and answers for `leap sessions log`.", False, "LEAP_LOG"),
    Setting(
        "jobs_url",
        str,
        "A PostgreSQL server for jobs that several machines share.",
        None,
        "LEAP_JOBS_URL",
        schemes=POSTGRESQL,
    ),
    Setting("jobs.download", int, "Downloads in the background at once.", 2, low=1, high=64),
    Setting("jobs.generate", int, "Answers in the background at once.", 4, low=1, high=64),
    Setting("jobs.transcribe", int, "Transcripts in the background at once.", 4, low=1, high=64),
    Setting("jobs.batch", int, "Batches in the background at once.", 1, low=1, high=64),
    Setting("jobs.function", int, "Functions in the background at once, such as quantizing.", 1, low=1, high=64),
    Setting("jobs.command", int, "Commands and messages after jobs at once.", 4, low=1, high=64),
    Setting(
        "jobs.webhook",
        str,
        "Where a message goes when a job has ended, those of `leap serve` too, unless --webhook names another place.",
        schemes=("http://", "https://"),
    ),
    Setting("jobs.webhook_secret", str, "What the messages of --webhook are signed with, such as whsec_…"),
    Setting("jobs.idle_minutes", float, "How long a worker without work stays.", 5.0, low=0),
    Setting("jobs.lease_seconds", float, "On a server: how long a silent worker keeps a job.", 60.0, low=2, high=3600),
    Setting("jobs.fetch_models", bool, "On a server: whether workers fetch models that jobs need.", False),
    Setting("jobs.keep_output_days", float, "How long the output of jobs that ended is kept; 0: always.", 30.0, low=0),
    Setting("tools.policy", str, "Whether tools run: allow, ask, decide or deny.", "ask", choices=POLICIES),
    Setting("tools.threshold", float, "How sure the policy decide must be.", 0.9, low=0, high=1, above=True),
    Setting("tools.question", str, "What the policy decide asks about a call.", CALL_QUESTION),
    Setting("tools.timeout", float, "Seconds that a tool may take.", 30.0, low=0, above=True),
    Setting("tools.output_limit", int, "Bytes that a tool may answer with.", 65536, low=1),
    Setting("tools.rounds", int, "How often results go back to the model in one answer.", 8, low=1),
    Setting("tools.read_file.directory", str, "What the tool read_file may read; where leap runs by default."),
)
"""Settings of their own; the options of commands are settings too."""
_BY_KEY = {each.key: each for each in SETTINGS}
KEYS = tuple(dict.fromkeys([*(key.partition(".")[0] for key in _BY_KEY), "aliases", "endpoints", "options"]))
"""Keys allowed at the top of the file."""
TOOL_SETTINGS = tuple(
    replace(_BY_KEY[f"tools.{name}"], key=name, meaning=meaning, default=None)
    for name, meaning in (
        ("policy", "Whether this tool runs: allow, ask, decide or deny."),
        ("threshold", "How sure the policy decide must be."),
        ("question", "What the policy decide asks about a call."),
        ("timeout", "Seconds that this tool may take."),
        ("output_limit", "Bytes that this tool may answer with."),
    )
)
"""Keys allowed in ``[tools.NAME]``."""
JOB_KINDS = ("download", "generate", "transcribe", "batch", "function", "command")
"""The kinds of jobs of which ``jobs.KIND`` run at once."""


def default_of(key: str) -> Any:
    """The default of a setting."""
    return _BY_KEY[key].default


def check_setting(key: str, value: object, name: str) -> None:
    """Raises LeapOptionsError about ``name`` where this cannot be the setting's value."""
    if not _BY_KEY[key].allows(value):
        raise LeapOptionsError(name, f"{value!r} is not {_BY_KEY[key].rule}")


@dataclass(frozen=True)
class JobSettings:
    """``concurrency``: jobs of each kind that run at once. ``idle_minutes``: how long a worker without work stays, None
    as it is usual. ``jobs_url``: the PostgreSQL server of table and queue, None means the SQLite files.
    ``lease_seconds``: how long a claim on a server holds without a sign of life. ``fetch_models``: a worker of a server
    fetches models that jobs need and it lacks. ``keep_output_days``: how long the output of jobs that ended is kept, 0
    means as long as they. ``webhook``: where messages about jobs go; ``webhook_secret`` signs them."""

    concurrency: Mapping[str, int] = field(
        default_factory=lambda: {kind: default_of(f"jobs.{kind}") for kind in JOB_KINDS}
    )
    idle_minutes: float | None = None
    jobs_url: str | None = None
    lease_seconds: float = default_of("jobs.lease_seconds")
    fetch_models: bool = default_of("jobs.fetch_models")
    keep_output_days: float = default_of("jobs.keep_output_days")
    webhook: str | None = None
    webhook_secret: str | None = None


@dataclass(frozen=True)
class Configuration:
    """``default_model``: the reference that is loaded when a command names none, or None. ``keep_alive``: how long
    ``leap load`` keeps a model without use, such as "10m", or None. ``default_index``: the index that is searched when
    a command names none, or None."""

    default_model: str | None = None
    keep_alive: str | None = None
    default_index: str | None = None


def read_configuration(path: Path) -> Configuration:
    """The settings about models. Raises LeapSerializationError that names the file and the setting."""
    return Configuration(**_given(path, "default_model", "keep_alive", "default_index"))


def read_engine(path: Path) -> str | None:
    """The engine that is set; none where the file cannot be read, which those say who change it."""
    engine: str | None = _given_or_none(path, "engine")
    return engine


def auto_download(path: Path, variables: Mapping[str, str]) -> str:
    """ask, yes or no: what happens where a model is named that is known and not here. Raises LeapOptionsError."""
    variable = variables.get("LEAP_AUTO_DOWNLOAD")
    if variable:
        check_setting("auto_download", variable, "LEAP_AUTO_DOWNLOAD")
    return str(variable or _given_or_none(path, "auto_download") or default_of("auto_download"))


def uses_other_programs(path: Path, variables: Mapping[str, str]) -> bool:
    """Whether models of other programs are found."""
    variable = variables.get("LEAP_OTHER_PROGRAMS")
    return variable.lower() in TRUE if variable else _given_or_none(path, "other_programs") is not False


def _given_or_none(path: Path, key: str) -> Any:
    """The value in the file; None where there is none, or where the file cannot be read."""
    try:
        return _given(path, key).get(key)
    except LeapSerializationError:
        return None


def offline(path: Path, variables: Mapping[str, str]) -> str | None:
    """What says that remote models are refused, for people; None where nothing does."""
    variable = variables.get("LEAP_OFFLINE")
    if variable:
        return "$LEAP_OFFLINE" if variable.lower() not in ("0", "false", "no", "off") else None
    return f"offline = true in {path}" if _given(path, "offline").get("offline") else None


TRUE = ("true", "1", "yes", "on", "t", "y")


def log_file(directories: Directories) -> Path:
    """Where the log of prompts is, if there is one."""
    return directories.data / "log.db"


def log_is_on(directories: Directories, variables: Mapping[str, str]) -> bool:
    """Whether prompts are logged now; not where the configuration cannot be read."""
    if variables.get("LEAP_LOG"):
        return variables["LEAP_LOG"].strip().lower() in TRUE
    try:
        return read_table(directories.config_file).get("log") is True
    except LeapSerializationError:
        return False


def read_job_settings(path: Path) -> JobSettings:
    """The settings about jobs. Raises LeapSerializationError that names the file and the setting."""
    plain = ("idle_minutes", "lease_seconds", "fetch_models", "keep_output_days", "webhook", "webhook_secret")
    values = _given(path, "jobs_url", *(f"jobs.{name}" for name in (*JOB_KINDS, *plain)))
    fields = {key.removeprefix("jobs."): value for key, value in values.items()}
    concurrency = {kind: fields.pop(kind, usual) for kind, usual in JobSettings().concurrency.items()}
    return JobSettings(concurrency, **fields)


def _given(path: Path, *keys: str) -> dict[str, Any]:
    """The values of those of the settings that are in the file."""
    table = read_table(path)
    values: dict[str, Any] = {}
    for key in keys:
        *heads, name = key.split(".")
        here: Any = table
        for head in heads:
            here = here.get(head, {})
            if not isinstance(here, dict):
                raise _error(path, f"{head} must be a table")
        if name in here:
            setting, value = _BY_KEY[key], here[name]
            if not setting.allows(value):
                raise _error(path, f"{key} must be {setting.rule}")
            values[key] = float(value) if setting.kind is float else value
    return values


def read_table(path: Path) -> dict[str, Any]:
    """The whole file, as tables and values that are not to be changed; it is parsed again when it has changed. Raises
    LeapSerializationError that names it."""
    try:
        status = path.stat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known, table = _tables.get(path, (None, {}))
        if known != stamp:
            table = parse_toml(path.read_bytes(), str(path))
            _tables[path] = stamp, table
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror or error}") from None
    return table


def table_or_error(path: Path) -> dict[str, Any] | LeapSerializationError:
    """``read_table``, or why the file cannot be read."""
    try:
        return read_table(path)
    except LeapSerializationError as error:
        return error


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Name the file in errors about its options."""
    try:
        yield
    except LeapOptionsError as error:
        raise LeapOptionsError(f"{path}: {error.option}", error.reason) from None


def parse_toml(data: bytes, path: str, hint: str = "leap config edit opens it") -> dict[str, Any]:
    """The tables and values of a file's content. Raises LeapSerializationError naming ``path``, with this hint."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return dict(toml.loads(data.decode("utf-8-sig")))
    except ValueError as error:  # also bytes that are not UTF-8
        raise LeapSerializationError(str(error), path=path, hint=hint) from None


def _error(path: Path, problem: str) -> LeapSerializationError:
    return LeapSerializationError(problem, path=str(path))
