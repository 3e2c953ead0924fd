"""Jobs that come again and again. A schedule is a row of its own that no worker runs: ``run_after`` is when the next
run is due, and the transaction that moves it on queues that run, so of many workers one does, and a kill loses none.

What was due while no worker ran is run once, or not at all; so is a run that is due while the one before still
continues.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from leap_core.errors import LeapError, LeapJobError, LeapOptionsError
from leap_core.system.dataclass import dataclass

from ..table.job import LATER, MALFORMED, SCHEDULE, Job, NewJob, State
from ..table.requests import REQUESTS, ScheduleRequest, request_of
from .crontab import NICKNAMES, read_crontab

if TYPE_CHECKING:
    from ..table.table import Table

PAUSED = 2 * LATER
"""``run_after`` of a schedule that is paused."""
LATE_SECONDS = 60.0
"""A run that is later than this was missed."""
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 10 * 366 * 86_400.0
MOST_DAYS = 366 * 8 + 2
"""The rarest date, 29 February, comes within so many days."""
RUN, SKIP = "run", "skip"


@dataclass(frozen=True)
class Every:
    """When runs are due: each ``seconds``, or at the minutes of a ``crontab`` of five fields in ``zone`` (None: this
    machine's). A minute that the clock passes over is due an hour later; one that it shows twice, once."""

    text: str
    seconds: float | None = None
    crontab: str = ""
    zone: str | None = None

    @staticmethod
    def of(text: str) -> Every:
        """Read ``6h``, ``0 9 * * 1-5``, ``0 9 * * mon-fri Europe/Berlin`` or ``@daily``. Raises LeapOptionsError."""
        parts = text.split()
        if parts and parts[0].lower() in NICKNAMES:
            parts[:1] = NICKNAMES[parts[0].lower()].split()
        if len(parts) == 1:
            seconds = _seconds(parts[0])
            if seconds is None:
                expected = "a length of time such as 6h, five fields of crontab, or @daily"
                raise LeapOptionsError("every", f"{text!r} is not {expected}")
            if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
                raise LeapOptionsError("every", f"{text!r} is not from 1 second to 10 years")
            return Every(text, seconds=seconds)
        if len(parts) not in (5, 6):
            raise LeapOptionsError("every", f"{text!r} has {len(parts)} fields: minute hour day month weekday [zone]")
        every = Every(text, crontab=" ".join(parts[:5]), zone=parts[5] if len(parts) == 6 else None)
        try:
            every._zone()
        except (ValueError, KeyError, OSError):
            raise LeapOptionsError("every", f"{text!r}: there is no zone {every.zone}") from None
        try:
            every.next_after(time.time())
        except ValueError as error:
            raise LeapOptionsError("every", f"{text!r}: {error}") from None
        return every

    def next_after(self, moment: float, begun: float = 0.0) -> float:
        """The first time after ``moment`` that a run is due, in seconds since 1970; intervals count from ``begun``,
        which is the first. Raises ValueError for fields that say no time."""
        if self.seconds is not None:
            return begun + max(0, (moment - begun) // self.seconds + 1) * self.seconds
        fits, minutes = read_crontab(self.crontab)
        zone, due = self._zone(), list[float]()
        midnight = datetime.fromtimestamp(moment, zone).replace(tzinfo=zone, hour=0, minute=0, second=0, microsecond=0)
        for n in range(-1, MOST_DAYS):  # from the day before: what clocks pass over at its end is due on this one
            day = (midnight + timedelta(days=n)).replace(fold=0)
            if due and min(due) <= day.timestamp():
                return min(due)
            if fits(day) and (day + timedelta(minutes=minutes[-1])).timestamp() > moment:
                dues = ((day + timedelta(minutes=each)).timestamp() for each in minutes)
                due += [each for each in dues if each > moment]
        raise ValueError("there is no such time")

    def _zone(self) -> tzinfo | None:
        if self.zone is None:
            return None
        from zoneinfo import ZoneInfo

        return ZoneInfo(self.zone)


def _seconds(text: str) -> float | None:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
    number = text[:-1]
    return float(number) * units[text[-1]] if text[-1:] in units and number.isdecimal() else None


def repeated(job: NewJob, every: Every, *, missed: str = RUN, overlap: str = SKIP) -> NewJob:
    """The schedule that queues this job again and again, first at its own ``run_after`` where it has one. Raises
    LeapJobError for a job that cannot be repeated."""
    parameters = REQUESTS[job.kind].repeatable(job.parameters)
    now = time.time()
    first = job.run_after or (now + every.seconds if every.seconds else every.next_after(now))
    asked = ScheduleRequest(
        label=f"{every.text}: {job.parameters.get('label', job.kind)}",
        every=every.text,
        begun=first,
        missed=missed,
        overlap=overlap,
        job=replace(job, parameters=parameters),
    )
    return NewJob(SCHEDULE, asked.to_json(), run_after=first)


def fire(table: Table, now: float | None = None) -> list[str]:
    """Queue what is due, and move each schedule to its next time; the ids of the runs. For any worker, at any time.
    ``now``: by another clock than the store's."""
    rows = table.database.rows(
        "SELECT jobs.*, leap_now() AS clock FROM jobs WHERE state='queued' AND run_after>0 AND "
        f"run_after<=COALESCE(CAST(:now AS DOUBLE PRECISION), leap_now()) AND kind='{SCHEDULE}'",
        {"now": now},
    )
    runs = []
    for row in rows:
        try:
            runs.append(_fire(table, Job.of_row(row), row["clock"] if now is None else now))
        except LeapError:
            pass  # a time that only a newer leap can read, or a zone that this machine lacks
        except MALFORMED as error:
            table.refuse_row(row["id"], error)
    return [run for run in runs if run is not None]


def _fire(table: Table, schedule: Job, now: float) -> str | None:
    asked: ScheduleRequest = request_of(schedule)
    every, due = Every.of(asked.every), schedule.run_after
    told = {"runs": 0, "skipped": 0, "failures": 0, **(schedule.progress or {})}
    last = table.get(told["last"]) if told.get("last") else None
    if last is not None and last.state.is_final:
        told["failures"] = told["failures"] + 1 if last.state is State.FAILED else 0
    goes_on = last is not None and not last.state.is_final and asked.overlap == SKIP
    missed = asked.missed == SKIP and now - due > LATE_SECONDS
    values = {"id": schedule.id, "due": due, "next": every.next_after(max(now, due), asked.begun)}

    from ..table.table import dumps

    def move() -> str | None:
        run = None
        if not (goes_on or missed):
            run = table.insert_with_followers(asked.run(schedule.id, due))
        counted = "skipped" if run is None else "runs"
        progress = {**told, counted: told[counted] + 1, "last": run or told.get("last")}
        changed = table.database.change(
            "UPDATE jobs SET run_after=:next, progress=:progress "
            "WHERE id=:id AND state='queued' AND run_after=:due AND cancel_requested=0",
            {**values, "progress": dumps(progress)},
        )
        if not changed:
            raise _Moved
        return run

    try:
        return table.database.transaction(move)
    except _Moved:
        return None


class _Moved(Exception):
    """Another worker was first, or the schedule was changed."""


def pause(table: Table, schedule: Job) -> None:
    """Let no run be due until ``resume``."""
    _set(table, schedule, PAUSED)


def resume(table: Table, schedule: Job) -> None:
    """Continue with the next time from now on."""
    _check(schedule)
    asked: ScheduleRequest = request_of(schedule)
    _set(table, schedule, Every.of(asked.every).next_after(time.time(), asked.begun))


def run_now(table: Table, schedule: Job) -> str:
    """Queue a run beside those that are due; its id. Raises LeapJobError for what is no schedule."""
    _check(schedule)
    run = request_of(schedule).run(schedule.id, time.time())
    return table.database.transaction(lambda: table.insert_with_followers(run))


def _set(table: Table, schedule: Job, moment: float) -> None:
    _check(schedule)
    table.database.change(
        "UPDATE jobs SET run_after=:moment WHERE id=:id AND state='queued'", {"id": schedule.id, "moment": moment}
    )


def _check(schedule: Job) -> None:
    if schedule.kind != SCHEDULE or schedule.state.is_final:
        raise LeapJobError(f"the job {schedule.id} is not an active schedule", hint="leap jobs schedules lists those")
