"""``leap jobs``: every subcommand with every kind of job, and what is shown of them."""

from __future__ import annotations

import json
import time

import pytest

from jobs.client import JobsClient
from jobs.scheduling.schedules import fire
from jobs.table.job import Claim, Ending, NewJob, State, WorkerIdentity

ME = WorkerIdentity("me", "run-1", "here")
HOOK = "http://user:hidden@127.0.0.1:1/hook"
LONG = "Summarize " + "very " * 60 + "briefly."


@pytest.fixture
def client(leap, monkeypatch):
    monkeypatch.setattr(JobsClient, "ensure_worker", lambda _jobs, _job=None: None)
    with JobsClient({"LEAP_HOME": str(leap.home)}, autostart=False) as jobs:
        yield jobs


@pytest.fixture
def made(leap, client, tmp_path):
    """A job of each kind, by its name."""
    (tmp_path / "b.jsonl").write_text('{"prompt": "hi"}\n')
    (tmp_path / "in").mkdir()
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    lines = {
        "generate": ["generate", "-m", "builtin", "hi", "--background", "--temperature", "0.5"],
        "batch": ["batch", "b.jsonl", "-m", "builtin", "-o", "o.jsonl", "--background"],
        "download": ["download", "LFM2.5-350M", "--background"],
        "schedule": ["summarize", "-m", "builtin", "b.jsonl", "--every", "6h", "--missed", "skip"],
        "schedule of a batch": ["batch", "b.jsonl", "-m", "builtin", "-o", "%H.jsonl", "--every", "@daily"],
        "folder": ["jobs", "folder", "in", "--include", "*.txt", "--", "summarize", "-m", "builtin", "{}"],
    }
    ids = {}
    for kind, words in lines.items():
        done = leap(*words)
        assert done.code == 0, done.stderr
        ids[kind] = done.stdout.split()[0]
    typed = ["generate", "--count=2", "--temperature=0.5", "--model=builtin", "--", LONG]
    ids["command"] = client.command(typed, label=LONG)
    assert leap("generate", "x", "-m", "builtin", "--webhook", HOOK, "--then", "true", "--notify").code == 0
    followers = {job.parameters.get("do", job.kind): job.id for job in client.list() if "about" in job.parameters}
    return {**ids, **followers}


SHOWING = [
    *(["status"], ["logs"], ["output"], ["wait", "--timeout", "0.1s"], ["list", "--schedule"]),
    *(["schedules", "--suspend"], ["schedules", "--resume"], ["schedules", "--run"]),
]
"""Subcommands after which the jobs are as they were, so that they share them."""
ENDING = [["retry"], ["remove", "--yes"], ["cancel"], ["watch"]]
STATES = ["queued", "failed"]


@pytest.mark.slow
@pytest.mark.parametrize("subcommands", [SHOWING, *([words] for words in ENDING)], ids=lambda each: each[0][0])
@pytest.mark.parametrize("format", ["text", "json"])
def test_every_subcommand_accepts_every_kind_or_explains_why_not(subcommands, format, leap, made, client):
    for words in subcommands:
        check_subcommand(words, format, leap, made, client)


def check_subcommand(words, format, leap, made, client):
    for kind, id in made.items():
        if words == ["watch"]:
            client.table.request_cancel(id)  # or it would go on
        if words == ["cancel"]:
            client.table.request_cancel(id)
        done = leap("jobs", *words, id, "--format", format)
        assert "this is a bug" not in done.stderr and "KeyError" not in done.stderr, (kind, done.stderr)
        assert done.code in (0, 2, 8, 9, 130), (kind, done)
        if done.code not in (0, 130):
            assert done.stderr.startswith("leap: error: ") and done.stderr.count("\n") == 1, (kind, done.stderr)
        if format == "json" and done.code == 0 and done.stdout and words[0] != "watch":
            json.loads(done.stdout)


def test_a_job_without_results_says_so(leap, made):
    said = {kind: leap("jobs", "output", id).stderr for kind, id in made.items()}
    assert "is a schedule, and has no results of its own" in said["schedule"] + said["schedule of a batch"]
    assert f"leap jobs list --schedule {made['schedule']}" in said["schedule"]
    assert "watches a folder" in said["folder"] and "sends a message about another job" in said["webhook"]
    assert all("runs when another job has ended" in said[each] for each in ("then", "notify"))


def test_stdout_of_a_command_job_is_its_output_and_stderr_its_log(leap, made, client):
    job = client.table.claim(made["command"], 1, ME)
    assert job is not None
    events = [
        {"type": "chunk", "text": "one\n"},
        {"type": "notice", "message": "half"},
        {"type": "chunk", "text": "two"},
    ]
    claim = Claim(job.id, 1, ME.owner)
    client.table.write(claim, 0, events)
    assert leap("jobs", "output", job.id).stdout == "one\ntwo\n"
    logs = leap("jobs", "logs", job.id)
    assert logs.stdout == "one\ntwo\n" and logs.stderr == "leap: half\n"
    error = {"type": "LeapJobError", "message": "the model is not here", "code": 3}
    client.table.finish(claim, Ending(State.FAILED, error=error))
    done = leap("jobs", "wait", job.id)
    assert done.code == 3 and "the model is not here" in done.stderr


def test_a_job_shows_the_whole_command_and_its_times(leap, made, client):
    def shown(kind: str) -> dict[str, object]:
        return json.loads(leap("jobs", "status", made[kind], "--format", "json").stdout)

    typed = ["leap", "generate", "--count=2", "--temperature=0.5", "--model=builtin", "--", LONG]
    assert (
        sorted(shown("command")["command"]) == sorted(typed) and LONG.split("briefly")[0] in shown("command")["label"]
    )
    text = leap("jobs", "status", made["command"]).stdout
    assert LONG in text and "--temperature=0.5" in text
    assert shown("generate")["model"] == "builtin" and "temperature" in json.dumps(shown("generate")["options"])
    folder = shown("folder")
    assert (
        folder["state"] == "running" and folder["command"][:2] == ["leap", "summarize"] and folder["files"] == ["*.txt"]
    )
    assert "watching" in leap("jobs", "status", made["folder"]).stdout
    listed = {
        state: leap("jobs", "list", "--state", state, "--format", "quiet").stdout for state in ("running", "queued")
    }
    assert made["folder"] in listed["running"] and made["folder"] not in listed["queued"]
    schedule = shown("schedule")
    assert schedule["every"] == "6h" and "b.jsonl" in schedule["command"] and "last_run" not in schedule
    assert 0 < schedule["next_run"] - time.time() <= 6 * 3600
    runs = fire(client.table, time.time() + 6 * 3600 + 10)  # from 6 p.m. on also the daily one
    run = shown("schedule")["last_run"]["id"]
    assert run in runs
    text = leap("jobs", "status", made["schedule"]).stdout
    assert f"{run} queued" in text and time.strftime("%Y-%m-%d", time.localtime(schedule["next_run"])) in text
    assert shown("schedule of a batch")["model"] == "builtin" and "hidden" not in json.dumps(shown("webhook"))


def test_a_cancelled_schedule_resumes_when_it_is_retried(leap, made, client):
    leap("jobs", "cancel", made["schedule"])
    assert leap("jobs", "retry", made["schedule"]).code == 0
    assert len(fire(client.table, time.time() + 6 * 3600 + 10)) >= 1


def test_a_table_of_jobs_ends_after_fifty_and_counts_the_rest(leap, client):
    client.table.add([NewJob("generate", {"label": LONG}) for _ in range(57)])
    done = leap("jobs", "list")
    assert len(done.stdout.splitlines()) == 51 and "7 more; --limit 57 lists all" in done.stderr
    assert len(leap("jobs", "list", "--limit", "57").stdout.splitlines()) == 58
    assert len(leap("jobs", "list", "--format", "quiet").stdout.splitlines()) == 57
    assert len(json.loads(leap("jobs", "list", "--format", "json", "--limit", "3").stdout)) == 3
    done = leap("jobs", "list", "--state", "failed")
    assert done.stderr == "leap: there are no such jobs\n"
    assert LONG in json.loads(leap("jobs", "list", "--format", "json", "--limit", "1").stdout)[0]["label"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["summarize", "-m", "nowhere", "{}"], 2, "there is no model 'nowhere'"),
        (["summarize", "-m", "LFM2.5-350M", "{}"], 3, "LFM2.5-350M"),
        (["summarize", "--bogus", "{}"], 2, "--bogus"),
        (["summarize", "--kind", "odd", "{}"], 2, "odd"),
        (["summarize", "-m", "builtin", "-o", "out.txt", "{}"], 8, "all files would be written to out.txt"),
        (["dance"], 2, "'dance' is no command of leap"),
    ],
)
def test_a_folder_whose_files_would_all_fail_is_refused(words, code, said, leap, client, tmp_path):
    (tmp_path / "in").mkdir()
    done = leap("jobs", "folder", "in", "--", *words)
    assert done.code == code and said in done.stderr and done.stderr.count("\n") == 1 and not client.list()


def test_records_of_a_function_that_have_an_index_are_no_answers(leap, client):
    id = client.function("shout", {}, label="x")
    job = client.table.claim(id, 1, ME)
    claim = Claim(id, job.attempt, ME.owner)
    records = [{"index": 1, "text": "a"}, {"type": "line", "index": 2}]
    client.table.write(claim, 0, [*records, {"type": "notice", "message": "done"}])
    client.table.finish(claim, Ending(State.SUCCEEDED, {}))
    done = leap("jobs", "logs", id)
    assert (done.stdout, done.stderr) == ("", "leap: done\n")
