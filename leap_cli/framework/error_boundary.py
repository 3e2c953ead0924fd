"""The one error boundary: an exception becomes one line on stderr and a documented exit code."""

from __future__ import annotations

import errno
import os
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import click

from leap_core import errors

from ..exit_codes import ExitCode
from .environment import Environment
from .output import Output
from .rare_names import NAMES, OPTION

Outcome = TypeVar("Outcome")

EXIT_CODES: tuple[tuple[type[errors.LeapError], ExitCode], ...] = (
    (errors.LeapModelNotDownloadedError, ExitCode.MODEL),
    (errors.LeapNotFoundError, ExitCode.USAGE),
    (errors.LeapOptionsError, ExitCode.USAGE),
    (errors.LeapSerializationError, ExitCode.USAGE),
    (errors.LeapSessionError, ExitCode.USAGE),
    (errors.LeapModelLoadingError, ExitCode.MODEL),
    (errors.LeapModelDownloadError, ExitCode.DOWNLOAD),
    (errors.LeapUnsupportedMediaError, ExitCode.MODEL),
    (errors.LeapGenerationPromptExceedContextLengthError, ExitCode.CONTEXT),
    (errors.LeapSchemaError, ExitCode.SCHEMA),
    (errors.LeapConstraintError, ExitCode.SCHEMA),
    (errors.LeapGuardError, ExitCode.GUARD),
    (errors.LeapGeneratableDeserializationError, ExitCode.SCHEMA),
    (errors.LeapToolError, ExitCode.TOOL),
    (errors.LeapJobError, ExitCode.JOB),
    (errors.LeapUnavailableError, ExitCode.UNAVAILABLE),
)


def exit_code_of(error: errors.LeapError) -> ExitCode:
    """The code of the nearest class in the tree of errors; UNEXPECTED where none is documented."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), ExitCode.UNEXPECTED)


def report(failure: BaseException, env: Environment) -> ExitCode:
    """Say what went wrong, in one line; the exit code. Exceptions that end a program pass through."""
    parts: Sequence[BaseException]
    while len(parts := getattr(failure, "exceptions", ())) == 1:
        failure = parts[0]  # a task group of anyio wraps what one of its tasks raised
    if isinstance(failure, BrokenPipeError):
        return ExitCode.DONE  # the reader closed the pipe; unread notes raise nothing
    failure = errors.of_system_limit(failure) or failure
    if isinstance(failure, click.ClickException):
        return _say(env, *_usage_message(failure), ExitCode.USAGE)
    if isinstance(failure, errors.LeapError):
        return _say(env, failure.message, failure.hint, exit_code_of(failure))
    if isinstance(failure, OSError):
        return _say(env, _system_message(failure), None, ExitCode.UNEXPECTED)
    if isinstance(failure, Exception):
        kept = f"this is a bug in leap; {_keep_traceback(failure, env)}"
        return _say(env, f"{type(failure).__name__}: {failure}", kept, ExitCode.UNEXPECTED)
    raise failure


def outcome_of(work: Callable[[], Outcome]) -> Outcome | errors.LeapError:
    """What ``work`` gives, or the error that it ends with: for protocols in which an error is an answer."""
    try:
        return work()
    except errors.LeapError as error:
        return error


def outcome_or_warning(output: Output, work: Callable[[], Outcome]) -> Outcome | None:
    """What ``work`` gives; where it fails, a warning and None: one broken file does not hide the others."""
    try:
        return work()
    except (errors.LeapError, click.UsageError) as error:
        output.warning(error.message)
        return None


def _say(env: Environment, message: str, hint: str | None, code: ExitCode) -> ExitCode:
    Output(env).error(message, hint)
    return code


def _usage_message(failure: click.ClickException) -> tuple[str, str | None]:
    context = getattr(failure, "ctx", None)
    path = context.command_path if context is not None else "leap"
    said = failure.format_message()
    if type(failure) in (click.UsageError, click.BadParameter) and not said.startswith("Got unexpected"):
        return said, None  # it says itself what can be given
    has_many_options = getattr(getattr(context, "command", None), "has_many_options", False)
    hint = f"{path} {'--help-all' if has_many_options else '--help'} lists what can be given"
    if isinstance(failure, click.exceptions.NoSuchCommand) and path == "leap":
        if failure.command_name == "version":
            return failure.format_message(), "leap --version prints it"
        hint += f"; leap generate {failure.command_name} asks a model"
    if isinstance(failure, click.exceptions.NoSuchCommand) and context is not None:
        pointers = getattr(context.find_root().command, "pointers", {})
        pointer = pointers.get(path.partition(" ")[2], {}).get(failure.command_name)
        if pointer is not None:  # what is known to be meant, instead of what is spelled alike
            return f"No such command {failure.command_name!r}.", pointer
        return f"{failure.message}{_meant(_near(failure.command_name, context.command.list_commands(context)))}", hint
    if isinstance(failure, click.exceptions.NoSuchOption) and context is not None:
        if any(isinstance(each, click.Argument) and each.type is click.UNPROCESSED for each in context.command.params):
            hint += f"; options of another program come after --, as in -- {failure.option_name}"
        return _unknown_option(failure.option_name, failure.message, context), hint
    return failure.format_message(), hint


def _unknown_option(name: str, message: str, context: click.Context) -> str:
    """Names what may be meant: what other programs call so, else what is spelled nearly so."""
    options = [each for each in context.command.params if isinstance(each, click.Option)]
    if any(NAMES.get(name) in (*each.opts, *each.secondary_opts) for each in options):
        return f"{message[:-1]}: {NAMES[name]} sets it."
    names = [flag for each in options if not each.hidden for flag in (*each.opts, *each.secondary_opts)]
    spellings = getattr(context.find_root().command, "spellings", {})
    meant = [each for each, others in spellings.items() if name in others.split()]
    sentence = next((each for each in meant if not each.startswith("-")), None)
    if sentence is not None:
        return f"{message} {sentence}"
    every = {flag for each in options for flag in each.opts}
    known = [each for each in meant if each in every or each.split()[0] in {*names} - {OPTION}]
    return message + _meant(known or _near(name, names))


def _near(word: str, names: Iterable[str]) -> list[str]:
    """Up to three names that the word begins, or that differ from it in few letters."""
    from difflib import get_close_matches  # here, because every start would pay for it

    bare = {each.lstrip("-"): each for each in names}
    word = word.lstrip("-")
    begun = [each for each in bare if len(word) > 2 and each.startswith(word)]
    return [bare[each] for each in (begun or get_close_matches(word, bare, cutoff=NEARNESS))[:3]]


def _meant(names: Sequence[str]) -> str:
    """A question that names them."""
    quoted = [repr(name) for name in names]
    listed = " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
    return f" Did you mean {listed}?" if names else ""


NEARNESS = 0.75
"""Of two spellings, from 0 to 1, above which one may be meant for the other."""


def _system_message(failure: OSError) -> str:
    reason = failure.strerror or str(failure)
    if failure.filename is not None:
        return f"{failure.filename}: {reason}"
    if failure.errno in (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EDQUOT, errno.EFBIG):
        return f"cannot write the output: {reason}"
    return reason


def _keep_traceback(failure: BaseException, env: Environment) -> str:
    text = "".join(traceback.format_exception(type(failure), failure, failure.__traceback__))
    name = f"error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    import tempfile

    from leap_core.system.directories import make_directory

    places = [Path(tempfile.gettempdir())]
    with suppress(errors.LeapError):
        places.insert(0, env.directories.logs)
    for directory in places:
        with suppress(OSError):
            make_directory(directory, 0o700)
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            return f"its traceback is in {directory / name}"
    return "its traceback could not be kept"
