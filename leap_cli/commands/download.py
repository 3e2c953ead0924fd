"""``leap download``: fetch a model, or what is missing of it."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.interrupts import stopping_on_interrupt
from ..framework.output import Format, Output
from ..options.background import background_flags, policy_of, tell_id
from ..options.output_format import FormatChoice
from ..options.value_types import ModelName, in_bytes

if TYPE_CHECKING:
    from leap_core.models.download.events import Event, Progress
    from leap_core.models.download.plan import DownloadPlan

BAR_CELLS = 16
SHORTEST_NAME = 12


@leap_command("download")
@click.argument("model", type=ModelName())
@click.option("--quant", metavar="QUANT", help="Quantization, such as Q4_K_M; the same as MODEL:QUANT.")
@click.option("--revision", metavar="REV", help="Branch, tag or commit of the repository.")
@click.option("--force", is_flag=True, help="Fetch the files again, even if they are here.")
@click.option("--dry-run", is_flag=True, help="Show files, sizes and destination, and fetch nothing.")
@click.option("--connections", type=click.IntRange(1, 16), default=4, show_default=True, help="Most at once.")
@click.option(
    "--retries", type=click.IntRange(0, 1000), default=5, show_default=True, help="Failures in a row to bear."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 86_400),
    metavar="SECONDS",
    help="How long a connection may be silent; 20 by default.",
)
@click.option(
    "--format",
    type=FormatChoice([each.value for each in Format]),
    default=Format.TEXT.value,
    help="text and quiet print the model's path; json one document; jsonl each event as it comes.",
)
@background_flags(with_retries=False)
@click.pass_obj
def command(
    env: Environment,
    /,
    model: str,
    quant: str | None,
    revision: str | None,
    force: bool,
    dry_run: bool,
    connections: int,
    retries: int,
    timeout: float | None,
    format: str,
    background: bool,
    priority: int,
) -> ExitCode:
    """Make sure that MODEL is on this machine, and print the path of its file.

    MODEL is a name of `leap models catalogue`, such as LFM2.5-1.2B-Instruct or LFM2.5-1.2B-Instruct:Q8_0, a
    repository (owner/repo[:QUANT]), a file in one (hf:owner/repo/file.gguf), or the URL of a GGUF file or manifest. A
    download that was interrupted, even by a power failure, goes on where it stopped.
    """
    from leap_core.models.download.download import Download, DownloadOptions
    from leap_core.models.hub.retries import DownloadStopped

    output = Output(env, format)
    stop = threading.Event()
    options = DownloadOptions(force=force, connections=connections, retries=retries, stall_seconds=timeout)
    if background and not dry_run:
        from jobs.client import JobsClient

        with JobsClient(env.variables) as jobs:
            id = jobs.download(
                model,
                quantization=quant,
                revision=revision,
                options=vars(options),
                policy=policy_of(priority, 0),  # the download itself bears the failures that --retries says
                cwd=env.cwd,
            )
        tell_id(output, id)
        return ExitCode.DONE
    download = Download(options, on_event=_EventPrinter(output), stop=stop, variables=env.variables, cwd=env.cwd)
    with stopping_on_interrupt(stop.set):
        try:
            if dry_run:
                _show_plan(output, download.plan(model, quant, revision))
                return ExitCode.DONE
            found = download.run(model, quant, revision)
        except DownloadStopped:
            output.note("stopped; the same command goes on from here")
            return ExitCode.INTERRUPTED
    if output.format is Format.JSON:
        output.document({"model": found.model_id, "path": str(found.path), "kind": found.kind})
    elif output.format is not Format.JSONL:
        output.text(f"{found.path}\n")
    return ExitCode.DONE


class _EventPrinter:
    """Shows events: a bar on a terminal, one line for what deserves it, JSON lines where they were asked for."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def __call__(self, event: Event) -> None:
        from leap_core.models.download.events import Notice, Progress

        if self._output.format is Format.JSONL:
            self._output.event(event.to_json())
        elif isinstance(event, Progress):
            self._output.progress(bar(event, shutil.get_terminal_size().columns - 1))
        elif isinstance(event, Notice):
            self._output.note(event.message)


def bar(progress: Progress, width: int) -> str:
    """``LFM2-350M-Q4_0.gguf [######......] 45 % 98 MB of 219 MB 12.3 MB/s 0:10``, in at most ``width`` columns."""
    part = progress.bytes / progress.total if progress.total else 1.0
    done = "#" * int(part * BAR_CELLS)
    amounts = f"{int(part * 100)} % {in_bytes(progress.bytes)} of {in_bytes(progress.total)}"
    amounts += f" {in_bytes(int(progress.speed))}/s{_left(progress.eta)}"
    room = width - len(amounts) - 1
    cells = f"[{done:.<{BAR_CELLS}}] " if room > BAR_CELLS + 3 + SHORTEST_NAME else ""
    name = progress.file
    if len(name) > room - len(cells):
        kept = max(room - len(cells) - 1, 0)
        name = f"{name[: kept // 2]}…{name[len(name) - (kept - kept // 2) :]}" if kept else ""
    return f"{name} {cells}{amounts}"[:width]


def _left(eta: float | None) -> str:
    if eta is None or eta >= 360_000:
        return ""
    minutes, seconds = divmod(int(eta), 60)
    hours, minutes = divmod(minutes, 60)
    return f" {hours}:{minutes:02d}:{seconds:02d}" if hours else f" {minutes}:{seconds:02d}"


def _show_plan(output: Output, plan: DownloadPlan | None) -> None:
    if plan is None:
        output.note("this is on this machine already; nothing would be fetched")
        return
    for notice in plan.notices:
        output.note(notice)
    records = [
        {
            "file": file.name,
            "role": file.role,
            "bytes": file.remote.size,
            "size": in_bytes(file.remote.size),
            "destination": str(plan.directory / file.name),
            "url": file.remote.url,
            "sha256": file.remote.sha256,
        }
        for file in plan.files
    ]
    output.records(records, ["file", "role", "size", "destination"], name="destination")
    if output.format is Format.TEXT:
        output.note(f"{in_bytes(plan.total_bytes)} in all; nothing was fetched")
