"""Finding work in a table that many workers share, and the workers as they report themselves.

``needs`` of a job is the model's SHA-256 and the machine that it must run on, either may be empty. A worker asks for
the first job of each kind of need that it can meet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import field, fields
from typing import Any

from leap_core.schemas.json_values import JsonObject
from leap_core.system.dataclass import dataclass

from .job import DOWNLOAD, GENERATE, SHARD, TRANSCRIBE, VERSION, WorkerIdentity
from .store_protocol import Database, Row

LONGEST_BACK_OFF_SECONDS = 60.0
SHARED_KINDS = (DOWNLOAD, GENERATE, TRANSCRIBE, SHARD)
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
"""Tells workers with space for it that there is work: as many as there is work for, and by turns, because who was told
a moment ago is on its way."""


def claim_first(database: Database, kind: str, worker: WorkerIdentity) -> Row | None:
    """Begin the next job of this kind that the worker can run: its row, with the parameters of its batch as
    ``common``."""
    more = {"needs": _needs(database, kind, worker), "owner": worker.owner, "lease": worker.lease_seconds}
    rows = database.rows(CLAIM_FIRST, {**_values(kind, worker), **more})
    return rows[0] if rows else None


def waiting_kinds(database: Database, worker: WorkerIdentity) -> frozenset[str]:
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
    database: Database, work: Mapping[tuple[str, str | None, str | None], int], alive_seconds: float, beside: str = ""
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


def _needs(database: Database, kind: str, worker: WorkerIdentity) -> list[str]:
    """The needs that the worker can meet; of one that can run any model those that there are."""
    if worker.models is None:
        return [each for each in queued_needs(database, kind) if each.partition("@")[2] in ("", worker.machine)]
    return [f"{model}@{machine}" for model in ("", *sorted(worker.models)) for machine in ("", worker.machine)]


def _values(kind: str, worker: WorkerIdentity) -> dict[str, Any]:
    values: JsonObject = {"kind": kind, "version": VERSION, "patience": LONGEST_BACK_OFF_SECONDS, "worker": worker.id}
    return values


ALIVE_SECONDS = 30.0
"""A worker that was not seen for so long counts as dead."""


@dataclass(frozen=True)
class WorkerReport:
    """What a worker says of itself. ``capacity``: jobs of each kind at once. ``models`` and ``origins``: names, and
    where they came from, by SHA-256. ``fetches``: it fetches models that jobs need."""

    machine: str
    name: str
    pid: int
    version: str
    capacity: Mapping[str, int]
    models: Mapping[str, str]
    origins: Mapping[str, str] = field(default_factory=dict)
    fetches: bool = False


@dataclass(frozen=True, kw_only=True)
class WorkerRow(WorkerReport):
    """A worker as the table has it. ``idle_seconds``: since it was last seen, by the store's clock. ``draining``: it
    takes no further job, and ends after those it has."""

    id: str
    started: float
    seen: float
    draining: bool
    idle_seconds: float
    running: int

    @property
    def is_alive(self) -> bool:
        return self.idle_seconds < ALIVE_SECONDS

    def to_json(self) -> JsonObject:
        value = {name: item for name, item in vars(self).items() if name not in ("models", "origins")}
        return {"id": self.id, **value, "alive": self.is_alive, "models": sorted(self.models.values())}


class WorkerRows:
    """The table of workers in ``database``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def enter(self, id: str, report: WorkerReport) -> None:
        """Report a worker that starts, or what has changed about it."""
        self._database.change(
            "INSERT INTO workers (id, machine, name, pid, version, started, seen, capacity, models, origins, "
            "fetches) VALUES (:id, :machine, :name, :pid, :version, leap_now(), leap_now(), :capacity, :models, "
            ":origins, :fetches) ON CONFLICT (id) DO UPDATE "
            "SET machine=excluded.machine, pid=excluded.pid, version=excluded.version, started=excluded.started, "
            "seen=excluded.seen, capacity=excluded.capacity, models=excluded.models, origins=excluded.origins, "
            "fetches=excluded.fetches, draining=0",
            {
                **vars(report),
                "id": id,
                "capacity": json.dumps(dict(report.capacity)),
                "models": json.dumps(dict(report.models)),
                "origins": json.dumps(dict(report.origins)),
                "fetches": int(report.fetches),
            },
        )

    def set_models(self, id: str, models: Mapping[str, str], origins: Mapping[str, str]) -> None:
        """Report other models, and where they came from."""
        self._database.change(
            "UPDATE workers SET models=:models, origins=:origins WHERE id=:id",
            {"id": id, "models": json.dumps(dict(models)), "origins": json.dumps(dict(origins))},
        )

    def beat(self, id: str) -> bool:
        """Report that the worker lives; whether it is to end after its work."""
        update, select = "UPDATE workers SET seen=leap_now() WHERE id=:id", "SELECT draining FROM workers WHERE id=:id"
        if self._database.is_shared:  # one statement: every worker says it all the time
            rows = self._database.rows(f"{update} RETURNING draining", {"id": id})
        else:
            self._database.change(update, {"id": id})
            rows = self._database.rows(select, {"id": id})
        return bool(rows and rows[0]["draining"])

    def drain(self, ids: Collection[str]) -> int:
        """Have these workers end after their work; how many do."""
        count = sum(self._database.change("UPDATE workers SET draining=1 WHERE id=:id", {"id": id}) for id in ids)
        self._database.announce("drain")
        return count

    def leave(self, id: str) -> None:
        """The worker has ended."""
        self._database.change("DELETE FROM workers WHERE id=:id", {"id": id})

    def forget_dead(self, seconds: float) -> None:
        """Remove workers that were not seen for so long."""
        self._database.change("DELETE FROM workers WHERE seen<leap_now()-:seconds", {"seconds": seconds})

    def all(self) -> list[WorkerRow]:
        """Every worker, by machine and name."""
        rows = self._database.rows(
            "SELECT w.*, leap_now()-w.seen AS idle_seconds, COALESCE(r.count, 0) AS running FROM workers w LEFT JOIN "
            "(SELECT worker, COUNT(*) AS count FROM jobs WHERE state='running' GROUP BY worker) r ON r.worker=w.id "
            "ORDER BY machine, name"
        )
        return list(map(_worker, rows))


def _worker(row: Row) -> WorkerRow:
    values = {each.name: row[each.name] for each in fields(WorkerRow)}
    values |= {name: json.loads(row[name]) for name in ("capacity", "models", "origins")}
    values |= {name: bool(row[name]) for name in ("draining", "fetches")}
    return WorkerRow(**{**values, "idle_seconds": max(0.0, row["idle_seconds"]), "running": int(row["running"])})
