"""The options of commands that can hand their work to the background, and how the job's id is printed."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from ..completion.value_types import JobId
from ..exit_codes import ExitCode
from ..framework.arguments import CommandLine
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import Moment, option
from ..framework.output import Format, Output
from .answer import STANDARD

if TYPE_CHECKING:
    from jobs.client import Following, JobsClient, Policy


@dataclass(frozen=True)
class Background:
    """Whether the work is a job's, and of which kind. ``fields``: those of its Policy. ``at``: the moment when it
    begins, in seconds since 1970; None as soon as it can. ``line``: what was typed, but for these options; None where
    no job is wanted."""

    fields: Mapping[str, Any]
    at: float | None = None
    line: CommandLine | None = None

    def __bool__(self) -> bool:
        return self.line is not None

    @property
    def comes_after_jobs(self) -> bool:
        """Whether it waits for other jobs, which may bring what it needs."""
        return bool(self.fields["after"] or self.fields["after_any"])

    @property
    def policy(self) -> Policy:
        """Priority, retries and so on as the jobs' client takes them."""
        from jobs.client import Policy

        assert self.line is not None
        delay = 0.0 if self.at is None else max(0.0, self.at - time.time())
        return Policy(delay=delay, command=self.line.words, **self.fields)

    def has(self, *flags: str) -> bool:
        """Whether one of these options, by their long names, was typed beside it."""
        return self.line is not None and any(each.partition("=")[0] in flags for each in self.line.options)

    def repeats_command(self, env: Environment) -> bool:
        """Whether each run is to be the command that was typed: it reads its files anew. Jobs of a server are what was
        asked for once, for they run on any machine."""
        from jobs.configuration import JobsConfiguration

        return self.fields["every"] is not None and not JobsConfiguration.from_environment(env.variables).is_shared

    def submit(self, env: Environment, output: Output, model: str | None = None) -> ExitCode:
        """Queue the command that was typed, where it was typed and with what came from standard input, and print the
        job's id. ``model``: the one that answers where none was typed. Raises UsageError on a server."""
        assert self.line is not None
        line = self.line if model is None else self.line.with_option(f"--model={model}")
        with open_jobs(env) as jobs:
            if jobs.configuration.is_shared:
                given = " ".join(each.partition("=")[0] for each in line.options)
                raise click.UsageError(f"a job on a server runs no command of this machine: {given} cannot all be done")
            id = jobs.command(
                line.words,
                label=shlex.join(self.line.words),
                cwd=env.cwd,
                policy=self.policy,
                outputs=line.outputs,
                standard_input=env.consumed or None,
            )
            print_id(output, id)
        return ExitCode.DONE


_option = partial(option, saved=None, implies="background")
"""An option that makes a job, as ``--background`` does."""
_OPTIONS = (
    option("--background", is_flag=True, saved=None, help="Run as a background job and print its id (leap jobs)."),
    option(
        "--priority",
        saved=None,
        type=click.IntRange(-1000, 1000),
        default=0,
        help="Job priority; higher numbers run first.",
    ),
    _option("--at", type=Moment(), help="Start the job at this time: +90m, 22:00 or 2026-12-01T06:00."),
    _option("--every", metavar="TIME", help='Repeat the job: every 6h, or cron: "0 9 * * 1-5 [ZONE]".'),
    option(
        "--missed",
        saved=None,
        type=click.Choice(["run", "skip"]),
        default="run",
        help="Run missed schedules once (default), or skip them.",
    ),
    option(
        "--on-overlap",
        "overlap",
        saved=None,
        type=click.Choice(["skip", "queue"]),
        default="skip",
        help="If the previous run is still running, skip a run (default) or queue it.",
    ),
    _option("--after", multiple=True, type=JobId(), help="Start after this job has succeeded."),
    _option("--after-any", multiple=True, type=JobId(), help="Start after this job has ended, successful or not."),
    _option(
        "--then", metavar="COMMAND", help="Run this command when the job has ended; LEAP_JOB_STATE holds its state."
    ),
    _option("--notify", is_flag=True, help="Show a desktop notification when the job has ended."),
    _option("--webhook", metavar="URL", help="Webhook: POST to this URL when the job has ended."),
    option("--webhook-data", is_flag=True, saved=None, help="Include the job's label and result in the webhook."),
)
OF_A_JOB = ("priority", "job_retries", "missed", "overlap", "webhook_data")
"""Options that say more about a job, and make none."""
_RETRIES = option(
    "--job-retries",
    saved=None,
    type=click.IntRange(0, 1000),
    default=2,
    help="Retry a failed job up to this many times.",
)


def _build(arguments: Arguments) -> Background:
    wanted = any(arguments[name] not in (None, False, ()) for name in arguments.sharing_rules("background"))
    for name in ("every", "then", "webhook"):
        if arguments[name] is not None and not arguments[name].strip():
            raise click.UsageError(f"{arguments.flag(name)} is empty")
    needs = {**dict.fromkeys(OF_A_JOB, "background"), "missed": "every", "overlap": "every", "webhook_data": "webhook"}
    for name, needed in needs.items():
        if arguments.is_typed(name) and not (wanted if needed == "background" else arguments[needed]):
            raise click.UsageError(f"{arguments.flag(name)} goes with {arguments.flag(needed)}")
    fields = arguments.of("priority", "after", "after_any", "every", "missed", "overlap")
    fields |= {"retries": arguments.get("job_retries") or 0, "then": _following(arguments)}
    line = arguments.command_line(without=(*arguments.sharing_rules("background"), *OF_A_JOB)) if wanted else None
    return Background(fields, arguments["at"], None if arguments.get("dry_run") else line)


def _following(arguments: Arguments) -> Following | None:
    if not any(arguments[name] for name in ("then", "notify", "webhook")):
        return None
    from jobs.client import Following

    return Following(
        arguments["then"], arguments["notify"], arguments["webhook"], arguments["webhook_data"], arguments.env.cwd
    )


_NOT_OF_A_JOB = ("continue_last", "session", "save", "host", "prompt_cache", "verbose")
EXCLUDED = {"background": _NOT_OF_A_JOB}
"""Options of a command that a job does not have."""
BACKGROUND = OptionGroup("background", "Background", (*_OPTIONS, _RETRIES), _build, EXCLUDED)
DOWNLOAD_BACKGROUND = OptionGroup("background", "Background", _OPTIONS, _build)
"""Without retries: a download continues by itself."""


def print_id(output: Output, id: str) -> None:
    """Print the id of a submitted job, and nothing else."""
    if output.format is Format.JSON:
        output.document({"id": id})
    elif output.format is Format.JSONL:
        output.event({"id": id})
    else:
        output.text(f"{id}\n")


def open_jobs(env: Environment, *, autostart: bool = True) -> JobsClient:
    """The client of this user's jobs. ``autostart``: it starts a worker where there is work."""
    from jobs.client import JobsClient

    return JobsClient(env.variables, autostart=autostart, on_warning=Output(env, Format.TEXT).note)


def check_apart(env: Environment, files: Mapping[str, str | Path | None]) -> None:
    """Refuse one file under two flags: a new one takes its place. Raises UsageError."""
    flags: dict[Path, str] = {}
    for flag, name in files.items():
        if name is None or name == STANDARD:
            continue
        place = Path(os.path.realpath(env.cwd / name))
        if place.exists() and not place.is_file():
            continue
        if place in flags:
            raise click.UsageError(f"{flags[place]} and {flag} name the same file, {place.name}")
        flags[place] = flag
