"""The row of a batch whose shards are jobs of their own: what it counts of them, and when it ends.

A shard's row is written before its batch's, always: so of two shards that end at once the second one waits, and sees
what the first has counted.
"""

from __future__ import annotations

import json

from .batch_rows import ending_of_batch
from .contract import Database, Row, Values

OPEN = "('queued', 'running')"
CHANGE_OWN = """
WITH before AS (
    SELECT id AS before_id, parent AS batch, done AS lines, succeeded AS good, tokens AS spent, max_workers AS bound
    FROM jobs WHERE {condition} FOR UPDATE
), after AS (
    UPDATE jobs SET {assignments}, done=0, succeeded=0, tokens=0 FROM before WHERE id=before_id RETURNING state, error
), counted AS (
    UPDATE jobs SET done=jobs.done+before.lines, succeeded=jobs.succeeded+before.good, tokens=jobs.tokens+before.spent,
        open_shards=jobs.open_shards-CASE WHEN after.state IN ('queued', 'running') THEN 0 ELSE 1 END,
        error=COALESCE(jobs.error, CASE WHEN after.state='failed' THEN after.error END)
    FROM before, after WHERE jobs.id=before.batch AND jobs.state='running' RETURNING jobs.open_shards
)
SELECT batch, bound, state, (SELECT open_shards FROM counted) AS open FROM before, after
"""


def change_own(database: Database, condition: str, assignments: str, values: Values) -> Row | None:
    """Change the row that ``condition`` names, and add to its batch, which that ends perhaps, what it has counted. Its
    state and ``batch``; None where there is no such row."""
    rows = database.rows(CHANGE_OWN.format(condition=condition, assignments=assignments), values)
    if not rows:
        return None
    row = rows[0]
    if row["open"] is not None and row["state"] not in ("queued", "running"):
        if row["bound"] is not None:
            database.change(
                "UPDATE jobs SET held=0 WHERE id=(SELECT id FROM jobs WHERE parent=:parent AND held=1 AND "
                "state='queued' ORDER BY sequence LIMIT 1)",
                {"parent": row["batch"]},
            )
        if row["open"] <= 0:
            settle(database, str(row["batch"]))
    return row


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
