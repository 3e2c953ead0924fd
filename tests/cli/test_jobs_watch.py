"""What ``leap jobs watch`` looks at; tests/end_to_end/test_jobs_watch.py runs it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jobs.table.job import State
from leap_cli.commands.records.job_workers import NEWEST, _EveryJob
from leap_core.errors import LeapJobError


@dataclass(frozen=True)
class Row:
    id: str
    state: State
    kind: str = "generate"


class Queue:
    """Jobs, newest last, as the client lists them."""

    def __init__(self, count: int) -> None:
        self.rows = {f"job{n}": Row(f"job{n}", State.QUEUED) for n in range(count)}

    def end(self, id: str) -> None:
        self.rows[id] = replace(self.rows[id], state=State.SUCCEEDED)

    def get(self, id: str) -> Row:
        if id not in self.rows:
            raise LeapJobError(f"there is no job {id!r}")
        return self.rows[id]

    def list(self, *, states: Any = None, limit: int | None = None) -> list[Row]:
        rows = [row for row in reversed(self.rows.values()) if states is None or row.state in states]
        return rows[:limit]


def test_watch_shows_the_end_of_a_job_however_many_are_newer():
    queue = Queue(NEWEST + 50)
    every = _EveryJob(queue)
    assert len(every.look()) == NEWEST + 50
    queue.end("job0")
    del queue.rows["job1"]
    for _ in range(2):
        rows = {row.id: row.state for row in every.look()}
        assert rows["job0"] is State.SUCCEEDED and "job1" not in rows and len(rows) == NEWEST + 49
