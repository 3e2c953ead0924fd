"""The lines of a batch and their results as rows, in a store that several machines share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .contract import Database
from .job import Claim, Ending, Fenced, JsonObject, State

OWN_SHARD = "id=:id AND state='running' AND owner=:owner AND attempt=:attempt"
CHUNK, CHUNK_BYTES = 500, 4 * 1024 * 1024
"""Rows that are read or written at once, and bytes of lines that are written at once."""
LARGE_BYTES = 64 * 1024
"""Of a line: a larger one is read when its turn comes."""


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
            self.database.change_many(
                "INSERT INTO batch_lines (job, number, key, digest, raw) VALUES (:job, :number, :key, :digest, :raw)",
                [{"job": job, **vars(line)} for line in chunk],
            )

    def take_over(self, job: str, output: str) -> int:
        """Take over what earlier batches with this output have answered; how many lines."""
        return self.database.change(
            "INSERT INTO batch_results (job, number, key, succeeded, tokens, value) "
            "SELECT l.job, l.number, l.key, 1, r.tokens, r.value FROM batch_lines l "
            "JOIN batch_results r ON r.key=l.key AND r.succeeded=1 JOIN jobs j ON j.id=r.job "
            "WHERE l.job=:job AND j.output=:output AND j.id<>:job ON CONFLICT (job, number) DO NOTHING",
            {"job": job, "output": output},
        )

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
        """Store results of the shard that ``claim`` is for, and tell whether it is to be cancelled. Raises Fenced when
        another worker has it: then nothing is stored."""
        rows = [
            {
                "job": job,
                "number": result.number,
                "key": result.key,
                "succeeded": int(result.succeeded),
                "tokens": result.tokens,
                "value": json.dumps(result.value, ensure_ascii=False, separators=(",", ":")),
            }
            for result in results
        ]

        def write() -> bool:
            changed = self.database.change(
                f"UPDATE jobs SET heartbeat=leap_now(), progress=:progress WHERE {OWN_SHARD}",
                {**claim.values, "progress": json.dumps(progress)},
            )
            if not changed:
                raise Fenced
            self.database.change_many(
                "INSERT INTO batch_results (job, number, key, succeeded, tokens, value) VALUES (:job, :number, :key, "
                ":succeeded, :tokens, :value) ON CONFLICT (job, number) DO NOTHING",
                rows,
            )
            self.database.announce("changed", job)
            row = self.database.rows("SELECT cancel_requested FROM jobs WHERE id=:id", {"id": claim.id})[0]
            return bool(row["cancel_requested"])

        return self.database.transaction(write)

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


def progress_of_batch(database: Database, job: str) -> JsonObject:
    """How far a batch is, over all its shards. ``eta`` in seconds, as far as can be told."""
    row = database.rows(
        "SELECT COUNT(*) AS done, COALESCE(SUM(succeeded), 0) AS succeeded, COALESCE(SUM(tokens), 0) AS tokens "
        "FROM batch_results WHERE job=:job",
        {"job": job},
    )[0]
    batch = database.rows(
        "SELECT parameters, leap_now()-started AS seconds, finished-started AS whole FROM jobs WHERE id=:job",
        {"job": job},
    )[0]
    parameters = json.loads(batch["parameters"])
    total, reused = int(parameters.get("total", 0)), int(parameters.get("reused", 0))
    seconds = batch["whole"] if batch["whole"] is not None else batch["seconds"]
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


def ending_of_batch(database: Database, job: str) -> Ending | None:
    """How a batch has ended; None when some of its shards have not."""
    rows = database.rows("SELECT id, state, error FROM jobs WHERE parent=:job", {"job": job})
    if any(row["state"] in ("queued", "running") for row in rows):
        return None
    progress = {**progress_of_batch(database, job), "eta": 0.0}
    cancelled = database.rows("SELECT cancel_requested FROM jobs WHERE id=:job", {"job": job})[0]["cancel_requested"]
    if cancelled:
        return Ending(State.CANCELLED, progress)
    again = f"leap jobs retry {job} tries them again"
    errors = [json.loads(row["error"]) for row in rows if row["state"] == "failed" and row["error"]]
    if errors:
        return Ending(State.FAILED, progress, errors[0])
    if progress["failed"]:
        message = f"{progress['failed']} of {progress['total']} lines failed"
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
