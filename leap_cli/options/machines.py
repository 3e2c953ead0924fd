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
    """``part``: of the lines, that alone is answered. ``merge``: so many parts are put together. ``on``: the cluster
    that answers, with so many ``workers``."""

    part: Part | None = None
    merge: int | None = None
    on: str | None = None
    workers: str | None = None


_OPTIONS = (
    option(
        "--on",
        metavar="CLUSTER",
        help="Let a Ray cluster answer: ray (RAY_ADDRESS, this machine's, or a new one), or ray://HOST:10001.",
    ),
    option(
        "--workers",
        metavar="N|MIN..MAX",
        help="Load the model this many times on the cluster; by default where there is room.",
    ),
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
    from leap_core.clusters.opening import address_of, numbers_of_workers

    on, workers = arguments["on"], arguments["workers"]
    if workers is not None and on is None:
        raise click.UsageError("--workers needs --on, the cluster that they are of")
    if on is not None:
        address_of(on, arguments.env.variables)
        numbers_of_workers(workers)
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
MACHINES = OptionGroup("machines", "Machines", _OPTIONS, _build, EXCLUDED)
