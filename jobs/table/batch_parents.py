"""The row of a batch whose shards are jobs of their own: what it counts of them, and when it ends.

A shard's row is written before its batch's, always: so of two shards that end at once the second one waits, and sees
what the first has counted.
"""

from __future__ import annotations

import json

from .batch_rows import ending_of_batch
from .contract import Database, Row, Values

OPEN = "('queued', 'running')"


def change_own(database: Database, condition: str, assignments: str, values: Values) -> Row | None:
    """Change the row that ``condition`` names, and take from it what it has counted: its parent and counts as they were
    before. None where there is no such row."""
    rows = database.rows(
        f"WITH before AS (SELECT id AS before_id, parent AS batch, done AS lines, succeeded AS good, tokens AS spent, "
        f"max_workers AS bound FROM jobs WHERE {condition} FOR UPDATE), after AS (UPDATE jobs SET {assignments}, "
        "done=0, succeeded=0, tokens=0 FROM before WHERE id=before_id RETURNING state, error) "
        "SELECT * FROM before, after",
        values,
    )
    return rows[0] if rows else None


def take_counts(database: Database, shard: Row) -> None:
    """Add to the batch what its shard had counted and, where the shard has ended, end the batch with the last one."""
    if shard["batch"] is None:
        return
    ended = shard["state"] not in ("queued", "running")
    values = {
        "parent": shard["batch"],
        "done": shard["lines"],
        "succeeded": shard["good"],
        "tokens": shard["spent"],
        "ended": int(ended),
        "error": shard["error"] if shard["state"] == "failed" else None,
    }
    rows = database.rows(
        "UPDATE jobs SET done=done+:done, succeeded=succeeded+:succeeded, tokens=tokens+:tokens, "
        "open_shards=open_shards-:ended, error=COALESCE(error, :error) WHERE id=:parent AND state='running' "
        "RETURNING open_shards",
        values,
    )
    if not rows or not ended:
        return
    if shard["bound"] is not None:
        database.change(
            "UPDATE jobs SET held=0 WHERE id=(SELECT id FROM jobs WHERE parent=:parent AND held=1 AND state='queued' "
            "ORDER BY sequence LIMIT 1)",
            {"parent": shard["batch"]},
        )
    if rows[0]["open_shards"] <= 0:
        settle(database, str(shard["batch"]))


def settle(database: Database, parent: str) -> None:
    """End a batch that runs and has no shard left."""
    if not database.rows("SELECT id FROM jobs WHERE id=:id AND state='running' FOR UPDATE", {"id": parent}):
        return
    left = f"SELECT COUNT(*) AS count FROM jobs WHERE parent=:id AND state IN {OPEN}"
    count = int(database.rows(left, {"id": parent})[0]["count"])
    database.change("UPDATE jobs SET open_shards=:count WHERE id=:id", {"id": parent, "count": count})
    if count:
        return
    ending = ending_of_batch(database, parent)
    progress = json.dumps(ending.result, ensure_ascii=False, separators=(",", ":"))
    database.change(
        "UPDATE jobs SET state=:state, finished=leap_now(), heartbeat=NULL, result=:progress, error=:error, "
        "progress=:progress WHERE id=:id AND state='running'",
        {
            "id": parent,
            "state": ending.state.value,
            "progress": progress,
            "error": None if ending.error is None else json.dumps(ending.error),
        },
    )
    database.announce("changed", parent)


def settle_all(database: Database) -> None:
    """End the batches that run and have no shard left, whoever ended the last one."""
    rows = database.rows(
        "SELECT id FROM jobs p WHERE kind='batch' AND state='running' AND owner IS NULL AND parent IS NULL AND NOT "
        "EXISTS (SELECT 1 FROM jobs s WHERE s.parent=p.id AND s.state='running') AND NOT "
        "EXISTS (SELECT 1 FROM jobs s WHERE s.parent=p.id AND s.state='queued')"
    )
    for row in rows:
        settle(database, str(row["id"]))


def reopen(database: Database, parent: str) -> int:
    """Queue all shards of a batch again, and try its failed lines again; how many shards may begin."""
    failed = database.change("DELETE FROM batch_results WHERE job=:id AND succeeded=0", {"id": parent})
    values = {"id": parent, "failed": failed}
    count = database.change(
        "UPDATE jobs SET state='queued', attempt=attempt+1, failures=0, interruptions=0, deaths=0, run_after=0, "
        "cancel_requested=0, error=NULL, finished=NULL, held=CASE WHEN max_workers IS NOT NULL AND sequence>=(SELECT "
        "MIN(sequence) FROM jobs WHERE parent=:id)+max_workers THEN 1 ELSE 0 END WHERE parent=:id",
        values,
    )
    database.change("UPDATE jobs SET done=done-:failed, open_shards=:count WHERE id=:id", {**values, "count": count})
    return count
