"""Queues a batch as rows: the batch itself, its lines, and the shards of them that workers claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from leap_core.errors import LeapUnavailableError

from .batch_rows import BatchLine, BatchRows, progress_of_batch
from .job import SHARD, NewJob
from .table import Table, dumps, new_id

MOST_SHARDS_WANTED = 64
SMALLEST_SHARD, LARGEST_SHARD = 16, 500
"""Lines of a shard: enough to keep all slots of a model busy, and few enough to be shared out."""


@dataclass(frozen=True)
class NewBatch:
    """``job``: the batch, whose parameters each shard gets too. ``lines`` gives its ``count`` lines anew at each call.
    ``output``: where the results are meant to go, which no other batch may have meanwhile; what earlier ones with it
    have answered is taken over, unless it is to be begun ``anew``. ``max_workers``: shards that run at once."""

    job: NewJob
    lines: Callable[[], Iterator[BatchLine]]
    count: int
    output: str
    anew: bool = False
    max_workers: int | None = None


def add_batch(table: Table, batch: NewBatch) -> str:
    """Queue a batch, wholly or not at all; its id. Raises LeapUnavailableError when another batch has its output."""
    id = new_id()
    parameters = {**batch.job.parameters, "total": batch.count, "reused": 0}
    parent = replace(batch.job, parameters=parameters, kind="batch")

    def add() -> str:
        database = table.database
        busy = database.rows(
            "SELECT id FROM jobs WHERE output=:output AND id<>:id AND state IN ('queued', 'running') FOR UPDATE",
            {"output": batch.output, "id": id},
        )
        if busy:
            hint = f"wait for the job {busy[0]['id']}, or give another output"
            raise LeapUnavailableError(f"another batch writes to {batch.output}", hint=hint)
        table.insert(id, parent, output=batch.output)
        rows = BatchRows(database)
        numbers: list[int] = []
        rows.add_lines(id, _numbered(batch.lines(), numbers))
        reused = 0 if batch.anew else rows.take_over(id, batch.output)
        if reused:
            database.change(
                "UPDATE jobs SET parameters=:parameters WHERE id=:id",
                {"id": id, "parameters": dumps({**parameters, "reused": reused})},
            )
        size = shard_size(batch.count)
        for number, (first, last, count) in enumerate(_stretches(numbers, size)):
            shard = {**batch.job.parameters, "first": first, "last": last, "count": count, "shard": number}
            job = replace(batch.job, kind=SHARD, parameters=shard)
            table.insert(new_id(), job, parent=id, max_workers=batch.max_workers)
        database.announce("queued")
        database.change(
            "UPDATE jobs SET progress=:progress WHERE id=:id",
            {"id": id, "progress": dumps(progress_of_batch(database, id))},
        )
        return id

    return table.database.transaction(add)


def shard_size(count: int) -> int:
    """Lines of each shard of a batch of so many."""
    return max(SMALLEST_SHARD, min(LARGEST_SHARD, math.ceil(count / MOST_SHARDS_WANTED)))


def _numbered(lines: Iterable[BatchLine], numbers: list[int]) -> Iterator[BatchLine]:
    """The lines; their numbers are added to ``numbers``."""
    for line in lines:
        numbers.append(line.number)
        yield line


def _stretches(numbers: Sequence[int], size: int) -> Iterator[tuple[int, int, int]]:
    """First and last number and count of each stretch of ``size`` lines."""
    for start in range(0, len(numbers), size):
        stretch = numbers[start : start + size]
        yield stretch[0], stretch[-1], len(stretch)
