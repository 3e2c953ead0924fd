"""Forgetting: jobs that have ended, and output that was kept long enough."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from leap_core.errors import LeapJobError

from .job import FINAL, State
from .reading import TableReader, among
from .shared_claims import NOW

KEPT_ATTEMPTS = 5
"""Attempts of a job whose output is kept."""
AT_ONCE = 500
"""Jobs on a server whose output is forgotten in one transaction."""


class Forgetting(TableReader):
    """The part of the table that removes rows."""

    def remove(self, id: str) -> None:
        """Forget a job that has ended. Raises LeapJobError when it has not."""
        if not self.database.change(
            "DELETE FROM jobs WHERE id=:id AND state IN ('succeeded', 'failed', 'cancelled')", {"id": id}
        ):
            state = self._existing(id).state.value
            raise LeapJobError(f"the job {id} is {state}", hint=f"leap jobs cancel {id} ends it")

    def prune(self, before: float, states: Collection[State] = FINAL) -> Sequence[str]:
        """Forget the jobs that ended before this time, in one of these final states; their ids."""
        condition, values = among("state", [state.value for state in states if state.is_final])
        where = f"{condition} AND finished<:before AND parent IS NULL"
        values["before"] = before

        def prune() -> list[str]:
            ids = [str(row["id"]) for row in self.database.rows(f"SELECT id FROM jobs WHERE {where}", values)]
            self.database.change(f"DELETE FROM jobs WHERE {where}", values)
            return ids

        ids = self.database.transaction(prune)
        self.database.compact()
        return ids

    def forget_output(self, seconds: float, attempts: int = KEPT_ATTEMPTS) -> int:
        """Forget the output of jobs that ended so long ago, and of attempts before the last so many; the number of
        rows. Jobs and their results stay."""
        values = {"seconds": seconds, "attempts": attempts}
        if not self.database.is_shared:
            return self.database.change(
                "DELETE FROM events WHERE job IN (SELECT id FROM jobs WHERE finished<leap_now()-:seconds) OR "
                "attempt<=(SELECT attempt FROM jobs WHERE id=events.job)-:attempts",
                values,
            )
        count = 0
        while ids := self._forgettable(seconds):
            count += self.database.transaction(partial(self._forget, ids))
        return count + self.database.change(
            "DELETE FROM events USING jobs WHERE jobs.id=events.job AND jobs.attempt>1 AND "
            "jobs.attempt>:attempts AND events.attempt<=jobs.attempt-:attempts",
            values,
        )

    def _forgettable(self, seconds: float) -> list[str]:
        rows = self.database.rows(
            f"SELECT id FROM jobs WHERE finished IS NOT NULL AND forgotten=0 AND finished<{NOW}-:seconds "
            f"ORDER BY finished LIMIT {AT_ONCE}",
            {"seconds": seconds},
        )
        return [str(row["id"]) for row in rows]

    def _forget(self, ids: Sequence[str]) -> int:
        count = self.database.change("DELETE FROM events WHERE job=ANY(:ids)", {"ids": ids})
        self.database.change("UPDATE jobs SET forgotten=1 WHERE id=ANY(:ids)", {"ids": ids})
        return count
