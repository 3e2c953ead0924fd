"""The workers of a store, as they report themselves: where they run, what they can do, when they were seen last."""

from __future__ import annotations

from leap_core.json_fields import JsonObject
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .contract import Database

ALIVE_SECONDS = 30.0
"""A worker that was not seen for so long counts as dead."""


@dataclass(frozen=True)
class WorkerRow:
    """``capacity``: jobs of each kind at once. ``models``: SHA-256 of the models at hand. ``idle_seconds``: since it
    was last seen, by the store's clock. ``draining``: it takes no further job, and ends after those it has.
    ``origins``: where its models came from, by SHA-256; ``fetches``: it fetches models that it lacks."""

    id: str
    machine: str
    name: str
    pid: int
    version: str
    started: float
    seen: float
    capacity: Mapping[str, int]
    models: Mapping[str, str]
    draining: bool
    idle_seconds: float
    running: int
    origins: Mapping[str, str] = field(default_factory=dict)
    fetches: bool = False

    @property
    def is_alive(self) -> bool:
        return self.idle_seconds < ALIVE_SECONDS

    def to_json(self) -> JsonObject:
        value = {name: item for name, item in vars(self).items() if name not in ("models", "origins")}
        return {**value, "alive": self.is_alive, "models": sorted(self.models.values())}


class WorkerRows:
    """The table of workers in ``database``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def enter(
        self,
        id: str,
        *,
        machine: str,
        name: str,
        pid: int,
        version: str,
        capacity: Mapping[str, int],
        models: Mapping[str, str],
        origins: Mapping[str, str] | None = None,
        fetches: bool = False,
    ) -> None:
        """Report a worker that starts, or what has changed about it. ``models``: their names by SHA-256."""
        self._database.change(
            "INSERT INTO workers (id, machine, name, pid, version, started, seen, capacity, models, origins, "
            "fetches) VALUES (:id, :machine, :name, :pid, :version, leap_now(), leap_now(), :capacity, :models, "
            ":origins, :fetches) ON CONFLICT (id) DO UPDATE "
            "SET machine=excluded.machine, pid=excluded.pid, version=excluded.version, started=excluded.started, "
            "seen=excluded.seen, capacity=excluded.capacity, models=excluded.models, origins=excluded.origins, "
            "fetches=excluded.fetches, draining=0",
            {
                "id": id,
                "machine": machine,
                "name": name,
                "pid": pid,
                "version": version,
                "capacity": json.dumps(dict(capacity)),
                "models": json.dumps(dict(models)),
                "origins": json.dumps(dict(origins or {})),
                "fetches": int(fetches),
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
        return [
            WorkerRow(
                id=row["id"],
                machine=row["machine"],
                name=row["name"],
                pid=row["pid"],
                version=row["version"],
                started=row["started"],
                seen=row["seen"],
                capacity=json.loads(row["capacity"]),
                models=json.loads(row["models"]),
                draining=bool(row["draining"]),
                idle_seconds=max(0.0, row["idle_seconds"]),
                running=int(row["running"]),
                origins=json.loads(row["origins"]),
                fetches=bool(row["fetches"]),
            )
            for row in rows
        ]
