"""The lines of a batch and their results as rows, in a store that several machines share, and the row that counts them.

A shard's row is written before its batch's, always: so of two shards that end at once the second one waits, and sees
what the first has counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from leap_core.schemas.json_values import JsonObject
from leap_core.system.dataclass import dataclass

from .job import Claim, ClaimLostError, Ending, State
from .store_protocol import Database, Row, Values

OWN_SHARD = "id=:id AND state='running' AND owner=:owner AND attempt=:attempt"
IN_SHARD = (
    "{0}.job=jobs.parent AND {0}.number BETWEEN CAST(CAST(jobs.parameters AS json)->>'first' AS integer) "
    "AND CAST(CAST(jobs.parameters AS json)->>'last' AS integer)"
)
ANSWERED = (
    f"{OWN_SHARD} AND (parent IS NULL OR (SELECT COUNT(*) FROM batch_results r WHERE {IN_SHARD.format('r')})"
    f">=(SELECT COUNT(*) FROM batch_lines l WHERE {IN_SHARD.format('l')}))"
)
"""The claim, and every line of its shard has a result. Results are stored without waiting for the disk: what a server
loses when it crashes while the worker and its claim stay must be found before the shard ends."""
CHUNK, CHUNK_BYTES = 500, 4 * 1024 * 1024
"""Rows that are read or written at once, and bytes of lines that are written at once."""
LARGE_BYTES = 64 * 1024
"""A larger line is read when its turn comes."""
TAKE_OVER = """
INSERT INTO batch_results (job, number, key, succeeded, tokens, value)
SELECT l.job, l.number, l.key, 1, r.tokens, r.value FROM batch_lines l CROSS JOIN LATERAL (
    SELECT tokens, value FROM batch_results earlier WHERE earlier.key=l.key AND earlier.succeeded=1
    AND earlier.job<>:job AND EXISTS (SELECT 1 FROM jobs j WHERE j.id=earlier.job AND j.output=:output) LIMIT 1
) r WHERE l.job=:job ON CONFLICT (job, number) DO NOTHING
"""
STORE_RESULTS = f"""
WITH own AS MATERIALIZED (SELECT id FROM jobs WHERE {OWN_SHARD} FOR UPDATE), added AS (
    INSERT INTO batch_results (job, number, key, succeeded, tokens, value)
    SELECT :job, r.* FROM own, unnest(CAST(:numbers AS integer[]), CAST(:keys AS text[]),
        CAST(:successes AS integer[]), CAST(:counts AS integer[]), CAST(:texts AS text[])) r
    ON CONFLICT (job, number) DO NOTHING RETURNING succeeded, tokens
), counted AS (
    SELECT COUNT(*) AS done, COALESCE(SUM(succeeded), 0) AS succeeded, COALESCE(SUM(tokens), 0) AS tokens FROM added
)
UPDATE jobs SET heartbeat=leap_now(), progress=:progress, done=jobs.done+counted.done,
    succeeded=jobs.succeeded+counted.succeeded, tokens=jobs.tokens+counted.tokens
FROM own, counted WHERE jobs.id=own.id
RETURNING cancel_requested, set_config('synchronous_commit', 'off', true),
    pg_notify('leap_' || (SELECT id FROM table_id) || '_' || :job, 'changed')
"""
"""One statement, so one way to the server and back. What a shard has stored is counted on its own row while it runs, so
that no two workers write to one row; it is on the disk before the end of the shard, which waits for
the disk and looks whether all is there (ANSWERED)."""


@dataclass(frozen=True)
class BatchLine:
    """A sound line. ``number``: in the input, from 1. ``digest``: what it asks, ``key``: what it asks of this model.
    ``raw``: its text; None where it is large, and read by ``BatchRows.raw``."""

    number: int
    key: str
    digest: str
    raw: bytes | None


@dataclass(frozen=True)
class StoredResult:
    """``value``: the JSON of a leap_core.batch Result. ``tokens``: of the completion."""

    number: int
    key: str
    succeeded: bool
    tokens: int
    value: Mapping[str, Any]


class BatchRows:
    """The rows of batches in ``database``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def add_lines(self, job: str, lines: Iterable[BatchLine]) -> None:
        """Store the lines of a new batch."""
        for chunk in _chunks(lines):
            rows = [(job, line.number, line.key, line.digest, line.raw) for line in chunk]
            self.database.insert_rows("batch_lines", ("job", "number", "key", "digest", "raw"), rows)

    def take_over(self, job: str, output: str) -> None:
        """Take over what earlier batches with this output have answered. The lines are of a transaction that still
        runs, so the server has no statistics of them: the plan is laid down, one look into an index for each line."""
        for kind in ("seqscan", "hashjoin", "mergejoin"):
            self.database.change(f"SET LOCAL enable_{kind} TO off")
        self.database.change(TAKE_OVER, {"job": job, "output": output})
        for kind in ("seqscan", "hashjoin", "mergejoin"):
            self.database.change(f"SET LOCAL enable_{kind} TO on")

    def missing(self, job: str, first: int, last: int) -> list[BatchLine]:
        """The lines of this stretch that have no result yet, in order."""
        rows = self.database.rows(
            f"SELECT number, key, digest, CASE WHEN length(raw)<={LARGE_BYTES} THEN raw END AS raw "
            "FROM batch_lines l WHERE job=:job AND number>=:first AND number<=:last "
            "AND NOT EXISTS (SELECT 1 FROM batch_results r WHERE r.job=l.job AND r.number=l.number) ORDER BY number",
            {"job": job, "first": first, "last": last},
        )
        return [
            BatchLine(row["number"], row["key"], row["digest"], None if row["raw"] is None else bytes(row["raw"]))
            for row in rows
        ]

    def raw(self, job: str, number: int) -> bytes:
        """The text of one line."""
        values = {"job": job, "number": number}
        (row,) = self.database.rows("SELECT raw FROM batch_lines WHERE job=:job AND number=:number", values)
        return bytes(row["raw"])

    def write(self, claim: Claim, job: str, results: Sequence[StoredResult], progress: JsonObject) -> bool:
        """Store results of the shard that ``claim`` is for; whether it is to be cancelled. Raises ClaimLostError when
        another worker has it: then nothing is stored."""
        texts = [json.dumps(result.value, ensure_ascii=False, separators=(",", ":")) for result in results]
        columns = {
            "numbers": [result.number for result in results],
            "keys": [result.key for result in results],
            "successes": [int(result.succeeded) for result in results],
            "counts": [result.tokens for result in results],
            "texts": texts,
        }

        values = {**claim.values, "job": job, "progress": json.dumps(progress), **columns}
        rows = self.database.rows(STORE_RESULTS, values)
        if not rows:
            raise ClaimLostError
        return bool(rows[0]["cancel_requested"])

    def results(self, job: str, after: int = 0, *, with_lines: bool = False) -> Iterator[tuple[BatchLine, JsonObject]]:
        """The lines behind ``after`` that have a result, in order, with it. ``with_lines``: with their text."""
        raw, most = ("l.raw", CHUNK // 10) if with_lines else ("''", CHUNK)
        while True:
            rows = self.database.rows(
                f"SELECT l.number, l.key, l.digest, {raw} AS raw, r.value FROM batch_lines l JOIN batch_results r "
                "ON r.job=l.job AND r.number=l.number WHERE l.job=:job AND l.number>:after ORDER BY l.number "
                f"LIMIT {most}",
                {"job": job, "after": after},
            )
            for row in rows:
                text = row["raw"]
                line = BatchLine(row["number"], row["key"], row["digest"], bytes(text) if with_lines else b"")
                yield line, json.loads(row["value"])
            if len(rows) < most:
                return
            after = rows[-1]["number"]

    def first_missing(self, job: str) -> int | None:
        """The number of the first line that has no result yet."""
        rows = self.database.rows(
            "SELECT MIN(number) AS number FROM batch_lines l WHERE job=:job AND NOT EXISTS "
            "(SELECT 1 FROM batch_results r WHERE r.job=l.job AND r.number=l.number)",
            {"job": job},
        )
        number: int | None = rows[0]["number"]
        return number


def counted_anew(database: Database, job: str) -> None:
    """Count all results of a batch, on its own row."""
    database.change(
        "UPDATE jobs SET done=r.done, succeeded=r.succeeded, tokens=r.tokens FROM (SELECT COUNT(*) AS done, "
        "COALESCE(SUM(succeeded), 0) AS succeeded, COALESCE(SUM(tokens), 0) AS tokens FROM batch_results "
        "WHERE job=:job) r WHERE jobs.id=:job",
        {"job": job},
    )


def progress_of_batch(database: Database, job: str) -> JsonObject:
    """How far a batch is: what its row has counted of shards that no longer run, and what the running ones have on
    theirs. ``eta`` in seconds, as far as that is known."""
    row = database.rows(
        "SELECT parameters, leap_now()-started AS seconds, finished-started AS whole, "
        "done+s.more_done AS done, succeeded+s.more_succeeded AS succeeded, tokens+s.more_tokens AS tokens FROM jobs, "
        "(SELECT COALESCE(SUM(done), 0) AS more_done, COALESCE(SUM(succeeded), 0) AS more_succeeded, "
        "COALESCE(SUM(tokens), 0) AS more_tokens FROM jobs WHERE parent=:job AND state='running') s WHERE id=:job",
        {"job": job},
    )[0]
    parameters = json.loads(row["parameters"])
    total, reused = int(parameters.get("total", 0)), int(parameters.get("reused", 0))
    seconds = float(row["whole"] if row["whole"] is not None else row["seconds"] or 0.0)
    done = int(row["done"])
    speed = (done - reused) / seconds if seconds else 0.0
    return {
        "done": done,
        "total": total,
        "unit": "lines",
        "succeeded": int(row["succeeded"]),
        "failed": done - int(row["succeeded"]),
        "reused": reused,
        "lines_per_second": round(speed, 2),
        "tokens_per_second": round(int(row["tokens"]) / seconds, 1) if seconds else 0.0,
        "eta": (total - done) / speed if speed > 0 else None,
    }


def ending_of_batch(database: Database, job: str) -> Ending:
    """How a batch has ended, none of whose shards is left."""
    counted_anew(database, job)
    progress = {**progress_of_batch(database, job), "eta": 0.0}
    row = database.rows("SELECT cancel_requested, error FROM jobs WHERE id=:job", {"job": job})[0]
    if row["cancel_requested"]:
        return Ending(State.CANCELLED, progress)
    if row["error"]:
        return Ending(State.FAILED, progress, json.loads(row["error"]))
    if progress["failed"]:
        message = f"{progress['failed']} of {progress['total']} lines failed"
        again = f"leap jobs retry {job} tries them again"
        return Ending(State.FAILED, progress, {"type": "LeapJobError", "message": message, "hint": again})
    return Ending(State.SUCCEEDED, progress)


def _chunks(lines: Iterable[BatchLine]) -> Iterator[list[BatchLine]]:
    chunk: list[BatchLine] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line.raw or b"")
        if len(chunk) == CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


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
