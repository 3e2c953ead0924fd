"""Queues a batch as rows: the batch itself, its lines, and the shards of them that workers claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from leap_core.errors import LeapUnavailableError

from .batch_rows import BatchLine, BatchRows, counted_anew, progress_of_batch
from .contract import Conflict, Database
from .job import SHARD, SHARD_VERSION, NewJob
from .shared_claims import wake
from .table import Table, dumps, new_id
from .worker_rows import ALIVE_SECONDS

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
        table.insert(id, parent, output=batch.output)
        rows = BatchRows(database)
        numbers: list[int] = []
        rows.add_lines(id, _numbered(batch.lines(), numbers))
        if not batch.anew:
            rows.take_over(id, batch.output)
        counted_anew(database, id)
        reused = int(database.rows("SELECT done FROM jobs WHERE id=:id", {"id": id})[0]["done"])
        stretches = list(_stretches(numbers, shard_size(batch.count)))
        _insert_shards(database, id, batch, stretches)
        database.change(
            "UPDATE jobs SET parameters=:parameters, open_shards=:count WHERE id=:id",
            {"id": id, "parameters": dumps({**parameters, "reused": reused}), "count": len(stretches)},
        )
        database.change(
            "UPDATE jobs SET progress=:progress WHERE id=:id",
            {"id": id, "progress": dumps(progress_of_batch(database, id))},
        )
        count = min(len(stretches), batch.max_workers or len(stretches))
        wake(database, {(SHARD, parent.model, parent.machine): count}, ALIVE_SECONDS)
        return id

    try:
        return table.database.transaction(add)
    except Conflict:
        busy = table.in_use(batch.output)
        if busy == id:  # the connection was lost after this had been committed
            return id
        hint = f"wait for the job {busy}, or give another output" if busy else "try again"
        raise LeapUnavailableError(f"another batch writes to {batch.output}", hint=hint) from None


def _insert_shards(database: Database, parent: str, batch: NewBatch, stretches: Sequence[tuple[int, int, int]]) -> None:
    """Queue the shards; beyond ``max_workers`` each is held back till another one has ended. What all of them have in
    common is among the parameters of the batch."""
    job, most = batch.job, batch.max_workers
    columns = [
        *("id", "kind", "state", "parameters", "priority", "retries", "run_after", "model", "machine", "origin"),
        *("version", "parent", "max_workers", "held", "created"),
    ]
    shared = (job.priority, job.retries, job.run_after, job.model, job.machine, job.origin, SHARD_VERSION, parent, most)
    (created,) = database.rows("SELECT leap_now() AS now")
    database.insert_rows(
        "jobs",
        columns,
        (
            (
                f"{parent}.{n}",
                SHARD,
                "queued",
                dumps({"first": first, "last": last, "count": count, "shard": n}),
                *shared,
                int(most is not None and n >= most),
                created["now"],
            )
            for n, (first, last, count) in enumerate(stretches)
        ),
    )


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
