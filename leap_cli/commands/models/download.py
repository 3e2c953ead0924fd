"""``leap download``: fetch a model, or what is missing of it."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import click

from ...completion.value_types import ModelName
from ...display.downloads import DownloadReport
from ...exit_codes import ExitCode
from ...framework.click_classes import format_choice, leap_command
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_of
from ...framework.interrupts import stopping_on_interrupt
from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import Duration, option
from ...framework.output import Output
from ...options.background import DOWNLOAD_BACKGROUND, Background, open_jobs

if TYPE_CHECKING:
    from leap_core.models.download.downloading import DownloadOptions


def _options(arguments: Arguments) -> DownloadOptions:
    from leap_core.models.download.downloading import DownloadOptions

    plain = arguments.of("force", "connections", "retries")
    return DownloadOptions(**plain, stall_seconds=arguments["timeout"])


TRANSFER = OptionGroup(
    "options",
    "",
    (
        option("--replace", "force", is_flag=True, help="Download the files again even if they exist."),
        option(
            "--connections",
            type=click.IntRange(1, 16),
            default=4,
            show_default=True,
            help="Number of parallel connections, at most.",
        ),
        option(
            "--retries",
            type=click.IntRange(0, 1000),
            default=5,
            show_default=True,
            help="Stop after this many failures in a row.",
        ),
        option(
            "--stall-timeout",
            "timeout",
            type=Duration(),
            help="Drop a connection without data for this time; 20s by default.",
        ),
    ),
    _options,
)


@leap_command("download")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=ModelName())
@click.option("--quant", metavar="QUANT", help="Quantization, such as Q4_K_M; the same as MODEL:QUANT.")
@click.option("--revision", metavar="REV", help="Fetch from this branch, tag or commit of the repository.")
@TRANSFER
@click.option("--dry-run", is_flag=True, help="Show files, sizes and destination; download nothing.")
@format_choice("Output format: the model's path (text and quiet), one JSON document, or one JSON event per line.")
@DOWNLOAD_BACKGROUND
def command(
    env: Environment,
    /,
    models: tuple[str, ...],
    quant: str | None,
    revision: str | None,
    options: DownloadOptions,
    dry_run: bool,
    format: str,
    background: Background,
) -> ExitCode:
    """Download each MODEL if it is not installed, and print the path of its file. A model that another program has on
    this machine is used in place; --replace downloads it all the same.

    MODEL is a name of `leap models catalogue`, such as LFM2.5-1.2B-Instruct or LFM2.5-1.2B-Instruct:Q8_0, a repository
    (owner/repo[:QUANT]), a file in one (hf:owner/repo/file.gguf), or the URL of a GGUF file or manifest. An interrupted
    download resumes where it stopped, even after a power failure.

    Several models are downloaded one after another; if one fails, the others still are, and the exit code is that of
    the first failure. With --background each is a job of its own.
    """
    from leap_core.models.download.downloading import Download
    from leap_core.models.http import DownloadStopped

    output = Output(env, format)
    report, stop = DownloadReport(output, models), threading.Event()

    def begin(model: str) -> Download | None:
        """The download; None for a model of another program, which has been reported."""
        show = report.printer(model)
        download = Download(options, on_event=show, stop=stop, variables=env.variables, cwd=env.cwd)
        found = download.in_place(model, quant) if revision is None else None
        if found is None:
            return download
        report.take_plan(model, None) if dry_run else report.take(model, found)
        return None

    if background and not dry_run:
        with open_jobs(env) as jobs:
            for model in models:
                if begin(model) is None:
                    continue
                submit = partial(
                    jobs.download,
                    model,
                    quantization=quant,
                    revision=revision,
                    options=vars(options),
                    policy=background.policy,  # the download itself bears the failures that ``retries`` says
                    cwd=env.cwd,
                )
                report.take_job(model, outcome_of(submit))
        return report.end()
    with stopping_on_interrupt(stop.set):
        for model in models:
            if (download := begin(model)) is None:
                continue
            if dry_run:
                report.take_plan(model, outcome_of(partial(download.plan, model, quant, revision)))
                continue
            outcome = outcome_of(partial(download.run, model, quant, revision))
            if isinstance(outcome, DownloadStopped):
                report.end()
                output.note("stopped; the same command resumes from here")
                return ExitCode.INTERRUPTED
            report.take(model, outcome)
    return report.end()
