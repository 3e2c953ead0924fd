"""``leap models manifest``: the LEAP SDK's manifests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import leap_group
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...framework.output_format import format_option

FORMAT = format_option("names")


@leap_group("manifest", short_help="Write and check manifests.")
def manifest() -> None:
    """Write and check the LEAP SDK's manifests: which files belong to a model, and how to sample."""


@manifest.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@FORMAT
@click.pass_obj
def check(env: Environment, /, file: Path, format: str) -> ExitCode:
    """Tell everything that is wrong with the manifest FILE, with the keys that were probably meant."""
    from leap_core.models.manifests.manifest import problems_of

    output = Output(env, format)
    problems = problems_of(_read(env, file), str(file))
    records = [
        {"key": problem.path or None, "level": "error" if problem.is_error else "warning", "message": problem.message}
        for problem in problems
    ]
    output.records(records, ["level", "key", "message"], name="key")
    errors = sum(problem.is_error for problem in problems)
    if errors:
        output.error(f"{file} has {errors} error{'s' if errors > 1 else ''}")
        return ExitCode.USAGE
    if output.format is Format.TEXT:
        output.note(f"{file} is a sound manifest")
    return ExitCode.DONE


@manifest.command("create")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    help="Write the manifest to this file instead of standard output.",
)
@click.option("--temperature", type=float, help="Have the manifest recommend this randomness.")
@click.option("--top-p", type=float, help="Have it recommend the likeliest tokens up to this probability.")
@click.option("--min-p", type=float, help="Have it recommend to drop tokens below this share of the likeliest.")
@click.option("--top-k", type=int, help="Have it recommend this many of the likeliest tokens.")
@click.option("--repetition-penalty", type=float, help="Have it recommend this penalty on tokens that came before.")
@click.option(
    "--chat-template",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Have the manifest name this file of Jinja as the chat template.",
)
@click.option("--threads", type=click.IntRange(1), help="Have the manifest recommend this many threads.")
@click.pass_obj
def create(
    env: Environment,
    /,
    model: Path,
    target: Path | None,
    chat_template: Path | None,
    threads: int | None,
    **sampling: Any,
) -> None:
    """Write a manifest for the GGUF file MODEL and the companions beside it."""
    from leap_core.models.maintenance.manifest_creation import create_manifest
    from leap_core.options import SamplingDefaults

    template = None if chat_template is None else _read(env, chat_template).decode("utf-8", "replace")
    made = create_manifest(
        env.cwd / os.path.expanduser(model),
        None if target is None else env.cwd / os.path.expanduser(target),
        sampling=SamplingDefaults(**sampling),
        chat_template=template,
        threads=threads,
        variables=env.variables,
    )
    Output(env).text(made.dumps() if target is None else f"{target}\n")


def _read(env: Environment, file: Path) -> bytes:
    try:
        return (env.cwd / os.path.expanduser(file)).read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from None
