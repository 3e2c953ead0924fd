"""The options of a batch: where lines come from, where results go, and which machines answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.batch.options import ESCALATION, LIMITS, BatchLimits
from leap_core.system.dataclass import dataclass
from leap_core.system.features import own_parts

from ..completion.value_types import ModelName
from ..framework.arguments import FileName
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..input.prompt import INPUT
from .option_rows import checked, option_of
from .prompt import TEMPLATE_OPTIONS, checked_template, read_system_option

if TYPE_CHECKING:
    from leap_core.batch.settings import Part


@dataclass(frozen=True)
class BatchOptions:
    """``fields``: those of BatchSettings that are neither of the model nor of its answers. ``reasons``: the model is
    let reason. ``quiet``: no summary at the end. ``workers``: how many may answer at once."""

    fields: Mapping[str, Any]
    reasons: bool
    quiet: bool
    workers: int | None


def concurrency_option(what: str) -> Callable[[Any], Any]:
    """``--concurrency``; ``what`` is answered at once."""
    row = LIMITS["concurrency"]
    return option_of(row, default=row.default, show_default=True, help=row.text.replace("lines", what))


def concurrency_in(arguments: Arguments) -> int:
    """What ``--concurrency`` says. Raises LeapOptionsError for a value outside its range."""
    return checked(BatchLimits, LIMITS, arguments.of("concurrency")).concurrency


_OPTIONS = (
    click.argument("source", type=FileName(), metavar="INPUT"),
    *TEMPLATE_OPTIONS,
    option(
        "-s", "--system", heading="Prompt", help="System prompt for lines that have none; @FILE reads it from a file."
    ),
    option("--pattern", heading="Prompt", help="Prompt template over each line's fields: 'Translate: {text}'."),
    option(
        "-o",
        "--output",
        "target",
        type=FileName(),
        default="-",
        heading="Answer",
        help="Write results to this file; - (default) is standard output.",
    ),
    concurrency_option("lines"),
    *(option_of(LIMITS[name]) for name in ("requests_per_minute", "tokens_per_minute")),
    option_of(ESCALATION["escalate_to"], type=ModelName()),
    option_of(ESCALATION["when"], metavar="REASONS"),
    option_of(ESCALATION["check"], metavar="QUESTION"),
    option(
        "--input-format",
        type=click.Choice(["jsonl", "json", "csv", "tsv", "lines", "parquet"]),
        help="Format of INPUT; by default the file extension decides, else jsonl.",
    ),
    option(
        "--format",
        "output_format",
        type=click.Choice(["auto", "openai", "plain", "text", "csv", "tsv", "parquet"]),
        default="auto",
        show_default=True,
        heading="Answer",
        help="Output format: OpenAI batch results, plain JSON, text, or a table; auto is plain where INPUT is plain.",
    ),
    option("--errors", metavar="FILE", help="Write failed lines to FILE instead of the output."),
    option(
        "--keep-fields/--no-keep-fields",
        default=None,
        help="Copy the fields of each line to its plain result; default for tables.",
    ),
    option(
        "--speak",
        "speech",
        metavar="DIR",
        heading="Answer",
        help="Write a spoken answer for each line as WAV to this directory.",
    ),
    option("--ordered/--unordered", default=True, help="Write results in input order (default), or as they finish."),
    option("--skip-invalid", is_flag=True, help="Skip invalid lines instead of refusing the file."),
    option("--replace", "overwrite", is_flag=True, help="Start over and replace the output."),
    option("--journal", type=FileName(), help="Record progress in this file; by default next to the output."),
    option("-q", "--quiet", is_flag=True, wish=True, help="Print no summary at the end."),
    option("--max-workers", type=click.IntRange(1), help="Use at most this many workers at once; needs jobs_url."),
    option(
        "--tools-file",
        "--tools",
        "tools",
        type=FileName(),
        heading="Tools",
        help="Tools for lines that declare none: OpenAI's JSON list.",
    ),
    option(
        "--keep-reasoning",
        "show_thinking",
        is_flag=True,
        heading="Reasoning",
        help="Enable reasoning and keep it in the results.",
    ),
)
PLAIN = ("ordered", "skip_invalid", "overwrite", "input_format", "keep_fields", "escalate_to", "check")
"""Options that are fields of BatchSettings unchanged."""


def _build(arguments: Arguments) -> BatchOptions:
    env = arguments.env
    pattern, variables = _prompts(arguments)
    tools, speech = arguments["tools"], arguments["speech"]
    fields = {
        **arguments.of(*PLAIN),
        **vars(checked(BatchLimits, LIMITS, arguments.of(*LIMITS))),
        **{name: _place(env, arguments[name]) for name in ("source", "journal", "errors")},
        "output": _place(env, arguments["target"]),
        "system": read_system_option(arguments),
        "template": pattern,
        "variables": variables,
        "tools": [] if tools is None else _read_tools(env.cwd / tools, tools),
        "format": arguments["output_format"],
        "speech": _place(env, speech),
        "directory": str(env.cwd),
    }
    if arguments["when"] is not None:
        if arguments["escalate_to"] is None:
            raise click.UsageError("--escalate-when needs --escalate-to MODEL, which answers then")
        fields["when"] = arguments["when"]
    if arguments["check"] is not None and arguments["escalate_to"] is None:
        raise click.UsageError("--check needs --escalate-to MODEL, which answers then")
    return BatchOptions(fields, arguments["show_thinking"], arguments["quiet"], arguments["max_workers"])


BATCH = OptionGroup("batch", "", _OPTIONS, _build, {"background": ("quiet",)})


def _prompts(arguments: Arguments) -> tuple[str | None, dict[str, str] | None]:
    """What makes the prompts of lines: a pattern, and the values of a saved prompt's variables, which a line's own
    fields override; None without one."""
    pattern, chosen = arguments["pattern"], checked_template(arguments["template"], of_lines=True)
    if chosen is None or chosen.template.prompt == INPUT:
        return pattern, None
    if pattern is not None:
        raise click.UsageError("--pattern cannot be combined with --template")
    return chosen.pattern.escaped(chosen.template.declared), dict(chosen.values)


def _place(env: Environment, path: str | None) -> str | None:
    """A path as this command's user means it, valid in any directory; "-" and URLs stay."""
    from leap_core.batch.input.remote_files import is_url

    return path if path is None or path == "-" or is_url(path) else str(env.cwd / path)


def _read_tools(path: Path, name: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise click.UsageError(f"cannot read {name}: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, list):
        raise click.UsageError(f"{name} is not a JSON list of functions")
    return value


SHARD = re.compile(r"(\d{1,9})/(\d{1,9})")


@dataclass(frozen=True)
class Machines:
    """``part``: of the lines, that alone is answered. ``merge``: so many parts are put together. ``on``: the cluster
    that answers, with so many ``workers``."""

    part: Part | None = None
    merge: int | None = None
    on: str | None = None
    workers: str | None = None


CLUSTERS = tuple(own_parts({"Ray": "leap_cli.options.ray:CLUSTER"}).values())
_MACHINE_OPTIONS = (
    *CLUSTERS,
    option(
        "--shard",
        metavar="I/N",
        help="Process only the I-th of N parts of the input; each part has its own output and journal.",
    ),
    option("--merge", type=click.IntRange(1, 100_000), help="Merge the outputs of N parts in input order."),
)


def _build_machines(arguments: Arguments) -> Machines:
    from leap_core.batch.settings import Part

    on, workers = next((group.build(arguments) for group in CLUSTERS), (None, None))
    shard, merge = arguments["shard"], arguments["merge"]
    if (shard is not None or merge is not None) and arguments.get("target") == "-":
        name = "--merge" if shard is None else "--shard"
        raise click.UsageError(f"{name} needs -o FILE, the output of the whole batch")
    if shard is None:
        return Machines(None, merge, on, workers)
    match = SHARD.fullmatch(shard)
    if match is None:
        raise click.UsageError(f"--shard {shard}: write it as 3/7, the third of seven parts")
    return Machines(Part(int(match[1]), int(match[2])), None, on, workers)


EXCLUDED = {"shard": ("merge", "background"), "merge": ("background", "on"), "on": ("host", "verbose")}
MACHINES = OptionGroup("machines", "Cluster", _MACHINE_OPTIONS, _build_machines, EXCLUDED)
