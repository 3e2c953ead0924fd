"""The ``leap`` command: the way in and out of the process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from .command_table import command_line
from .exit_codes import ExitCode
from .framework.environment import Environment
from .framework.interrupts import die_on_interrupt, raise_on_interrupt


def main(args: Sequence[str], env: Environment) -> int:
    """Run one command line in this environment; its exit code. No exception leaves, except SystemExit."""
    try:
        code = _invoke(list(args), env)
        env.stdout.flush()
        return code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BaseException as failure:
        from .framework.error_boundary import report

        return int(report(failure, env))


def _invoke(args: list[str], env: Environment) -> int:
    try:
        with command_line.make_context("leap", args, obj=env) as context:
            code = command_line.invoke(context)
            return int(code) if isinstance(code, int) else ExitCode.DONE  # a plugin may return anything
    except click.exceptions.Exit as finished:  # as after --help and --version
        return finished.exit_code


def run() -> None:
    """The console script."""
    env = Environment.of_process()
    if "_LEAP_COMPLETE" in env.variables:  # the shell asks what may be typed next
        from .completion.shell import answer

        sys.exit(answer(command_line, env))
    raise_on_interrupt()
    try:
        code = main(sys.argv[1:], env)
        die_on_interrupt()
        env.settle()
    except KeyboardInterrupt:  # pressed again while the first was being dealt with
        os._exit(ExitCode.INTERRUPTED)
    sys.exit(code)
