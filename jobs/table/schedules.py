"""Jobs that come again and again. A schedule is a row of its own that no worker runs: ``run_after`` is when the next
run is due, and the transaction that moves it on queues that run, so of many workers one does, and a kill loses none.

What was due while no worker ran is run once, or not at all; so is a run that is due while the one before still goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leap_core.errors import LeapError, LeapJobError, LeapOptionsError
from leap_core.schemas.json_values import JsonObject
from leap_core.system.dataclass import dataclass

from .job import LATER, SCHEDULE, Job, NewJob, State

if TYPE_CHECKING:
    from .table import Table

PAUSED = 2 * LATER
"""``run_after`` of a schedule that is paused."""
LATE_SECONDS = 60.0
"""A run that is later than this was missed."""
SHORTEST_SECONDS = 1.0
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
        """Read ``6h``, ``0 9 * * 1-5`` or ``0 9 * * 1-5 Europe/Berlin``. Raises LeapOptionsError."""
        parts = text.split()
        if len(parts) == 1:
            seconds = _seconds(parts[0])
            if seconds is None or seconds < SHORTEST_SECONDS:
                raise LeapOptionsError("every", f"{text!r} is neither a length of time such as 6h nor five fields")
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
        zone = self._zone()
        for minute in self._minutes(datetime.fromtimestamp(moment, zone).replace(tzinfo=None)):
            due = minute.replace(tzinfo=zone).timestamp() if zone is not None else minute.timestamp()
            if due > moment:
                return due
        raise ValueError("there is no such time")

    def _zone(self) -> tzinfo | None:
        if self.zone is None:
            return None
        from zoneinfo import ZoneInfo

        return ZoneInfo(self.zone)

    def _minutes(self, start: datetime) -> Iterator[datetime]:
        """The minutes that fit, as clocks show them, from the day of ``start`` on."""
        is_day, minutes = _parts(self.crontab)
        first = datetime(start.year, start.month, start.day)
        for midnight in (first + timedelta(days=n) for n in range(MOST_DAYS)):
            if is_day(midnight):
                yield from (midnight + timedelta(minutes=n) for n in minutes)


@lru_cache
def _parts(text: str) -> tuple[Callable[[datetime], bool], tuple[int, ...]]:
    """Which days fit, and which minutes of each. Raises ValueError that names a field that is wrong."""
    from huey import crontab

    minute, hour, day, month, day_of_week = text.split()
    is_minute = crontab(minute, hour, strict=True)
    midnight = datetime(2000, 1, 1)
    minutes = tuple(n for n in range(24 * 60) if is_minute(midnight + timedelta(minutes=n)))
    return crontab("*", "*", day, month, day_of_week, strict=True), minutes


def _seconds(text: str) -> float | None:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
    number = text[:-1]
    return float(number) * units[text[-1]] if text[-1:] in units and number.isdecimal() else None


def repeated(job: NewJob, every: Every, *, missed: str = RUN, overlap: str = SKIP) -> NewJob:
    """The schedule that queues this job again and again, first at its own ``run_after`` where it has one. Raises
    LeapJobError for a job that cannot be repeated."""
    if "kept" in job.parameters or "kept_output" in job.parameters:
        raise LeapJobError("only what reads files and writes to one can be repeated, no pipe and no kept output")
    parameters: JsonObject = dict(job.parameters)
    batch = parameters.get("batch")
    if batch is not None:
        if "%" not in str(batch["output"]):
            raise LeapJobError(
                f"each run needs an output of its own, and {batch['output']} is one",
                hint="name it by its time: -o results-%Y-%m-%d.jsonl",
            )
        parameters["batch"] = {**batch, "input_digest": None}
    now = time.time()
    first = job.run_after or (now + every.seconds if every.seconds else every.next_after(now))
    followers = [{**_plain(each), "parameters": each.parameters} for each in job.followers]
    values: JsonObject = {
        "label": f"{every.text}: {job.parameters.get('label', job.kind)}",
        "every": every.text,
        "begun": first,
        "missed": missed,
        "overlap": overlap,
        "job": {**_plain(job), "parameters": parameters, "followers": followers},
    }
    return NewJob(SCHEDULE, values, run_after=first)


def _plain(job: NewJob) -> JsonObject:
    return {name: getattr(job, name) for name in ("kind", "priority", "retries", "model", "machine", "origin")}


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
        with suppress(LeapError):  # a time that only a newer leap can read, or a zone that this machine lacks
            runs.append(_fire(table, Job.of_row(row), row["clock"] if now is None else now))
    return [run for run in runs if run is not None]


def _fire(table: Table, schedule: Job, now: float) -> str | None:
    parameters, due = schedule.parameters, schedule.run_after
    every = Every.of(parameters["every"])
    told = {"runs": 0, "skipped": 0, "failures": 0, **(schedule.progress or {})}
    last = table.get(told["last"]) if told.get("last") else None
    if last is not None and last.state.is_final:
        told["failures"] = told["failures"] + 1 if last.state is State.FAILED else 0
    goes_on = last is not None and not last.state.is_final and parameters["overlap"] == SKIP
    missed = parameters["missed"] == SKIP and now - due > LATE_SECONDS
    values = {"id": schedule.id, "due": due, "next": every.next_after(max(now, due), parameters["begun"])}

    from .table import dumps

    def move() -> str | None:
        run = None
        if not (goes_on or missed):
            run = table.insert_with_followers(_run_of(parameters["job"], schedule.id, due))
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


def _run_of(kept: Any, schedule: str, due: float) -> NewJob:
    """The run that is due now. ``%``-codes in the names of a batch's files say when."""
    parameters = {**kept["parameters"], "schedule": schedule, "due": due}
    if "batch" in parameters:
        batch = dict(parameters["batch"])
        for name in ("output", "errors"):
            if batch.get(name):
                batch[name] = time.strftime(batch[name], time.localtime(due))
        parameters["batch"] = batch
    followers = tuple(NewJob(**each) for each in kept["followers"])
    plain = {name: value for name, value in kept.items() if name not in ("parameters", "followers")}
    return NewJob(**plain, parameters=parameters, followers=followers)


def pause(table: Table, schedule: Job) -> None:
    """Let no run be due until ``resume``."""
    _set(table, schedule, PAUSED)


def resume(table: Table, schedule: Job) -> None:
    """Go on with the next time from now on."""
    parameters = schedule.parameters
    _set(table, schedule, Every.of(parameters["every"]).next_after(time.time(), parameters["begun"]))


def run_now(table: Table, schedule: Job) -> str:
    """Queue a run beside those that are due; its id. Raises LeapJobError for what is no schedule."""
    _check(schedule)
    run = _run_of(schedule.parameters["job"], schedule.id, time.time())
    return table.database.transaction(lambda: table.insert_with_followers(run))


def _set(table: Table, schedule: Job, moment: float) -> None:
    _check(schedule)
    table.database.change(
        "UPDATE jobs SET run_after=:moment WHERE id=:id AND state='queued'", {"id": schedule.id, "moment": moment}
    )


def _check(schedule: Job) -> None:
    if schedule.kind != SCHEDULE or schedule.state.is_final:
        raise LeapJobError(f"the job {schedule.id} is no schedule that goes on", hint="leap jobs schedules lists those")
