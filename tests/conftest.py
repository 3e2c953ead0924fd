"""Fixtures for all tests. No test touches the user's directories: LEAP_HOME is always a fresh one."""

from __future__ import annotations

import gc
import io
import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from leap_cli.framework.environment import Environment
from leap_cli.main import main
from leap_core.conversation.options import ModelLoadingOptions
from leap_core.conversation.runner import ModelRunner
from leap_core.system.directories import Directories
from leap_core.testing import ScriptedModelRunner
from tests.support import left_processes
from tests.support.files_in_memory import use_files_in_memory
from tests.support.hashed_words import HashedWordsRunner

SLOW_FOLDERS = tuple(
    str(Path(__file__).parent / folder) + os.sep
    for folder in ("batch/clusters", "benchmarks", "contract", "end_to_end", "jobs", "real_weights", "server")
)
"""Whole folders of processes, servers and models: slow, each test of them."""
OF_THE_DEFAULT_ENGINE = (
    *("test_bindings.py", "test_matrix.py", "test_projector.py", "test_builtin_media.py", "test_media.py"),
    "test_projector_trial.py",
)
"""Tests of what other builds of llama.cpp need not have; others of tests/inference and tests/contract are for each."""
MOST_WORKERS = 8
SECONDS_TO_END = 60.0
"""What processes have after the last test to end by themselves."""
ALL_SLOW = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background; programs that tests start would, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup
    signal.signal(signal.SIGHUP, lambda *_: None)
sys.dont_write_bytecode = False  # the suite starts hundreds of processes, which would compile leap's source each time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
IS_FIRST = left_processes.MARK not in os.environ
"""Whether this process began the run; the workers of pytest-xdist inherit its mark."""
os.environ.setdefault(left_processes.MARK, uuid4().hex)
use_files_in_memory()
os.environ.setdefault("LEAP_TRY_MODELS", "0")  # each test's home would pay for its trial; tests of the trial turn it on
os.environ["LEAP_OTHER_PROGRAMS"] = "0"  # what else is on this machine changes no test; tests of that turn it on


def is_quick_path(config: pytest.Config) -> bool:
    """Whether this is ``pytest -m "not slow"``."""
    return str(config.option.markexpr) == "not slow"


def is_long_run(config: pytest.Config) -> bool:
    """Whether this is ``pytest -m long``."""
    return str(config.option.markexpr) == "long"


def is_slow(path: Path) -> bool:
    return f"{path}{os.sep}".startswith(SLOW_FOLDERS)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick path does not even import what is slow as a whole."""
    if not is_quick_path(config):
        return None
    is_test = collection_path.suffix == ".py"
    all_slow = is_slow(collection_path) or (is_test and ALL_SLOW.search(collection_path.read_text("utf-8")))
    return True if all_slow else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """The collected tests stay to the end: without this each collection of garbage would go through all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The whole suite waits for processes most of its time; the quick path computes, and each worker collects it."""
    cores = os.cpu_count() or 1
    return min(MOST_WORKERS, cores if is_quick_path(config) else 2 * cores)


def is_named(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether the command line names this test, as in ``pytest tests/test_it.py::test_this``."""
    for argument in config.args:
        file, _, name = argument.partition("::")
        if name and item.path.name == Path(file).name and f"{item.name}[".startswith(f"{name}["):
            return True
    return False


def leave_out_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only ``pytest -m long`` runs long tests, and a command that names one."""
    if "long" in str(config.option.markexpr).split():
        return
    left_out = [item for item in items if item.get_closest_marker("long") and not is_named(item, config)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow folders; the longest test begins first, or the suite would wait for it at its end."""
    leave_out_long(config, items)
    for item in items:
        if is_slow(item.path) or item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)
        if item.path.name in OF_THE_DEFAULT_ENGINE and "LEAP_ENGINE" in os.environ:
            item.add_marker(
                pytest.mark.skip("the engine that LEAP_ENGINE names may lack mtmd, or ggml's own functions")
            )
    items.sort(key=lambda item: item.name != "test_all_examples_of_help_run_in_order")


HOMES = pytest.StashKey[TemporaryDirectory[str]]()
COUNT = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[HOMES] = TemporaryDirectory(prefix="leap-homes-", ignore_cleanup_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Name the processes that tests left; in a run of the long tests they fail the run."""
    if not IS_FIRST or sys.platform != "linux":
        return
    found = left_processes.left(os.environ[left_processes.MARK], SECONDS_TO_END)
    if found and is_long_run(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for pid, command in found.items():
        reporter.write_line(f"\na process was left: {pid} {command}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close what llama_cpp opens at import and never closes, or Python complains after the summary."""
    config.stash[HOMES].cleanup()
    opened = sys.modules.get("llama_cpp._utils")
    for name in ("outnull_file", "errnull_file"):
        if hasattr(opened, name):
            getattr(opened, name).close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test has a LEAP_HOME of its own. No fixture does this: with its ``tmp_path`` it took 2 ms a test."""
    os.environ.update(LEAP_HOME=os.path.join(item.config.stash[HOMES].name, f"{next(COUNT)}"), COLUMNS="80")
    for name in ("LEAP_MODEL", "NO_COLOR"):
        os.environ.pop(name, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """A worker that a submission has started ends with its test."""
    try:
        return (yield)
    finally:
        stop_worker(Path(os.environ["LEAP_HOME"]))


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """A file or socket that a module's tests left open fails that module, not whichever test runs when Python finds it.
    What is in use when the next module begins is looked at no more: a collection takes milliseconds."""
    gc.collect()
    gc.freeze()
    yield
    gc.collect()


def stop_worker(home: Path) -> None:
    if (home / "run" / "worker.lock").exists():
        from jobs.configuration import JobsConfiguration
        from jobs.worker_process import WorkerKeeper

        WorkerKeeper(JobsConfiguration(directories=Directories.from_environment({"LEAP_HOME": str(home)})), {}).stop()


@pytest.fixture
def leap_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this test's configuration, models and state are."""
    home = tmp_path / "leap-home"
    monkeypatch.setenv("LEAP_HOME", str(home))
    yield home
    stop_worker(home)


@dataclass
class Finished:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str


@dataclass
class CommandLine:
    """Runs ``leap`` in this process, on whatever runner is loaded into it."""

    home: Path
    variables: dict[str, str] = field(default_factory=dict)
    loaded: list[tuple[str, ModelLoadingOptions]] = field(default_factory=list)
    runner: ModelRunner | None = None
    load_error: BaseException | None = None

    def script(self, *scripts: object, **options: object) -> ScriptedModelRunner:
        """Whatever model is asked for will be this scripted one."""
        runner = ScriptedModelRunner(*scripts, **options)  # type: ignore[arg-type]
        self.runner = runner
        return runner

    def load(self, reference: str, options: ModelLoadingOptions) -> ModelRunner:
        self.loaded.append((reference, options))
        if self.load_error is not None:
            raise self.load_error
        assert self.runner is not None, "the test has loaded no runner"
        return self.runner

    def __call__(
        self, *args: str, stdin: str | bytes = b"", terminal: bool = False, stdin_terminal: bool = False
    ) -> Finished:
        env = self.environment(stdin, terminal=terminal, stdin_terminal=stdin_terminal)
        code = main(args, env)
        assert isinstance(env.stdout, io.StringIO) and isinstance(env.stderr, io.StringIO)
        return Finished(code, env.stdout.getvalue(), env.stderr.getvalue())

    def environment(self, stdin: str | bytes, *, terminal: bool, stdin_terminal: bool) -> Environment:
        names = ("LEAP_TRY_MODELS", "LEAP_OTHER_PROGRAMS")
        trials = {name: value for name, value in os.environ.items() if name in names}
        return Environment(
            stdin=io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin),
            stdin_is_terminal=stdin_terminal,
            stdout_is_terminal=terminal,
            stderr_is_terminal=terminal,
            variables={"LEAP_HOME": str(self.home), **trials, **self.variables},
            cwd=self.home.parent,
            load_model=self.load,
            load_embedder=lambda reference, options: HashedWordsRunner(name=reference.rpartition("/")[2]),
        )


@pytest.fixture
def leap(leap_home: Path) -> CommandLine:
    """The command line, in this process."""
    return CommandLine(leap_home)


@pytest.fixture(scope="session")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The miniature speech model, its vocoder beside it."""
    from leap_core.testing.miniature_speech import write_miniature_speech_model

    return write_miniature_speech_model(tmp_path_factory.mktemp("miniature"))


@pytest.fixture(scope="session")
def hearing_miniature(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with ears."""
    from leap_core.testing.miniature_ears import write_hearing_miniature

    return write_hearing_miniature(tmp_path_factory.mktemp("hearing"))
