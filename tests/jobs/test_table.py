"""The table of jobs: transitions happen once, output is fenced, old files are brought up to date."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time

import pytest

from jobs.table.job import Claim, ClaimLostError, Ending, NewJob, State, WorkerIdentity
from jobs.table.table import Table
from leap_core.errors import LeapError, LeapJobError


@pytest.fixture
def table(tmp_path):
    with Table(tmp_path / "data" / "jobs.db") as table:
        yield table


def add(table: Table, **given: object) -> str:
    return table.add([NewJob("generate", {"label": "x"}, **given)])[0]  # type: ignore[arg-type]


def claimed(table: Table, id: str, owner: str = "me") -> Claim:
    job = table.get(id)
    assert job is not None and table.claim(id, job.attempt, owner) is not None
    return Claim(id, job.attempt, owner)


def state(table: Table, id: str) -> State:
    job = table.get(id)
    assert job is not None
    return job.state


def test_a_job_from_its_beginning_to_its_end(table):
    id = add(table, priority=3, retries=1)
    claim = claimed(table, id)
    assert table.write(claim, 0, [{"type": "chunk", "text": "ä"}], {"done": 1, "total": 4}) is False
    assert table.write(claim, 1, [{"n": 1}, {"n": 2}]) is False
    job = table.find(id[:3])
    assert (job.state, job.priority, job.percent, job.owner) == (State.RUNNING, 3, 25.0, "me")
    table.finish(claim, Ending(State.SUCCEEDED, {"text": "ä"}))
    job = table.find(id)
    assert (job.state, job.result, job.owner) == (State.SUCCEEDED, {"text": "ä"}, None)
    assert [event.value for event in table.events(id, 1)] == [{"type": "chunk", "text": "ä"}, {"n": 1}, {"n": 2}]
    assert [event.number for event in table.events(id, 1, after=0)] == [1, 2]


def test_one_of_many_concurrent_claims_wins(table):
    ids = [add(table) for _ in range(20)]
    won = []

    def claim(owner: str) -> None:
        with Table(table.database.path) as own:
            won.extend((id, owner) for id in ids if own.claim(id, 1, owner) is not None)

    threads = [threading.Thread(target=claim, args=(f"owner-{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(id for id, _ in won) == sorted(ids)
    for id, owner in won:
        assert table.get(id).owner == owner


@pytest.mark.parametrize(
    "usurp",
    [
        lambda table, claim: table.requeue(claim, failed=True),
        lambda table, claim: table.recover(5),
        lambda table, claim: table.finish(claim, Ending(State.FAILED)),
    ],
    ids=["requeued", "recovered", "finished"],
)
def test_a_worker_that_lost_a_job_can_no_longer_write(table, usurp):
    claim = claimed(table, add(table))
    usurp(table, claim)
    for act in (
        lambda: table.write(claim, 0, [{"late": True}]),
        lambda: table.finish(claim, Ending(State.SUCCEEDED)),
        lambda: table.requeue(claim, interrupted=True),
    ):
        with pytest.raises(ClaimLostError):
            act()
    assert table.events(claim.id, 1) == []
    assert state(table, claim.id) is not State.SUCCEEDED


def test_an_old_message_starts_nothing(table):
    id = add(table)
    claim = claimed(table, id)
    table.requeue(claim, error={"message": "broken"}, failed=True)
    assert table.claim(id, 1, "other") is None
    assert table.get(id).failures == 1 and table.claim(id, 2, "other") is not None


def test_cancelling_in_each_state(table):
    queued, running = add(table), add(table)
    assert table.request_cancel(queued) is State.CANCELLED and table.claim(queued, 1, "me") is None
    claim = claimed(table, running)
    assert table.request_cancel(running) is State.RUNNING
    assert table.wanted_to_stop("me") == {(running, 1)} and table.wanted_to_stop("other") == set()
    assert table.write(claim, 0, [{"last": "words"}]) is True
    table.finish(claim, Ending(State.CANCELLED))
    assert table.request_cancel(running) is State.CANCELLED and len(table.events(running, 1)) == 1
    assert table.retry(running).attempt == 2 and state(table, running) is State.QUEUED


@pytest.mark.parametrize("failed", [True, False])
def test_a_job_being_cancelled_is_not_queued_again(table, failed):
    id = add(table)
    claim = claimed(table, id)
    table.request_cancel(id)
    table.requeue(claim, failed=failed, interrupted=not failed)
    job = table.get(id)
    assert (job.state, job.attempt, job.finished is not None) == (State.CANCELLED, 1, True)
    assert table.unfinished() == 0 and table.retry(id).attempt == 2


def test_recovery_requeues_running_jobs_and_fails_them_at_the_limit(table):
    often, cancelled, queued = add(table), add(table), add(table)
    for n in range(3):
        claimed(table, often)
        assert table.recover(3) == [often]
        assert table.get(often).attempt == n + 2
    claimed(table, often)
    claimed(table, cancelled)
    table.request_cancel(cancelled)
    assert set(table.recover(3)) == {often, cancelled}
    assert [state(table, id) for id in (often, cancelled, queued)] == [State.FAILED, State.CANCELLED, State.QUEUED]
    assert "killed too often" in table.get(often).error["message"]


def test_only_ended_jobs_are_removed_and_their_output_goes_with_them(table):
    id = add(table)
    with pytest.raises(LeapJobError, match="is queued"):
        table.remove(id)
    claim = claimed(table, id)
    table.write(claim, 0, [{"a": 1}])
    table.finish(claim, Ending(State.FAILED))
    assert table.prune(before=time.time() - 60) == [] and table.prune(time.time() + 1, [State.SUCCEEDED]) == []
    assert table.prune(before=time.time() + 1) == [id]
    assert table.get(id) is None and table.events(id, 1) == []


def test_unknown_ids_are_errors(table, monkeypatch):
    id = add(table)
    for prefix in ("", "zz*", "%", "'", id + "x"):
        with pytest.raises(LeapJobError, match="there is no job"):
            table.find(prefix)
    letters = iter("twinaaaatwinbbbb")
    monkeypatch.setattr("secrets.choice", lambda _alphabet: next(letters))
    first, second = add(table), add(table)
    with pytest.raises(LeapJobError, match=f"several jobs begin with 'twin': {first}, {second}"):
        table.find("twin")


ME = WorkerIdentity("me", "me", "here")


def claim_all(table: Table) -> list[str]:
    """The ids of all that can be begun, in order."""
    ids = []
    while (job := table.claim_next("generate", ME)) is not None:
        ids.append(job.id)
    return ids


def test_jobs_wait_for_their_time_but_not_for_a_clock_that_was_set_back(table, monkeypatch):
    now = time.time()
    later = add(table, run_after=now + 1000)
    stuck = add(table)
    table.requeue(claimed(table, stuck), delay=30, failed=True)
    assert claim_all(table) == [] and 28 < table.waiting(ME)[1] <= 30
    monkeypatch.setattr("jobs.table.database.time.time", lambda: now - 86_400)
    assert claim_all(table) == [stuck], "the wait can never be longer than the back-off"
    table.requeue(Claim(stuck, 2, "me"), delay=30, failed=True)
    monkeypatch.setattr("jobs.table.database.time.time", lambda: now - 86_400 + 31)
    assert claim_all(table) == [stuck]
    monkeypatch.setattr("jobs.table.database.time.time", lambda: now + 1001)
    assert claim_all(table) == [later]


def test_higher_priority_comes_first(table):
    low, high, middle = (add(table, priority=priority) for priority in (-1, 5, 0))
    assert claim_all(table) == [high, middle, low]


def test_many_jobs_are_added_together_or_not_at_all(table):
    with pytest.raises(TypeError):
        table.add([NewJob("generate", {}), NewJob("generate", {"x": object()})])
    assert table.jobs() == []
    assert len(set(table.add([NewJob("generate", {})] * 300))) == 300


def test_file_names_need_not_be_valid_unicode(table):
    path = os.fsdecode(b"/caf\xe9/m.gguf")
    (id,) = table.add([NewJob("generate", {"model": path, "prompt": "caf\u00e9"})])
    assert table.get(id).parameters == {"model": path, "prompt": "caf\u00e9"}


def test_the_table_is_private(table):
    if os.name == "posix":
        assert stat.S_IMODE(table.database.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(table.database.path.parent.stat().st_mode) == 0o700


def test_a_submitted_job_is_on_the_disk(table, tmp_path):
    """A copy of the files as they are at that moment, as a machine without power would find them, has the job."""
    id = add(table)
    assert table.database.connection.execute("PRAGMA synchronous").fetchone()[0] == 2, "FULL: each commit is fsynced"
    found = tmp_path / "found"
    found.mkdir()
    for name in ("jobs.db", "jobs.db-wal"):
        shutil.copy(table.database.path.parent / name, found / name)
    with Table(found / "jobs.db") as after:
        assert after.get(id) == table.get(id)


def test_a_damaged_or_full_table_is_a_one_line_error(tmp_path):
    path = tmp_path / "data" / "jobs.db"
    path.parent.mkdir()
    path.write_bytes(b"not a database, " * 100)
    with pytest.raises(LeapError, match="cannot be used: file is not a database") as told:
        Table(path)
    assert "move the file away" in (told.value.hint or "")
    with Table(tmp_path / "small" / "jobs.db") as table:
        id = add(table)
        pages = table.database.connection.execute("PRAGMA page_count").fetchone()[0]
        table.database.connection.execute(f"PRAGMA max_page_count={pages}").close()
        with pytest.raises(LeapError, match="full") as told:
            table.add([NewJob("generate", {"label": "x" * 200_000})])
        assert "free disk space" in (told.value.hint or "")
        table.database.connection.execute("PRAGMA max_page_count=100000").close()
        assert [job.id for job in table.jobs()] == [id] and add(table)
