"""The options of a batch that more than one process, or more than one machine, answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option

if TYPE_CHECKING:
    from leap_core.batch.part import Part

SHARD = re.compile(r"(\d{1,9})/(\d{1,9})")


@dataclass(frozen=True)
class Machines:
    """``part``: of the lines, that alone is answered. ``merge``: so many parts are put together."""

    part: Part | None = None
    merge: int | None = None


_OPTIONS = (
    option(
        "--shard",
        metavar="I/N",
        help="Answer the I-th of N parts of the lines, with an output and a journal of its own.",
    ),
    option(
        "--merge",
        type=click.IntRange(1, 100_000),
        metavar="N",
        help="Put the outputs of N parts together, in the order of the input.",
    ),
)


def _build(arguments: Arguments) -> Machines:
    from leap_core.batch.part import Part

    shard, merge = arguments["shard"], arguments["merge"]
    if (shard is not None or merge is not None) and arguments.get("target") == "-":
        name = "--merge" if shard is None else "--shard"
        raise click.UsageError(f"{name} needs -o FILE, the output of the whole batch")
    if shard is None:
        return Machines(merge=merge)
    match = SHARD.fullmatch(shard)
    if match is None:
        raise click.UsageError(f"--shard {shard}: write it as 3/7, the third of seven parts")
    return Machines(Part(int(match[1]), int(match[2])))


EXCLUDED = {"shard": ("merge", "background"), "merge": ("background",)}
MACHINES = OptionGroup("machines", "Machines", _OPTIONS, _build, EXCLUDED)
