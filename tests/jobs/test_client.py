"""What the jobs' client and its commands do where no worker is needed."""

from __future__ import annotations

import json
import os
import time

import pytest

from jobs.client import JobsClient
from jobs.table.job import NewJob, State
from leap_core.batch.settings import BatchSettings
from leap_core.errors import LeapSerializationError


@pytest.fixture
def jobs(leap_home):
    with JobsClient(autostart=False) as client:
        yield client


@pytest.fixture
def started(monkeypatch):
    """The workers that would have been started."""
    workers: list[object] = []
    monkeypatch.setattr("jobs.worker_process.start_worker", lambda *given, **_: workers.append(given))
    return workers


def named(jobs: JobsClient, id: str) -> str:
    """A queued job of this id."""
    (given,) = jobs.submit([NewJob("generate", {"label": "x"})])
    jobs.table.database.change("UPDATE jobs SET id=? WHERE id=?", (id, given))
    return id


@pytest.mark.parametrize("ask", [["list"], ["status", "aa"], ["stats"]], ids=lambda ask: ask[0])
def test_asking_about_jobs_of_a_killed_worker_starts_another(leap, jobs, started, ask):
    named(jobs, "aa")
    assert leap("jobs", *ask).code == 0 and started == []
    for state, workers in (("running", 1), ("succeeded", 1)):
        jobs.table.database.change("UPDATE jobs SET state=?", (state,))
        assert leap("jobs", *ask).code == 0 and len(started) == workers


def test_a_job_is_still_watched_when_a_similar_id_appears(jobs):
    named(jobs, "zza")
    changes = jobs.changes("zz")
    assert next(changes).state is State.QUEUED
    named(jobs, "zzb")
    jobs.cancel("zza")
    assert next(changes).state is State.CANCELLED


def test_all_ended_jobs_are_pruned_even_after_the_clock_was_set_back(jobs):
    jobs.cancel(named(jobs, "aa"))
    jobs.table.database.change("UPDATE jobs SET finished=?", (time.time() + 3600,))
    assert jobs.prune(60) == [] and jobs.prune() == ["aa"]


def test_a_timeout_of_wait_still_reports_the_jobs(leap, jobs, started):
    jobs.cancel(named(jobs, "aa"))
    named(jobs, "bb")
    done = leap("jobs", "wait", "aa", "bb", "--timeout", "0.01s", "--format", "json")
    assert done.code == 9 and "the job bb is still queued" in done.stderr
    assert [(job["id"], job["state"]) for job in json.loads(done.stdout)] == [("aa", "cancelled"), ("bb", "queued")]


@pytest.mark.parametrize(
    "command",
    [["generate", "hi", flag] for flag in ("--host", "--prompt-cache", "--save", "--verbose")],
)
def test_options_that_a_job_cannot_use_are_refused(leap, jobs, command):
    done = leap(*command, "-m", "builtin", "--background")
    assert done.code == 2 and f"--background cannot be combined with {command[-1]}" in done.stderr
    assert jobs.list() == []


def test_general_settings_that_a_job_cannot_use_are_ignored(leap, jobs, started):
    leap.variables["LEAP_GENERATE_PROMPT_CACHE"] = leap.variables["LEAP_GENERATE_SAVE"] = "1"
    assert leap("generate", "hi", "-m", "builtin", "--background").code == 0


def test_a_job_uses_the_model_host_unless_told_otherwise(leap, jobs, started, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hello"}\n')
    for command in (["generate", "hi"], ["batch", "in.jsonl", "-o", "out.jsonl"]):
        for flags, host in ((["--no-host"], False), ([], True)):
            assert leap(*command, *flags, "-m", "builtin", "--background").code == 0
            assert jobs.list(limit=1)[0].parameters["host"] is host


def test_retries_of_a_download_count_in_the_background(leap, jobs, started):
    leap("download", "hf:a/b/c.gguf", "--option", "retries=0", "--background")
    (job,) = jobs.list()
    assert (job.retries, job.parameters["options"]["retries"]) == (0, 0)


@pytest.mark.skipif(os.name == "nt", reason="devices of POSIX")
@pytest.mark.parametrize("output", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_job_cannot_write_to_the_submitters_descriptors(jobs, tmp_path, output):
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hello"}\n')
    with pytest.raises(LeapSerializationError, match="not the same for the worker"):
        jobs.batch(BatchSettings.of("in.jsonl", output, model="builtin"), cwd=tmp_path)
    assert jobs.list() == []


def test_the_page_lists_unfinished_jobs_before_those_that_ended(jobs):
    from jobs.client.server_jobs import ServedJobs

    waiting = jobs.submit([jobs.generation(f"Count {n}.") for n in range(3)])
    (ended,) = jobs.submit([jobs.generation("Hi.")])  # the newest
    jobs.cancel(ended, wait=False)
    served = ServedJobs(os.environ)
    assert {job["id"] for job in served.jobs(3)} == set(waiting)
    assert [job["id"] for job in served.jobs(4)][3] == ended and sum(served.counts().values()) == 4
    assert [job["id"] for job in served.jobs(4, {ended, waiting[0], "gone"})] == [waiting[0], ended]
