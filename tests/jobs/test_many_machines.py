"""Workers in several data directories on one PostgreSQL server: each stands for a machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.client import JobsClient, Policy
from jobs.table.job import Claim, ClaimLostError, NewJob, State, WorkerIdentity
from jobs.table.store_protocol import MISSED
from jobs.table.table import Table
from jobs.worker_process import WorkerKeeper
from leap_core.batch.settings import KEPT, BatchOutput, BatchSettings
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapJobError, LeapModelNotFoundError, LeapUnavailableError
from leap_core.models.aliases_and_endpoints import BUILTINS
from leap_core.models.builtin import model_path

from . import processes
from .waiting import until

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]
SHORT = GenerationOptions(temperature=0.0, max_tokens=4)
ENDLESS = GenerationOptions(logit_bias={2: -1e9, 7: -1e9}, repetition_detection=False)


def source(tmp_path: Path, lines: int) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"custom_id": f"id-{n}", "prompt": f"Say {n}."}) + "\n" for n in range(lines)))
    return path


def settings(tmp_path: Path, output: str = "out.jsonl", **given: object) -> BatchSettings:
    options = {"max_tokens": 3, "temperature": 0}
    return BatchSettings.of(
        str(tmp_path / "in.jsonl"),
        str(tmp_path / output),
        model="builtin",
        options=options,
        concurrency=4,
        **given,
    )


def test_answers_come_from_a_machine_and_go_to_another(machines, jobs_url):
    worker, laptop = machines("worker"), machines("laptop")
    warnings: list[str] = []
    with JobsClient(laptop.variables, on_warning=warnings.append) as jobs:
        id = jobs.generate("Hi", options=SHORT)
        assert warnings == ["no worker is alive: the job waits until one is started with leap jobs worker"]
        worker.start()
        events = [event.value["type"] for event in jobs.follow(id)]
        job = jobs.wait(id, 60)
        assert job.state is State.SUCCEEDED and events[-1] == "complete"
        assert "".join(jobs.output(id)) == job.result["message"]["content"]
        assert job.parameters["model"] == "builtin" and len(job.model) == 64 and "cwd" not in job.parameters
        (row,) = jobs.workers()
        assert row.is_alive and row.models[job.model] == "builtin"
        assert not (laptop.home / "jobs.db").exists()
        long = jobs.generate("Count.", options=ENDLESS)
        until(lambda: jobs.events(long))
        assert jobs.cancel(long).state is State.CANCELLED


def test_a_batch_is_distributed_and_written_by_its_submitter(machines, tmp_path, jobs_url):
    one, two, laptop = machines("one"), machines("two"), machines("laptop")
    source(tmp_path, 60)
    with laptop.client() as jobs:
        one.start()
        two.start()
        id = jobs.batch(settings(tmp_path))
        out = tmp_path / "here.jsonl"
        until(lambda: jobs.write_output(id, out) > 0)  # while it runs
        ended = jobs.wait(id, 100)
        assert (ended.state, ended.result["succeeded"], ended.progress["total"]) == (State.SUCCEEDED, 60, 60)
        jobs.write_output(id, out)
        assert jobs.write_output(id, out) == 0, "it goes on where it was"
        with pytest.raises(LeapJobError, match="is not the output"):
            jobs.write_output(id, tmp_path / "in.jsonl")
        assert len({shard.worker for shard in jobs.table.shards(id)}) == 2, "one worker did it all"
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert [line["custom_id"] for line in lines] == [f"id-{n}" for n in range(60)]
        # The same output again: what is answered is taken over.
        again = jobs.wait(jobs.batch(settings(tmp_path)), 60)
        assert (again.state, again.result["reused"]) == (State.SUCCEEDED, 60)
    alone = {**os.environ, "LEAP_HOME": str(tmp_path / "alone")}
    flags = ["-m", "builtin", "--max-tokens", "3", "--temperature", "0", "--concurrency", "4"]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "leap_cli",
            "batch",
            str(tmp_path / "in.jsonl"),
            "-o",
            str(tmp_path / "alone.jsonl"),
            *flags,
        ],
        env=alone,
        check=True,
        capture_output=True,
    )
    answers = [
        json.loads(line)["response"]["body"]["choices"] for line in (tmp_path / "alone.jsonl").read_text().splitlines()
    ]
    assert [line["response"]["body"]["choices"] for line in lines] == answers


def test_embeddings_of_another_machine(machines, tmp_path):
    worker, laptop = machines("worker"), machines("laptop")
    worker.start()
    rows = [json.dumps({"id": n, "input": f"text {n}"}).encode() + b"\n" for n in range(40)]
    asked = BatchSettings.of("-", KEPT, model="builtin-embed", format="plain", input_format="jsonl")
    with laptop.client() as jobs:
        ended = jobs.wait(id := jobs.batch(asked, rows=rows, default_model="builtin"), 60)
        assert ended.state is State.SUCCEEDED, ended.error
        lines = [json.loads(line) for line in jobs.output(id)]
        assert [line["custom_id"] for line in lines] == [str(n) for n in range(40)]
        assert len(lines[7]["embedding"]) == 256
        with pytest.raises(LeapJobError, match="no array"):
            jobs.batch(replace(asked, output=BatchOutput("v.npy")), rows=rows)


def test_one_output_has_one_batch_at_a_time(machines, tmp_path):
    laptop = machines("laptop")
    source(tmp_path, 3)
    with laptop.client() as jobs:
        id = jobs.batch(settings(tmp_path))
        with pytest.raises(LeapUnavailableError, match="another batch writes to"):
            jobs.batch(settings(tmp_path))
        assert jobs.cancel(id).state is State.CANCELLED
        second = jobs.batch(settings(tmp_path))
        with pytest.raises(LeapUnavailableError, match="another batch writes to"):
            jobs.retry(id)
        assert jobs.cancel(second).state is State.CANCELLED
        assert jobs.retry(id).state is State.QUEUED
        assert jobs.cancel(id).state is State.CANCELLED


def test_jobs_run_only_where_their_model_is(machines, tmp_path):
    one, two, laptop = machines("one"), machines("two"), machines("laptop")
    data = bytearray(model_path().read_bytes())
    for machine, name, last in ((one, "m-one", 1), (two, "m-two", 2)):
        directory = machine.home / "models" / name
        directory.mkdir(parents=True)
        data[-1] = last  # another digest, the same model
        (directory / f"{name}-Q4_0.gguf").write_bytes(data)
        machine.start()
    with laptop.client() as jobs:
        until(lambda: len(jobs.workers()) == 2)
        ids = {name: jobs.generate("Hi", model=name, options=SHORT) for name in ("m-one", "m-two") for _ in range(2)}
        for name, id in ids.items():
            job = jobs.wait(id, 60)
            assert job.state is State.SUCCEEDED, job.error
            assert job.worker == {"m-one": one, "m-two": two}[name].configuration.worker_id
        with pytest.raises(LeapModelNotFoundError) as refused:
            jobs.generate("Hi", model="m-three")
        assert "m-one" in refused.value.hint and "m-two" in refused.value.hint


def test_a_worker_stopped_past_its_lease_loses_its_job_and_cannot_write(machines, jobs_url):
    one, two, laptop = machines("one", lease=3.0), machines("two", lease=3.0), machines("laptop")
    pid = one.start()
    with laptop.client() as jobs:
        id = jobs.generate("Count.", options=ENDLESS)
        until(lambda: jobs.events(id))
        owner = jobs.get(id).owner
        for each in [pid, *processes.named(one.home, "model_process")]:
            os.kill(each, signal.SIGSTOP)
        two.start()
        until(lambda: jobs.get(id).attempt == 2 and jobs.get(id).worker == two.configuration.worker_id)
        with Table(jobs_url) as table, pytest.raises(ClaimLostError):
            table.write(Claim(id, 1, owner), 10_000, [{"zombie": True}])
        for each in [pid, *processes.named(one.home, "model_process")]:
            os.kill(each, signal.SIGCONT)
        time.sleep(1.5)
        job = jobs.get(id)
        assert (job.worker, job.attempt) == (two.configuration.worker_id, 2), "the zombie took it back"
        assert not any(event.value.get("zombie") for event in jobs.events(id, 1))
        assert jobs.cancel(id).state is State.CANCELLED


def test_a_batch_comes_after_another_job(machines, tmp_path):
    worker, laptop = machines("worker"), machines("laptop")
    source(tmp_path, 40)
    with laptop.client() as jobs:
        worker.start()
        first = jobs.generate("Count.", options=ENDLESS)
        until(lambda: jobs.events(first))
        later = jobs.batch(settings(tmp_path), policy=Policy(after_any=(first,)))
        doomed = jobs.batch(settings(tmp_path, "x"), policy=Policy(after=(first,)))
        assert jobs.get(later).comes_after == (first,) and jobs.waiting_reason(jobs.get(later)) == f"the end of {first}"
        time.sleep(1.5)
        assert {shard.state for shard in jobs.table.shards(later)} == {State.QUEUED}, "nothing begins before"
        jobs.cancel(first)
        assert jobs.wait(later, 60).result["succeeded"] == 40
        failed = jobs.wait(doomed, 60)
        assert failed.state is State.FAILED and failed.error["message"].endswith("which was cancelled")
        assert {shard.state for shard in jobs.table.shards(doomed)} == {State.FAILED}
        jobs.retry(doomed)
        assert jobs.wait(doomed, 60).result["succeeded"] == 40


def test_a_drained_worker_ends_after_its_work(machines):
    machine = machines("one")
    machine.start()
    with machine.client() as jobs:
        id = jobs.generate("Count to forty.", options=GenerationOptions(max_tokens=80))
        until(lambda: jobs.get(id).state is not State.QUEUED)
        assert jobs.drain([machine.configuration.worker_id]) == 1
        later = jobs.generate("Hi", options=SHORT)
        assert jobs.wait(id, 60).state is State.SUCCEEDED
        until(lambda: not jobs.worker()["running"])
        assert jobs.get(later).state is State.QUEUED and jobs.workers() == []
        jobs.cancel(later)


def test_two_named_workers_of_one_machine(machines):
    machine = machines("one")
    machine.start()
    second = WorkerKeeper(machine.configuration.named("second"), machine.variables)
    second.start()
    with machine.client() as jobs:
        until(lambda: len(jobs.workers()) == 2)
        assert {row.name for row in jobs.workers()} == {"worker", "second"}
        ids = [jobs.generate("Hi", options=SHORT) for _ in range(4)]
        assert {jobs.wait(id, 60).state for id in ids} == {State.SUCCEEDED}
    assert second.stop()


def test_the_server_is_shown_without_its_password(leap_home):
    shutil.rmtree(leap_home, ignore_errors=True)
    with pytest.raises(LeapUnavailableError) as refused:
        JobsClient({**os.environ, "LEAP_JOBS_URL": "postgresql://me:geheim@127.0.0.1:9/jobs?password=auch"})
    assert "127.0.0.1:9/jobs" in str(refused.value) and "geheim" not in str(refused.value) + str(refused.value.hint)
    assert "auch" not in str(refused.value) and "refused" in str(refused.value), "why it cannot be reached"


def test_the_command_line_works_over_a_server(machines, leap, jobs_url, tmp_path):
    machine = machines("one")
    leap.variables["LEAP_JOBS_URL"] = jobs_url
    source(tmp_path, 6)
    flags = ["-m", "builtin", "--max-tokens", "2", "--concurrency", "4", "--background", "--option", "max-workers=1"]
    submitted = leap("batch", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"), *flags)
    assert submitted.code == 0 and "no worker is alive" in submitted.stderr
    id = submitted.stdout.strip()
    assert leap("jobs", "workers").stderr.startswith("leap: no worker runs")
    machine.start()
    assert leap("jobs", "wait", id).code == 0
    listed = json.loads(leap("jobs", "workers", "--format", "json").stdout)
    assert [(each["name"], each["alive"]) for each in listed] == [("worker", True)]
    assert set(BUILTINS) <= set(listed[0]["models"])
    printed = leap("jobs", "output", id)
    assert [json.loads(line)["custom_id"] for line in printed.stdout.splitlines()] == [f"id-{n}" for n in range(6)]
    assert leap("jobs", "output", id, "-o", str(tmp_path / "there.jsonl")).code == 0
    assert (tmp_path / "there.jsonl").read_text() == printed.stdout
    assert "1 alive" in leap("doctor").stdout
    assert leap("jobs", "worker", "--name", "second").code in (0, 1)
    assert leap("jobs", "worker", "--name", "second", "--shutdown").code == 0


def test_a_task_runs_over_a_server(machines, leap, jobs_url, leap_home):
    """Header, recipe and texts go along; what comes back is what the command prints."""
    recipe = leap_home / "recipes" / "classify.toml"
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text('[[wording]]\nmodels = ["*"]\nsystem = "One of {labels}"\n')
    machines("one").start()
    flags = ["classify", "-m", "builtin", "--labels", "x,y", "--lines", "--format", "csv"]
    leap.variables["LEAP_JOBS_URL"] = jobs_url
    submitted = leap(*flags, "--background", stdin="Hello!\nBye!\n")
    assert submitted.code == 0, submitted.stderr
    id = submitted.stdout.strip()
    assert leap("jobs", "wait", id).code == 0
    head, *rows = leap("jobs", "output", id).stdout.splitlines()
    assert head == "source,answer,x,y" and [row.split(",")[0] for row in rows] == ["-:1", "-:2"]
    assert leap("jobs", "remove", id).code == 0


def test_a_name_needs_a_server(leap):
    done = leap("jobs", "worker", "--name", "second")
    assert done.code == 2 and "needs jobs_url" in done.stderr


def test_a_prompt_that_is_too_large_for_a_server_is_refused(machines, monkeypatch):
    monkeypatch.setattr("jobs.submission.shared_jobs.MOST_BYTES", 1000)
    with machines("laptop").client() as jobs, pytest.raises(LeapJobError, match="are the most"):
        jobs.generate("word " * 500)


def test_a_restarted_server_is_waited_for(own_postgres, tmp_path):
    with Table(own_postgres.get_uri()) as table:
        changes = table.database.listen("abcdefgh")
        assert changes.wait(1) == []
        id = table.add([NewJob("generate", {"label": "x"})])[0]
        own_postgres.stop()
        threading.Timer(1.5, own_postgres.start).start()
        assert table.get(id).label == "x"
        assert table.claim_next("generate", WorkerIdentity("me", "me", "here")).id == id
        heard: list[str] = []

        def announced() -> bool:
            table.database.announce("changed", "abcdefgh")
            heard.extend(changes.wait(1))
            return "changed" in heard

        until(announced)
        assert MISSED in heard, "there may have been anything meanwhile"


def test_a_transaction_that_a_stopped_machine_left_open_is_ended(jobs_url, monkeypatch):
    monkeypatch.setattr("jobs.table.postgres.STUCK_SECONDS", 1)
    with Table(jobs_url) as stopped, Table(jobs_url) as other:
        (id,) = stopped.add([NewJob("generate", {"label": "x"})])

        def stuck() -> None:
            stopped.database.change("UPDATE jobs SET priority=1 WHERE id=:id", {"id": id})
            until(lambda: other.claim_next("generate", WorkerIdentity("me", "me", "here")))
            raise ZeroDivisionError  # not to be repeated

        with pytest.raises(ZeroDivisionError):
            stopped.database.transaction(stuck)
        assert other.get(id).state is State.RUNNING
