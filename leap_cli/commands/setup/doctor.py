"""``leap doctor``: whether leap can work here, and if not, why."""

from __future__ import annotations

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import format_choice, leap_command
from ...framework.environment import Environment
from ...framework.option_groups import own_groups
from ...framework.options import Duration
from ...framework.output import Format, Output


@leap_command("doctor", repairs=True)
@click.option(
    "--timeout",
    type=Duration(),
    default="2m",
    show_default=True,
    help="Timeout for the built-in model and a cluster to answer.",
)
@own_groups({"Ray": "leap_cli.options.ray:CHECKED_CLUSTER"})
@format_choice("Output format: text, one JSON document, JSON Lines, or quiet: names of failed checks.")
def command(env: Environment, /, timeout: float, format: str, cluster: tuple[str | None, ...] = (None,)) -> ExitCode:
    """Check the installation: versions, CPU and GPU, directories, disk, configuration, models, the background
    processes, the Ray cluster of --on or RAY_ADDRESS, the hub, and an answer of the built-in model.

    The exit code is 1 if something prevents leap from working. An unreachable hub is only a warning.
    """
    from ...diagnosis.checks import OK, PROBLEM, SKIPPED, checks

    output = Output(env, format)
    results = []
    for check in checks(env, patience=timeout, on=cluster[0]):
        output.progress(f"{check.name}: {check.state}")
        results.append(check)
    unwell = [check for check in results if check.state not in (OK, SKIPPED)]
    listed = unwell if output.format is Format.QUIET else results
    output.records([check.to_json() for check in listed], ["state", "check", "detail"], name="check", wraps=True)
    problems = [check for check in results if check.state == PROBLEM]
    if output.format is Format.TEXT:
        for check in unwell:
            if check.state != PROBLEM and check.advice:
                output.warning(f"{check.name}: {check.advice}")
    for check in problems:
        output.error(f"{check.name}: {check.detail}", check.advice)
    return ExitCode.UNEXPECTED if problems else ExitCode.DONE
