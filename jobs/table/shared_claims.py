"""Finding work in a table that many workers share: by indexes alone, however long the queue is.

``needs`` of a job is the model's SHA-256 and the machine that it must run on, either may be empty. A worker asks for
the first job of each kind of need that it can meet.
"""

from __future__ import annotations

from leap_core.json_fields import JsonObject
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .contract import Database, Row
from .job import DOWNLOAD, GENERATE, SHARD, VERSION, Claimant

LONGEST_BACK_OFF_SECONDS = 60.0
SHARED_KINDS = (DOWNLOAD, GENERATE, SHARD)
NOW = "(SELECT leap_now())"
"""Read once a statement, so that an index can be used for what is compared with it."""
READY = (
    "kind=:kind AND state='queued' AND held=0 AND cancel_requested=0 AND version<=:version AND "
    f"(run_after<={NOW} OR (run_after>{NOW}+:patience AND failures+interruptions>0))"
)
"""A failed job that is to wait longer than the longest back-off waits because the clock was set back."""
ORDER = "priority DESC, created, sequence"
FIRST_OF_EACH = (
    "FROM unnest(CAST(:needs AS text[])) AS n(needs) CROSS JOIN LATERAL (SELECT id, attempt, parent, priority, "
    f"created, sequence FROM jobs j WHERE {READY} AND j.needs=n.needs ORDER BY {ORDER} LIMIT 1"
)
ALIVE = "NOT EXISTS (SELECT 1 FROM workers w WHERE w.id=:worker AND w.draining=1)"
CLAIM_FIRST = f"""
WITH first AS MATERIALIZED (
    SELECT first.id {FIRST_OF_EACH} FOR UPDATE SKIP LOCKED) first WHERE {ALIVE} ORDER BY {ORDER} LIMIT 1
), taken AS (
    UPDATE jobs SET state='running', owner=:owner, worker=:worker, heartbeat=leap_now(),
        lease_until=leap_now()+:lease, started=COALESCE(started, leap_now()), progress=NULL
    FROM first WHERE jobs.id=first.id RETURNING jobs.*
), batch AS (
    UPDATE jobs SET state='running', started=COALESCE(jobs.started, leap_now())
    FROM taken WHERE jobs.id=taken.parent AND jobs.state='queued' RETURNING jobs.id
)
SELECT taken.*, (SELECT parameters FROM jobs WHERE jobs.id=taken.parent) AS common,
    set_config('synchronous_commit', 'off', true) FROM taken
"""
"""One statement, so one way to the server and back. A shard's row is written before its batch's. It need not be on the
disk yet: a claim that is lost in a crash of the server leaves the job queued, and what its worker writes is
refused; where that worker claims it once more, ``Slots`` has it queued as another attempt."""
WAKE = """
UPDATE workers SET woken=leap_now() FROM (
    SELECT w.id FROM workers w
    LEFT JOIN (
        SELECT worker, COUNT(*) AS running FROM jobs
        WHERE state='running' AND kind=:kind AND worker IS NOT NULL GROUP BY worker
    ) r ON r.worker=w.id
    WHERE w.draining=0 AND w.seen>(SELECT leap_now())-:alive AND w.id<>:beside
        AND COALESCE(r.running, 0)<COALESCE(CAST(CAST(w.capacity AS json)->>:slot AS integer), 1)
        AND (:model='' OR position(:model IN w.models)>0) AND (:machine='' OR w.machine=:machine)
    ORDER BY w.woken, random() LIMIT :count FOR UPDATE OF w SKIP LOCKED
) idle WHERE workers.id=idle.id
RETURNING pg_notify(:channel || substr(md5(workers.id), 1, 16), 'queued')
"""
"""Tells workers with room for it that there is work: as many as there is work for, and by turns, because who was told a
moment ago is on its way."""


def claim_first(database: Database, kind: str, worker: Claimant) -> Row | None:
    """Begin the next job of this kind that the worker can run: its row, with the parameters of its batch as
    ``common``."""
    more = {"needs": _needs(database, kind, worker), "owner": worker.owner, "lease": worker.lease_seconds}
    rows = database.rows(CLAIM_FIRST, {**_values(kind, worker), **more})
    return rows[0] if rows else None


def waiting_kinds(database: Database, worker: Claimant) -> frozenset[str]:
    """The kinds of which the worker could begin a job now."""
    found = set()
    for kind in SHARED_KINDS:
        values = {**_values(kind, worker), "needs": _needs(database, kind, worker)}
        if database.rows(f"SELECT 1 AS there {FIRST_OF_EACH}) first WHERE {ALIVE} LIMIT 1", values):
            found.add(kind)
    return frozenset(found)


def seconds_to_the_next(database: Database) -> float | None:
    """In how many seconds the next job is due that was delayed."""
    rows = database.rows(
        f"SELECT MIN(run_after)-{NOW} AS due FROM jobs WHERE state='queued' AND run_after>0 AND run_after>{NOW}"
    )
    return None if rows[0]["due"] is None else float(rows[0]["due"])


def queued_needs(database: Database, kind: str) -> list[str]:
    """The different needs of queued jobs, each found by one step through the index."""
    first = "SELECT MIN(needs) FROM jobs WHERE kind=:kind AND state='queued' AND held=0"
    rows = database.rows(
        f"WITH RECURSIVE found(needs) AS (({first}) UNION ALL SELECT ({first} AND jobs.needs>found.needs) FROM found "
        "WHERE found.needs IS NOT NULL) SELECT needs FROM found WHERE needs IS NOT NULL",
        {"kind": kind},
    )
    return [str(row["needs"]) for row in rows]


def first_with_needs(database: Database, kind: str, needs: str) -> Row | None:
    """The queued job with these needs that is next: id, model, origin and created."""
    rows = database.rows(
        "SELECT id, model, machine, origin, created FROM jobs WHERE kind=:kind AND state='queued' AND held=0 AND "
        f"needs=:needs ORDER BY {ORDER} LIMIT 1",
        {"kind": kind, "needs": needs},
    )
    return rows[0] if rows else None


def wake(
    database: Database,
    work: Mapping[tuple[str, str | None, str | None], int],
    alive_seconds: float,
    beside: str = "",
) -> None:
    """Wake workers for so many jobs of each kind, model and machine, once the running transaction counts; others than
    ``beside``, which gives them up."""
    for (kind, model, machine), count in work.items():
        database.rows(
            WAKE,
            {
                "channel": f"leap_{database.id}_w",
                "kind": kind,
                "slot": "batch" if kind == SHARD else kind,
                "model": model or "",
                "machine": machine or "",
                "count": count,
                "alive": alive_seconds,
                "beside": beside,
            },
        )


def _needs(database: Database, kind: str, worker: Claimant) -> list[str]:
    """The needs that the worker can meet; of one that can run any model those that there are."""
    if worker.models is None:
        return [each for each in queued_needs(database, kind) if each.partition("@")[2] in ("", worker.machine)]
    return _of_models(sorted(worker.models), ("", worker.machine))


def _of_models(models: Sequence[str], machines: Collection[str]) -> list[str]:
    return [f"{model}@{machine}" for model in ("", *models) for machine in machines]


def _values(kind: str, worker: Claimant) -> dict[str, Any]:
    values: JsonObject = {"kind": kind, "version": VERSION, "patience": LONGEST_BACK_OFF_SECONDS, "worker": worker.id}
    return values
