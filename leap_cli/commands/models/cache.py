"""``leap models cache``: prompts whose state is kept on disk for ``--prompt-cache``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ...framework.click_classes import format_choice, format_option, leap_group
from ...framework.environment import Environment
from ...framework.options import Duration, in_bytes, in_words
from ...framework.output import Format, Output
from ...options.loading import prompt_cache_directory

if TYPE_CHECKING:
    from leap_core.inference.engine.snapshots import SnapshotFile


@leap_group("cache", short_help="Show and clear the prompt cache.")
def cache() -> None:
    """The prompt cache: states of long prompts that --prompt-cache keeps on disk, so that later commands skip them.

    Each belongs to one model file and its loading options. When --option prompt-cache-size is reached, the least
    recently used ones are deleted.
    """


@cache.command("list")
@format_option("paths")
def list_cache(env: Environment, /, format: str) -> None:
    """List the cached prompts, most recently used first."""
    output = Output(env, format)
    files = _files(env)
    if output.format is Format.TEXT:
        rows = [
            {
                "tokens": "damaged" if each.tokens is None else each.tokens,
                "size": in_bytes(each.bytes),
                "used": f"{in_words(max(0, time.time() - each.used))} ago",
                "model": each.scope[:8],
            }
            for each in files
        ]
        none = "nothing is kept; `leap generate --prompt-cache` keeps long prompts"
        output.records(rows, ["tokens", "size", "used", "model"], name="model", none=none)
    else:
        output.records([_record(each) for each in files], ["path", "tokens", "bytes"], name="path")


@cache.command("info")
@format_choice("Output format: text, or one JSON document.", [Format.TEXT.value, Format.JSON.value])
def info(env: Environment, /, format: str) -> None:
    """Show the location, number and size of cached prompts."""
    output = Output(env, format)
    files = _files(env)
    total = sum(each.bytes for each in files)
    is_text = output.format is Format.TEXT
    output.record(
        {
            "directory": str(prompt_cache_directory(env)),
            "prompts": len(files),
            "models": len({each.scope for each in files}),
            "tokens": sum(each.tokens or 0 for each in files),
            "bytes": in_bytes(total) if is_text else total,
        },
        name="directory",
    )


@cache.command("clear")
@click.option("--older-than", type=Duration(), help="Remove only prompts not used for this time, such as 30d.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
def clear(env: Environment, /, older_than: float | None, dry_run: bool) -> None:
    """Delete cached prompts. Only time is lost: they are processed again when needed."""
    from leap_core.inference.engine.snapshots import remove_snapshots

    output = Output(env)
    files = [each for each in _files(env) if older_than is None or time.time() - each.used >= older_than]
    count = len(files) if dry_run else remove_snapshots(files, prompt_cache_directory(env))
    output.note(f"{'would remove' if dry_run else 'removed'} {count} cached prompts, {in_bytes(_size(files))}")


def _files(env: Environment) -> list[SnapshotFile]:
    from leap_core.inference.engine.snapshots import snapshot_files

    return snapshot_files(prompt_cache_directory(env))


def _size(files: Sequence[SnapshotFile]) -> int:
    return sum(each.bytes for each in files)


def _record(each: SnapshotFile) -> dict[str, Any]:
    used = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each.used))
    return {"path": str(each.path), "model": each.scope, "tokens": each.tokens, "bytes": each.bytes, "used": used}
