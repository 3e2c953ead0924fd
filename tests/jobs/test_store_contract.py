"""What the table of jobs promises, over both of its stores: a SQLite file, and a PostgreSQL server."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from datetime import datetime, timezone

import pytest

from jobs.scheduling.schedules import Every, fire, pause, repeated, resume, run_now
from jobs.table.claims import WorkerReport, WorkerRows
from jobs.table.job import Claim, ClaimLostError, Ending, NewJob, State, WorkerIdentity
from jobs.table.table import Table
from leap_core.errors import LeapJobError, LeapOptionsError
from tests.support.lengths import lengths

ME, OTHER = WorkerIdentity("me", "run-1", "here"), WorkerIdentity("other", "run-2", "there")


@pytest.fixture
def table(place):
    with Table(place) as table:
        yield table


def add(table: Table, **given: object) -> str:
    return table.add([NewJob("generate", {"label": "x"}, **given)])[0]  # type: ignore[arg-type]


def begin(table: Table, claimant: WorkerIdentity = ME) -> Claim:
    job = table.claim_next("generate", claimant)
    assert job is not None
    return Claim(job.id, job.attempt, claimant.owner)


def test_a_job_from_its_beginning_to_its_end(table):
    id = add(table, priority=3, retries=1)
    claim = begin(table)
    assert table.write(claim, 0, [{"type": "chunk", "text": "ä\u0000"}], {"done": 1, "total": 4}) is False
    assert table.write(claim, 1, [{"n": 1}, {"n": 2}]) is False
    job = table.find(id[:5])
    assert (job.state, job.priority, job.percent, job.owner, job.worker) == (State.RUNNING, 3, 25.0, "run-1", "me")
    assert job.lease_until > job.heartbeat and abs(job.created - time.time()) < 60
    table.finish(claim, Ending(State.SUCCEEDED, {"text": "ä"}))
    job = table.get(id)
    assert (job.state, job.result, job.owner, job.lease_until) == (State.SUCCEEDED, {"text": "ä"}, None, None)
    assert [event.value for event in table.events(id, 1)] == [{"type": "chunk", "text": "ä\u0000"}, {"n": 1}, {"n": 2}]
    assert [event.number for event in table.events(id, 1, after=0)] == [1, 2]
    assert table.last_attempt_with_output(id) == 1


def test_output_that_is_written_twice_stands_once(table):
    """As after a connection that was lost while its transaction was committed."""
    add(table)
    claim = begin(table)
    table.write(claim, 0, [{"n": 0}])
    table.write(claim, 0, [{"n": 0}, {"n": 1}])
    assert [event.value["n"] for event in table.events(claim.id, 1)] == [0, 1]


def test_claims_go_by_priority_and_age_and_each_to_one(table, place):
    low, high, older, younger = (add(table, priority=priority) for priority in (-1, 5, 0, 0))
    assert [begin(table).id for _ in range(4)] == [high, older, younger, low]
    ids = list(table.add([NewJob("generate", {"n": n}) for n in range(40)]))
    claimed: list[str] = []

    def claim(name: str) -> None:
        with Table(place) as own:
            while (job := own.claim_next("generate", WorkerIdentity(name, name, "here"))) is not None:
                claimed.append(job.id)

    threads = [threading.Thread(target=claim, args=(f"worker-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(ids)


def test_a_job_goes_where_its_model_and_its_machine_are(table):
    table.add([NewJob("generate", {"n": 1}, model="aaa"), NewJob("download", {"n": 2}, machine="there")])
    without = WorkerIdentity("me", "run-1", "here", frozenset({"bbb"}))
    assert table.claim_next("generate", without) is None and table.claim_next("download", without) is None
    assert table.waiting(without) == (frozenset(), None)
    holder = WorkerIdentity("other", "run-2", "there", frozenset({"bbb", "aaa"}))
    assert table.waiting(holder)[0] == {"generate", "download"}
    assert table.claim_next("generate", holder) is not None and table.claim_next("download", holder) is not None


def test_jobs_of_a_newer_version_are_not_claimed(table):
    add(table)
    table.add([NewJob("dance", {"label": "unknown"})])
    table.database.change("UPDATE jobs SET version=99 WHERE kind='generate'")
    table.database.change("ALTER TABLE jobs ADD COLUMN mood TEXT")
    assert table.claim_next("generate", ME) is None and len(table.jobs()) == 2 and len(table.counts()) == 2
    assert table.unfinished() == 1, "of the known kinds"


@pytest.mark.parametrize(
    "usurp",
    [
        lambda table, claim: table.requeue(claim, failed=True),
        lambda table, claim: table.recover(5, "me"),
        lambda table, claim: table.finish(claim, Ending(State.FAILED)),
    ],
    ids=["requeued", "recovered", "finished"],
)
def test_writes_of_a_lost_worker_are_fenced(table, usurp):
    add(table)
    claim = begin(table)
    usurp(table, claim)
    for act in (
        lambda: table.write(claim, 0, [{"late": True}]),
        lambda: table.finish(claim, Ending(State.SUCCEEDED)),
        lambda: table.requeue(claim, interrupted=True),
    ):
        with pytest.raises(ClaimLostError):
            act()
    assert table.events(claim.id, 1) == [] and table.get(claim.id).state is not State.SUCCEEDED


def test_attempts_wait_longer_each_time(table):
    id = add(table)
    table.requeue(begin(table), delay=30, error={"message": "broken"}, failed=True)
    job = table.get(id)
    assert (job.attempt, job.failures, job.error) == (2, 1, {"message": "broken"})
    kinds, seconds = table.waiting(ME)
    assert kinds == frozenset() and 0 < seconds <= 30 and table.claim_next("generate", ME) is None
    table.database.change("UPDATE jobs SET run_after=run_after-30")
    assert table.claim_next("generate", ME).attempt == 2
    table.requeue(Claim(id, 2, "run-1"), interrupted=True, died=True)
    table.requeue(begin(table), interrupted=True, died=True)
    assert (table.get(id).deaths, table.get(id).interruptions) == (2, 2)
    table.requeue(begin(table), interrupted=True)
    assert table.get(id).deaths == 0


def test_jobs_can_be_cancelled_in_each_state(table):
    queued, running = add(table), add(table)
    assert table.request_cancel(queued) is State.CANCELLED
    assert table.get(queued).finished is not None
    claim = begin(table)
    assert claim.id == running and table.request_cancel(running) is State.RUNNING
    assert table.wanted_to_stop("run-1") == {(running, 1)} and table.wanted_to_stop("run-2") == set()
    assert table.write(claim, 0, []) is True
    table.requeue(claim, failed=True)
    assert (table.get(running).state, table.get(running).attempt) == (State.CANCELLED, 1)
    assert table.retry(running).state is State.QUEUED
    table.add([NewJob("generate", {})] * 50)
    assert table.cancel_all() == 51 and table.unfinished_ids() == frozenset()


def test_jobs_of_a_lost_worker_are_recovered(table):
    often, cancelled, queued = add(table), add(table), add(table, priority=-1)
    for n in range(3):
        begin(table)
        assert table.recover(3, "me") == [often]
        assert table.get(often).attempt == n + 2
    assert begin(table).id == often and begin(table).id == cancelled
    table.request_cancel(cancelled)
    assert set(table.recover(3, "me")) == {often, cancelled}
    assert [table.get(id).state for id in (often, cancelled, queued)] == [
        State.FAILED,
        State.CANCELLED,
        State.QUEUED,
    ]


def test_ended_jobs_are_forgotten_with_their_output(table):
    id = add(table)
    with pytest.raises(LeapJobError, match="is queued"):
        table.remove(id)
    claim = begin(table)
    table.write(claim, 0, [{"a": 1}])
    table.finish(claim, Ending(State.FAILED))
    assert table.prune(time.time() - 3600) == [] and table.prune(time.time() + 3600, [State.SUCCEEDED]) == []
    assert table.prune(time.time() + 3600) == [id] and table.get(id) is None and table.events(id, 1) == []


def test_jobs_are_found_and_counted(table, monkeypatch):
    letters = iter("twinaaaatwinbbbb")
    monkeypatch.setattr("secrets.choice", lambda _alphabet: next(letters))
    first, second = add(table), add(table)
    with pytest.raises(LeapJobError, match=f"several jobs begin with 'twin': {first}, {second}"):
        table.find("twin")
    for prefix in ("", "zz*", "%", "'", first + "x"):
        with pytest.raises(LeapJobError, match="there is no job"):
            table.find(prefix)
    assert [job.id for job in table.jobs()] == [second, first] and len(table.jobs(limit=1)) == 1
    assert table.jobs(states=[State.RUNNING]) == [] and table.jobs(kinds=["batch"]) == []
    assert table.counts() == {("generate", State.QUEUED): 2} and table.unfinished_ids() == {first, second}


def test_workers_report_themselves(table):
    workers = WorkerRows(table.database)
    known = {"machine": "here", "name": "a", "pid": 7, "version": "1", "capacity": {"generate": 4}}
    workers.enter("me", WorkerReport(models={"aaa": "Model"}, **known))
    add(table)
    begin(table)
    (row,) = workers.all()
    assert row.is_alive and row.running == 1 and row.models == {"aaa": "Model"} and row.capacity == {"generate": 4}
    assert workers.beat("me") is False
    assert workers.drain(["me"]) == 1 and workers.beat("me") is True
    workers.enter("me", WorkerReport(models={}, **known))
    assert workers.beat("me") is False, "a worker that starts again is not drained any more"
    table.database.change("UPDATE workers SET seen=seen-100")
    assert not workers.all()[0].is_alive
    workers.forget_dead(50)
    assert workers.all() == []


def test_two_tables_have_different_ids(table, tmp_path):
    with Table(tmp_path / "another.db") as another:
        assert len(table.database.id) == 16 and table.database.id != another.database.id


def test_many_who_open_a_new_store_at_once_all_can(place):
    ids: list[str] = []

    def submit() -> None:
        with Table(place) as table:
            ids.extend(add(table) for _ in range(5))

    threads = [threading.Thread(target=submit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 30


def test_output_is_kept_for_a_time_and_a_number_of_attempts(table):
    old, new, tried = (add(table, priority=-n) for n in range(3))
    for id in (old, new):
        claim = begin(table)
        assert claim.id == id
        table.write(claim, 0, [{"a": 1}])
        table.finish(claim, Ending(State.SUCCEEDED, {"text": "a"}))
    for _ in range(4):
        claim = begin(table)
        table.write(claim, 0, [{"a": claim.attempt}])
        table.requeue(claim, interrupted=True)
    table.database.change("UPDATE jobs SET finished=finished-100 WHERE id=:id", {"id": old})
    assert table.forget_output(math.inf) == 0
    assert table.forget_output(50, attempts=3) == 3
    assert [len(table.events(id, 1)) for id in (old, new)] == [0, 1] and table.get(old).result == {"text": "a"}
    assert [len(table.events(tried, attempt)) for attempt in range(1, 5)] == [0, 0, 1, 1]


def test_models_that_a_worker_lacks_are_listed(table):
    table.add([NewJob("generate", {}, model="aaa", origin="A"), NewJob("generate", {}, model="bbb")])
    table.add([NewJob("generate", {}, model="ccc", origin="C"), NewJob("download", {}, machine="there")])
    worker = WorkerIdentity("me", "run-1", "here", frozenset({"ccc"}))
    assert table.lacking(worker) == [("aaa", "A")] and table.lacking(ME) == []
    assert sorted(job.model for job in table.models_waited_for()) == ["aaa", "bbb", "ccc"]
    workers = WorkerRows(table.database)
    workers.enter(
        "me", WorkerReport(machine="here", name="a", pid=7, version="1", capacity={}, models={}, fetches=True)
    )
    workers.set_models("me", {"aaa": "Model"}, {"aaa": "A"})
    assert workers.all()[0].fetches and workers.all()[0].origins == {"aaa": "A"}


def test_a_job_that_comes_after_others_waits_for_their_ends(table):
    first, second = add(table), add(table)
    later = add(table, after=(first,), after_any=(second,))
    whatever = add(table, after_any=(first, second))
    doomed = add(table, after=(second,))
    assert table.get(later).comes_after == (first, second)
    assert [begin(table).id for _ in range(2)] == [first, second] and table.claim_next("generate", ME) is None
    assert table.release() == []
    table.finish(Claim(first, 1, "run-1"), Ending(State.SUCCEEDED))
    assert table.release() == [] and table.claim_next("generate", ME) is None
    table.finish(Claim(second, 1, "run-1"), Ending(State.FAILED))
    assert set(table.release()) == {later, whatever, doomed}
    assert table.release() == []
    job = table.get(doomed)
    assert job.state is State.FAILED and job.finished is not None
    assert job.error["message"] == f"it comes after the job {second}, which failed"
    assert {begin(table).id for _ in range(2)} == {later, whatever}
    assert table.retry(doomed).state is State.QUEUED and begin(table).id == doomed


def test_a_removed_job_and_a_cancelled_one_did_not_end_well(table):
    for end in ("cancel", "remove"):
        first = add(table)
        later = add(table, after=(first,))
        table.request_cancel(first)
        if end == "remove":
            table.remove(first)
        assert table.release() == [later]
        word = "cancelled" if end == "cancel" else "removed"
        assert table.get(later).error["message"] == f"it comes after the job {first}, which was {word}"


def test_a_job_that_comes_after_another_keeps_its_own_time(table):
    first = add(table)
    later = add(table, after=(first,), run_after=time.time() + 3600)
    claim = begin(table)
    table.finish(claim, Ending(State.SUCCEEDED))
    assert table.release() == [later] and table.claim_next("generate", ME) is None
    assert 3500 < table.get(later).run_after - time.time() < 3700


def test_followers_are_queued_with_their_job_and_are_about_it(table):
    follower = NewJob("command", {"do": "notify"}, retries=0)
    (id,) = table.add([NewJob("generate", {"label": "x"}, followers=(follower, follower))])
    followers = [job for job in table.jobs() if job.kind == "command"]
    assert [job.parameters["about"] for job in followers] == [id, id]
    assert [job.comes_after for job in followers] == [(id,), (id,)]


def test_concurrent_releases_release_each_job_once(table, place):
    first = add(table)
    later = [add(table, after=(first,)) for _ in range(20)]
    table.finish(begin(table), Ending(State.SUCCEEDED))
    released: list[str] = []

    def release() -> None:
        with Table(place) as own:
            released.extend(own.release())

    threads = [threading.Thread(target=release) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(released) == sorted(later)


def schedule(table: Table, every: str, moment: float, **given: object) -> str:
    first = Every.of(every)
    job = NewJob("generate", {"label": "x"}, run_after=first.next_after(moment, moment + (first.seconds or 0)))
    return table.add([repeated(job, Every.of(every), **given)])[0]  # type: ignore[arg-type]


def test_a_due_job_is_queued_once_by_the_first_to_look(table, place):
    moment = 1_800_000_000.0
    id = schedule(table, "60s", moment, overlap="queue")
    assert fire(table, moment + 59) == []
    fired: list[str] = []

    def look() -> None:
        with Table(place) as own:
            for second in range(60, 60 * 8, 20):
                fired.extend(fire(own, moment + second))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = [job for job in table.jobs() if job.kind == "generate"]
    assert sorted(job.parameters["due"] - moment for job in runs) == [60.0 * n for n in range(1, 8)]
    assert sorted(fired) == sorted(job.id for job in runs)
    told = table.get(id)
    assert (told.state, told.progress["runs"], told.run_after) == (State.QUEUED, 7, moment + 480)


def test_missed_runs_happen_once_or_not_at_all(table):
    moment = 1_800_000_000.0
    run, skip = (schedule(table, "60s", moment, missed=missed) for missed in ("run", "skip"))
    assert len(fire(table, moment + 3600)) == 1
    assert [table.get(id).run_after for id in (run, skip)] == [moment + 3660] * 2
    assert (table.get(run).progress["runs"], table.get(skip).progress["skipped"]) == (1, 1)


def test_a_running_run_makes_the_next_one_skip_or_queue(table):
    moment = 1_800_000_000.0
    schedule(table, "60s", moment)
    assert len(fire(table, moment + 60)) == 1 and fire(table, moment + 120) == []
    table.finish(begin(table), Ending(State.FAILED))
    assert len(fire(table, moment + 180)) == 1


def test_an_unreadable_schedule_does_not_stop_others(table):
    moment = 1_800_000_000.0
    strange = schedule(table, "60s", moment)
    job = table.get(strange)
    parameters = json.dumps({**job.parameters, "every": "each second full moon"})
    table.database.change("UPDATE jobs SET parameters=:new WHERE id=:id", {"new": parameters, "id": strange})
    schedule(table, "60s", moment)
    assert len(fire(table, moment + 60)) == 1


def test_what_follows_each_run_need_not_say_that_nothing_follows_it(table):
    moment = 1_800_000_000.0
    then = NewJob("command", {"do": "then", "command": "true", "label": "then"})
    job = NewJob("generate", {"label": "x"}, run_after=moment + 60, followers=(then,))
    id = table.add([repeated(job, Every.of("60s"))])[0]
    parameters = table.get(id).parameters
    del parameters["job"]["followers"][0]["followers"]
    table.database.change("UPDATE jobs SET parameters=:new WHERE id=:id", {"new": json.dumps(parameters), "id": id})
    assert len(fire(table, moment + 60)) == 1
    assert [each.kind for each in table.jobs()].count("command") == 1


@pytest.mark.parametrize(
    "parameters", [{"every": 5}, {"every": None}, {"job": 3}, {"begun": "x"}, {"every": "@daily", "job": {}}]
)
def test_a_damaged_schedule_ends_and_does_not_stop_others(table, parameters):
    moment = 1_800_000_000.0
    damaged = schedule(table, "60s", moment)
    text = json.dumps({**table.get(damaged).parameters, **parameters})
    table.database.change("UPDATE jobs SET parameters=:new WHERE id=:id", {"new": text, "id": damaged})
    schedule(table, "60s", moment)
    assert len(fire(table, moment + 60)) == 1
    ended = table.get(damaged)
    assert ended.state is State.FAILED and "the row of this job cannot be read" in ended.error["message"]


def test_a_damaged_job_that_comes_after_another_keeps_no_other_one_waiting(table):
    first = table.add([NewJob("generate", {})])[0]
    damaged, sound = table.add([NewJob("generate", {"label": n}, after_any=(first,)) for n in "ab"])
    table.database.change("UPDATE jobs SET parameters='[]' WHERE id=:id", {"id": damaged})
    table.finish(begin(table), Ending(State.SUCCEEDED))
    assert list(table.release()) == [sound] and table.get(damaged).state is State.FAILED


def test_a_schedule_is_paused_resumed_run_at_once_and_cancelled(table):
    id = schedule(table, "3600s", time.time())
    pause(table, table.get(id))
    assert fire(table, time.time() + 1e6) == [] and table.release() == []
    resume(table, table.get(id))
    assert 3500 < table.get(id).run_after - time.time() <= 3600
    run = run_now(table, table.get(id))
    assert table.get(run).state is State.QUEUED and begin(table).id == run
    assert [job.id for job in table.jobs(schedule=id)] == [run] and table.jobs(schedule=run) == []
    table.request_cancel(id)
    assert fire(table, time.time() + 1e6) == []
    with pytest.raises(LeapJobError, match="is not an active schedule"):
        resume(table, table.get(id))


@pytest.mark.slow
@pytest.mark.parametrize(("month", "day"), [(3, 10), (10, 28)])
@lengths(20, 365, "days")
def test_a_year_of_schedules_in_two_zones_over_kills_and_jumps_of_the_clock(table, place, month, day, days):
    """A worker opens the table anew, looks five times or so and is gone; the clock jumps forth and back. What is due
    is run once, but for what was due while nobody looked, of which the first is run. The short form is 20 days around
    a change of both zones' clocks."""
    zones = ("Europe/Berlin", "America/New_York", "UTC")
    fields = ("30 2 * * *", "0 9 * * 1-5", "15 1 * * *")
    texts = [f"{each} {zone}" for each in fields for zone in zones] + ["0 */8 * * *", "36h"]
    begun = datetime(2027, month, day, tzinfo=timezone.utc).timestamp()
    ids = {schedule(table, text, begun, overlap="queue"): text for text in texts}
    rng, now, end = random.Random(3), begun, begun + days * 86_400
    looks = []
    worker = Table(place)
    while now < end:
        if rng.random() < 0.2:
            worker.close()
            worker = Table(place)
        fire(worker, now)
        looks.append(now)
        if rng.random() < 0.02:
            fire(worker, now - rng.uniform(0, 7200))  # set back
        now += rng.uniform(3600, 6 * 3600) if rng.random() > 0.02 else 86_400.0 * 2  # off for two days
    worker.close()
    due: dict[str, list[float]] = {id: [] for id in ids}
    for job in table.jobs(kinds=["generate"]):
        due[job.parameters["schedule"]].append(job.parameters["due"])
    for id, text in ids.items():
        every, moments = Every.of(text), due[id]
        assert len(set(moments)) == len(moments)
        ideal = [every.next_after(begun, begun + (every.seconds or 0))]
        while (moment := every.next_after(ideal[-1], ideal[0])) <= looks[-1]:
            ideal.append(moment)
        assert set(moments) <= set(ideal), text
        for before, moment in zip(ideal, ideal[1:], strict=False):
            if moment not in moments:
                assert next(look for look in looks if look >= before) >= moment, (text, moment)
        assert len(moments) > 0.6 * len(ideal)


def test_minutes_that_clocks_skip_or_show_twice_are_run_once():
    """In Berlin 2027-03-28 has no 02:30, and 2027-10-31 has two."""
    nightly = Every.of("30 2 * * * Europe/Berlin")

    def due(day: str) -> list[str]:
        start = datetime.fromisoformat(f"{day}T00:00+00:00").timestamp() - 7200
        found, moment = [], start
        while (moment := nightly.next_after(moment)) < start + 86_400:
            found.append(datetime.fromtimestamp(moment, timezone.utc).strftime("%H:%M"))
        return found

    assert due("2027-03-27") == ["01:30"] and due("2027-03-28") == ["01:30"] and due("2027-03-29") == ["00:30"]
    assert due("2027-10-30") == ["00:30"] and due("2027-10-31") == ["00:30"] and due("2027-11-01") == ["01:30"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("soon", "is not a length of time"),
        ("6 h", "has 2 fields"),
        ("0.5s", "is not a length of time"),
        ("0 25 * * *", "'25' is not a valid hour"),
        ("0 9 * * moon", "'moon' is not a valid weekday"),
        ("0 9 30 2 *", "there is no such time"),
        ("0 9 * * * Mars/Base", "there is no zone Mars/Base"),
        ("0 9 * * * ../../etc/passwd", "there is no zone"),
    ],
)
def test_invalid_times_are_refused(text, reason):
    with pytest.raises(LeapOptionsError, match=reason):
        Every.of(text)
