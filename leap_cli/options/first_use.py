"""The first use of a model that is known and not here: at a terminal its user is asked, and it is downloaded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from leap_core.errors import LeapError, LeapModelNotDownloadedError
from leap_core.system.configuration import auto_download

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.interrupts import stopping_on_interrupt
from ..framework.options import in_bytes
from ..framework.output import Output, answers_yes

if TYPE_CHECKING:
    from leap_core.models.resolving import LocalModel

Value = TypeVar("Value")


def downloading_first(env: Environment, reference: str, use: Callable[[], Value]) -> Value:
    """What ``use`` gives. Where it finds the model missing, it is downloaded if its user wants that, and ``use`` is
    called again; else its error is raised."""
    try:
        return use()
    except LeapModelNotDownloadedError:
        if not _is_wanted(env, reference):
            raise
    fetch(env, reference)
    return use()


def have_here(env: Environment, reference: str) -> None:
    """Download a model that is used later, if it is missing and its user wants that. Other problems of a name are left
    to those who use it."""
    from leap_core.models.resolving import Registry

    try:
        Registry(env.variables, env.cwd).find(reference)
    except LeapModelNotDownloadedError:
        if _is_wanted(env, reference):
            fetch(env, reference)
    except LeapError:
        pass


def fetch(env: Environment, reference: str) -> LocalModel:
    """Download a model with its progress. Ctrl-C ends the command, and the next one resumes the download."""
    from leap_core.models.download.downloading import Download
    from leap_core.models.http import DownloadStopped

    from ..framework.download_line import DownloadPrinter

    output, stop = Output(env), threading.Event()  # its events are no part of the result
    download = Download(on_event=DownloadPrinter(output), stop=stop, variables=env.variables, cwd=env.cwd)
    with stopping_on_interrupt(stop.set):
        try:
            return download.run(reference, None, None)
        except DownloadStopped:
            output.note("stopped; the same command resumes the download from here")
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


def _is_wanted(env: Environment, reference: str) -> bool:
    """Whether to download, which a terminal is asked. Raises LeapModelDownloadError where the hub cannot say what."""
    from leap_core.models.hub_settings import HubSettings

    wish = auto_download(env.directories.config_file, env.variables)
    can_ask = env.stdin_is_terminal and env.stderr_is_terminal
    if wish == "no" or (wish == "ask" and not can_ask) or HubSettings.from_environment(env.variables).offline:
        return False
    if wish == "yes":
        return True
    question = _question(env, reference)
    return question is not None and answers_yes(env, question, otherwise=True)


def _question(env: Environment, reference: str) -> str | None:
    """What to ask; None where there is nothing to download, such as for a folder of leap whose files are damaged."""
    from leap_core.models.download.downloading import Download

    plan = Download(variables=env.variables, cwd=env.cwd).plan(reference, None, None)
    if plan is None:
        return None
    license = f"license {plan.license}" if plan.license else "no license named"
    what = f"{reference} ({plan.source}, {plan.quantization}, {in_bytes(plan.total_bytes)}, {license})"
    return f"{what} is not on this machine; download it? [Y/n] "
