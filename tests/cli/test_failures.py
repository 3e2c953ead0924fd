"""The error boundary: which exception gives which exit code and which line."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from leap_cli.exit_codes import ExitCode
from leap_cli.framework.environment import ClosedOutput, Environment
from leap_cli.framework.error_boundary import report
from leap_cli.main import main
from leap_core import errors
from leap_core.models.http import DownloadStopped


def every_error(kind: type[errors.LeapError] = errors.LeapError) -> list[type[errors.LeapError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in every_error(child))]


SPECIAL = {
    errors.LeapGenerationPromptExceedContextLengthError: lambda: errors.LeapGenerationPromptExceedContextLengthError(
        9, 8
    ),
    errors.LeapConstraintError: lambda: errors.LeapConstraintError("no", text="{}"),
    errors.LeapOptionsError: lambda: errors.LeapOptionsError("top_p", "no"),
    errors.LeapGuardError: lambda: errors.LeapGuardError("message", "is_rude", 0.9, 0.5),
    DownloadStopped: DownloadStopped,
}
DOCUMENTED = {
    "LeapError": 1,
    "LeapGenerationError": 1,
    "LeapModelLoadingError": 3,
    "LeapUnsupportedMediaError": 3,
    "LeapModelNotFoundError": 2,
    "LeapModelNotDownloadedError": 3,
    "LeapNotFoundError": 2,
    "LeapToolNotFoundError": 2,
    "LeapJobNotFoundError": 2,
    "LeapModelDownloadError": 4,
    "LeapModelDownloadSizeMismatchError": 4,
    "LeapModelDownloadSha256MismatchError": 4,
    "LeapGenerationPromptExceedContextLengthError": 5,
    "LeapSchemaError": 6,
    "LeapConstraintError": 6,
    "LeapGeneratableSchematizationError": 6,
    "LeapGeneratableDeserializationError": 6,
    "LeapOptionsError": 2,
    "LeapSerializationError": 2,
    "LeapSessionError": 2,
    "LeapToolError": 7,
    "LeapJobError": 8,
    "LeapUnavailableError": 10,
    "LeapGuardError": 11,
}


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_its_documented_exit_code_and_one_line(kind):
    env = Environment()
    error = SPECIAL.get(kind, lambda: kind("what went wrong", hint="what to do"))()
    nearest = next(base.__name__ for base in kind.__mro__ if base.__name__ in DOCUMENTED)
    assert report(error, env) == DOCUMENTED[nearest]
    line = env.stderr.getvalue()
    assert line.startswith("leap: error: ") and line.endswith("\n") and line.count("\n") == 1
    assert error.message in line
    assert (error.hint or "") in line


def test_messages_become_one_line_without_control_characters():
    env = Environment()
    report(errors.LeapModelLoadingError("cannot read a\nb\x1b[31m", hint="try\tagain"), env)
    assert env.stderr.getvalue() == "leap: error: cannot read a b\N{REPLACEMENT CHARACTER}[31m (hint: try again)\n"


def test_a_bug_is_one_line_and_its_traceback_is_logged(leap):
    leap.load_error = ZeroDivisionError("division by zero")
    done = leap("generate", "-m", "some", "hello")
    assert done.code == 1
    assert done.stderr.startswith("leap: error: ZeroDivisionError: division by zero (hint: this is a bug in leap; ")
    assert done.stderr.count("\n") == 1
    (kept,) = leap.home.rglob("error-*.txt")
    assert str(kept) in done.stderr
    assert "Traceback (most recent call last)" in kept.read_text()


def test_a_bug_is_reported_when_no_log_can_be_written(leap):
    leap.home.write_text("a file where the directory should be")
    leap.load_error = ZeroDivisionError("division by zero")
    done = leap("generate", "-m", "some", "hello")
    assert done.code == 1
    kept = Path(done.stderr.split("its traceback is in ")[1].rstrip(")\n"))
    assert "ZeroDivisionError" in kept.read_text()
    kept.unlink()


class TaskGroupError(Exception):
    """What a task group raises: Python's ExceptionGroup, or its copy for Python 3.10."""

    def __init__(self, *exceptions: BaseException) -> None:
        self.exceptions = exceptions


def test_an_error_in_a_task_group_is_reported_as_itself():
    env = Environment()
    assert report(TaskGroupError(TaskGroupError(BrokenPipeError(errno.EPIPE, "Broken pipe"))), env) == ExitCode.DONE
    assert report(TaskGroupError(errors.LeapOptionsError("--top-k", "must be above 0")), env) == ExitCode.USAGE
    assert env.stderr.getvalue() == "leap: error: --top-k: must be above 0\n"


def test_ctrl_c_outside_an_answer_exits_quietly(leap):
    leap.load_error = KeyboardInterrupt()
    done = leap("generate", "-m", "some", "hello")
    assert (done.code, done.stdout, done.stderr) == (ExitCode.INTERRUPTED, "", "")


class FailingOutput:
    """A stdout on which every write fails."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def write(self, text: str) -> int:
        raise self.error

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("format", ["text", "json", "jsonl"])
def test_a_closed_pipe_ends_the_command_quietly(leap, format):
    runner = leap.script(["a", "b"])
    env = leap.environment(b"", terminal=False, stdin_terminal=False)
    env.stdout = FailingOutput(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert main(["generate", "-m", "some", "--format", format, "x"], env) == 0
    assert env.stderr.getvalue() == ""
    assert runner.is_unloaded


@pytest.mark.parametrize(
    ("stdout", "reason"),
    [
        (FailingOutput(OSError(errno.ENOSPC, "No space left on device")), "No space left on device"),
        (ClosedOutput(), "Bad file descriptor"),
    ],
)
def test_output_that_cannot_be_written_is_one_line_and_exit_1(leap, stdout, reason):
    leap.script(["a", "b"])
    env = leap.environment(b"", terminal=False, stdin_terminal=False)
    env.stdout = stdout
    assert main(["generate", "-m", "some", "x"], env) == 1
    assert env.stderr.getvalue() == f"leap: error: cannot write the output: {reason}\n"


def test_an_unwritable_stderr_raises_no_second_error(leap):
    env = leap.environment(b"", terminal=False, stdin_terminal=False)
    env.stderr = FailingOutput(OSError(errno.ENOSPC, "No space left on device"))
    assert main(["frobnicate"], env) == 2


def test_an_option_without_its_value_names_the_command(leap):
    done = leap("batch", "-", "--errors")
    assert done.code == 2 and "leap batch --help-all lists what can be given" in done.stderr


def test_an_error_with_advice_has_no_hint(leap):
    done = leap("generate", "--raw", "--system", "Be brief.", "Hi")
    assert done.code == 2 and "(hint:" not in done.stderr
