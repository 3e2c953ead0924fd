"""What goes wrong around jobs: processes that hang or are killed, files that change or are damaged, servers away."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from jobs import worker_log as log
from jobs import worker_process
from jobs.client import JobsClient, Policy
from jobs.configuration import JobsConfiguration
from jobs.table.job import NewJob, State, WorkerIdentity
from jobs.worker import model_pool, outcomes
from jobs.worker.worker import Worker
from jobs.worker_process import is_running
from leap_core.conversation.options import GenerationOptions
from leap_core.models.builtin import model_path

from . import processes
from .test_worker import ENDLESS, running_with_output
from .torture import ROOT
from .waiting import until

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]
SHORT = GenerationOptions(max_tokens=2)


@pytest.fixture
def jobs(leap_home):
    with JobsClient() as client:
        yield client
        client.stop_worker()


@pytest.fixture
def worker(leap_home):
    """A worker in this process, so that a test can change its bounds."""
    worker = Worker(JobsConfiguration.from_environment())
    thread = threading.Thread(target=worker.run)
    thread.start()
    until(lambda: worker.configuration.worker_state.exists())
    yield worker
    worker.stop.set()
    thread.join(60)
    assert not thread.is_alive()


def configure(leap_home: Path, text: str) -> None:
    leap_home.mkdir(parents=True, exist_ok=True)
    (leap_home / "config.toml").write_text(text)


def model_process(leap_home: Path) -> int:
    return until(lambda: processes.named(leap_home, "jobs.worker.model_process"))[0]


def test_a_worker_that_ends_without_delay_still_finishes_its_work(jobs, leap_home):
    configure(leap_home, "[jobs]\nidle_minutes = 0\n")
    ended = jobs.wait(jobs.generate("Count to twenty.", options=GenerationOptions(max_tokens=60)), 60)
    assert (ended.state, ended.attempt, ended.interruptions) == (State.SUCCEEDED, 1, 0)
    until(lambda: not is_running(jobs.configuration))


def test_a_queue_damaged_after_its_first_page_is_recreated(jobs):
    jobs.start_worker()
    first = jobs.generate("Hi", options=SHORT)
    assert jobs.wait(first, 60).state is State.SUCCEEDED
    with closing(sqlite3.connect(jobs.configuration.queue)) as queue:
        queue.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with jobs.configuration.queue.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (file.seek(0, os.SEEK_END) - 4096 and 40_000))
    assert jobs.wait(jobs.generate("Hi", options=SHORT), 60).state is State.SUCCEEDED
    assert jobs.wait(jobs.generate("Hi", options=SHORT), 60).state is State.SUCCEEDED
    assert jobs.configuration.worker_log.stat().st_size < 10_000
    with closing(sqlite3.connect(jobs.configuration.queue)) as queue:
        assert queue.execute("PRAGMA quick_check").fetchone() == ("ok",)


def test_repeated_reports_are_counted_and_a_long_log_is_cut(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(log, "_counts", {})
    for _ in range(1000):
        log.log("the disk is full")
    assert capfd.readouterr().err.count("the disk is full") == 1
    monkeypatch.setattr(log, "REPEATED_SECONDS", 0.0)
    log.log("the disk is full")
    assert "and 999 times" in capfd.readouterr().err
    path = tmp_path / "worker.log"
    script = (
        "import os, sys; from pathlib import Path; from jobs.worker_log import bound_log; "
        "os.write(2, b'x' * 5_000_000); bound_log(Path(sys.argv[1])); os.write(2, b'after')"
    )
    with path.open("ab") as file:
        subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, stderr=file, check=True)
    assert path.read_bytes() == b"after" and path.with_suffix(".log.1").stat().st_size == 5_000_000


def test_a_job_whose_process_is_killed_without_output_fails_after_three_attempts(leap_home, tmp_path, monkeypatch):
    """As the kernel does without memory. A fake model process dies as soon as it is asked."""
    monkeypatch.setattr(outcomes, "FIRST_BACK_OFF_SECONDS", 0.05)
    died = [sys.executable, "-c", "import os, sys; sys.stdin.readline(); os.kill(os.getpid(), 9)"]
    monkeypatch.setattr(model_pool, "module_command", lambda *_: died)
    with JobsClient(autostart=False) as client:
        id = client.generate("Hi", options=SHORT)
        worker = Worker(client.configuration)
        thread = threading.Thread(target=worker.run)
        thread.start()
        ended = client.wait(id, 60)
        worker.stop.set()
        thread.join()
    assert (ended.state, ended.attempt) == (State.FAILED, 3)
    assert "SIGKILL" in ended.error["message"] and "out of memory?" in ended.error["hint"]


def test_a_job_whose_process_was_killed_after_output_is_retried_later(jobs, leap_home):
    id = jobs.generate("Count.", options=ENDLESS, policy=Policy(retries=0))
    running_with_output(jobs, id)
    os.kill(model_process(leap_home), signal.SIGKILL)
    until(lambda: jobs.get(id).attempt == 2)
    job = jobs.get(id)
    assert job.deaths == 0 and job.interruptions == 1 and "SIGKILL" in job.error["message"]
    jobs.cancel(id)


def test_a_process_without_heartbeat_is_killed_and_its_job_restarted(worker, leap_home, monkeypatch):
    begun: list[model_pool.ModelProcess] = []
    begin = model_pool.ModelProcess.__init__
    monkeypatch.setattr(model_pool.ModelProcess, "__init__", lambda *given: begun.append(given[0]) or begin(*given))
    with JobsClient(autostart=False) as client:
        id = client.generate("Count.", options=ENDLESS)
        running_with_output(client, id)
        processes.stop_between_writes(model_process(leap_home), client.configuration.table)

        def is_begun_anew_after_an_hour() -> bool:
            begun[0].last_sign = time.monotonic() - 3600
            return client.get(id).attempt == 2

        until(is_begun_anew_after_an_hour)
        assert "no sign of life" in client.get(id).error["message"]
        until(lambda: any(event.attempt == 2 for event in client.events(id)))
        client.cancel(id)


def test_a_worker_that_hangs_is_replaced_by_a_waiting_client(jobs, leap_home, monkeypatch):
    monkeypatch.setattr(worker_process, "HANG_SECONDS", 3.0)
    pid = jobs.start_worker()["pid"]
    processes.stop_between_writes(pid, jobs.configuration.table)
    assert jobs.wait(jobs.generate("Hi", options=SHORT), 60).state is State.SUCCEEDED
    assert jobs.worker()["pid"] != pid


def test_stopping_a_worker_that_hangs_kills_it_and_its_processes(jobs, leap_home, monkeypatch):
    monkeypatch.setattr(worker_process, "STOP_SECONDS", 1.0)
    id = jobs.generate("Count.", options=ENDLESS)
    running_with_output(jobs, id)
    for pid in (model_process(leap_home), jobs.worker()["pid"]):
        processes.stop_between_writes(pid, jobs.configuration.table)
    assert jobs.stop_worker() and not is_running(jobs.configuration)
    until(lambda: not processes.of_home(leap_home))


def test_an_idle_process_that_hangs_does_not_hold_up_the_end_of_the_worker(jobs, leap_home, monkeypatch):
    assert jobs.wait(jobs.generate("Hi", options=SHORT), 60).state is State.SUCCEEDED
    processes.stop_between_writes(model_process(leap_home), jobs.configuration.table)
    monkeypatch.setattr(worker_process, "STOP_SECONDS", 60.0)
    assert jobs.stop_worker()
    assert not jobs.configuration.worker_state.exists(), "a worker that is killed leaves its state"
    until(lambda: not processes.of_home(leap_home))


def test_a_job_that_does_not_stop_does_not_affect_others(worker, leap_home, tmp_path, monkeypatch):
    monkeypatch.setattr(model_pool, "STOP_SECONDS", 0.5)
    # A model process that answers everything but the first request.
    deaf = (
        "import json, os, sys, threading, time\n"
        "from jobs.configuration import JobsConfiguration\n"
        "from jobs.table.job import Claim, Ending, State\n"
        "from jobs.table.table import Table\n"
        "table = Table(JobsConfiguration.from_environment().table)\n"
        "first = json.loads(sys.stdin.readline())\n"
        "second = json.loads(sys.stdin.readline())\n"
        "while not os.path.exists(os.environ['ANSWER_NOW']):\n"
        "    print(json.dumps({'alive': True}), flush=True)\n"
        "    time.sleep(0.1)\n"
        "table.finish(Claim(second['id'], second['attempt'], sys.argv[1]), Ending(State.SUCCEEDED, {}))\n"
        "print(json.dumps({'id': second['id'], 'attempt': second['attempt']}), flush=True)\n"
        "sys.stdin.read()\n"
    )
    monkeypatch.setattr(model_pool, "module_command", lambda _, owner: [sys.executable, "-c", deaf, owner])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("ANSWER_NOW", str(tmp_path / "now"))
    with JobsClient(autostart=False) as client:
        first = client.generate("Hi", options=SHORT)
        until(lambda: client.get(first).state is State.RUNNING)
        second = client.generate("Hi", options=SHORT)
        until(lambda: client.get(second).state is State.RUNNING)
        assert client.cancel(first).state is State.CANCELLED
        assert client.get(second).state is State.RUNNING, "it was to go on"
        (tmp_path / "now").touch()
        ended = client.wait(second, 60)
    assert (ended.state, ended.attempt) == (State.SUCCEEDED, 1)


def test_an_idle_worker_sleeps(jobs):
    pid = jobs.start_worker()["pid"]

    def switches() -> int:
        lines = [line for path in Path(f"/proc/{pid}/task").glob("*/status") for line in path.read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

    def is_quiet() -> bool:
        before = switches()
        time.sleep(1.0)
        return switches() - before < 40

    until(is_quiet)  # it still starts; a worker that looks into its queues again and again is never quiet


def test_ten_thousand_jobs_are_cancelled_by_one_statement(leap, leap_home):
    with JobsClient(autostart=False) as client:
        client.table.add([NewJob("generate", {"label": "x"})] * 5000)
        running = client.table.claim_next("generate", WorkerIdentity("me", "me", "here"))
        statements: list[str] = []
        client.table.database.connection.set_trace_callback(statements.append)
        client.cancel_all()
        assert sum(statement.startswith("UPDATE") for statement in statements) == 1
        client.table.database.connection.set_trace_callback(None)
        assert client.get(running.id).cancel_requested
        assert client.table.counts() == {("generate", State.CANCELLED): 4999, ("generate", State.RUNNING): 1}
        client.table.add([NewJob("generate", {"label": "x"})] * 2000)
        done = leap("jobs", "cancel", "--all", "--option", "no-wait", "--format", "quiet")
        assert done.code == 0 and len(done.stdout.splitlines()) == 2001


def test_rows_of_another_version_are_skipped(jobs, leap):
    jobs.table.add([NewJob("dance", {"label": "of a later leap"})])
    jobs.table.database.change("ALTER TABLE jobs ADD COLUMN mood TEXT")
    jobs.table.add([NewJob("generate", {"label": "newer"})])
    jobs.table.database.change("UPDATE jobs SET version=99 WHERE kind='generate'")
    id = jobs.generate("Hi", options=SHORT)
    assert jobs.wait(id, 60).state is State.SUCCEEDED
    assert {job.kind: job.state for job in jobs.list() if job.id != id} == {
        "dance": State.QUEUED,
        "generate": State.QUEUED,
    }
    done = leap("jobs", "list", "--format", "json")
    assert done.code == 0 and len(json.loads(done.stdout)) == 3
    assert leap("jobs", "stats").code == 0


def test_a_module_in_the_data_directory_is_not_imported(jobs, leap_home):
    leap_home.mkdir(parents=True, exist_ok=True)
    (leap_home / "json.py").write_text("raise SystemExit('imported from the data directory')")
    assert jobs.wait(jobs.generate("Hi", options=SHORT), 60).state is State.SUCCEEDED


def test_the_first_job_to_end_is_reported_first(leap_home):
    with JobsClient(autostart=False) as client:
        first, second = (client.table.add([NewJob("generate", {"label": "x"})])[0] for _ in range(2))
        client.table.request_cancel(second)
        assert next(client.as_they_end([first, second], 5)).id == second
        with pytest.raises(TimeoutError):
            list(client.as_they_end([first], 0.1))


def test_on_a_full_disk_jobs_are_listed_and_a_session_s_answer_is_shown(leap_home):
    """RLIMIT_FSIZE stands for the full disk: no file can grow."""
    import resource

    def run(*arguments: str, full: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "leap_cli", *arguments]
        limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))) if full else None
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=limit, check=False)

    with JobsClient(autostart=False) as client:
        client.table.add([NewJob("generate", {"label": "what waits"})])
    listed = run("jobs", "list")
    assert listed.returncode == 0 and "what waits" in listed.stdout
    answering = ("generate", "Hi", "-m", "builtin", "--max-tokens", "2", "--session", "s")
    assert run(*answering, full=False).returncode == 0
    answered = run(*answering)
    assert answered.stdout.strip() and "not saved" in answered.stderr
    refused = run("generate", "Hi", "-m", "builtin", "--background")
    assert refused.returncode != 0 and "free disk space" in refused.stderr


def test_pruning_frees_disk_space(leap_home):
    with JobsClient(autostart=False) as client:
        client.table.add([NewJob("generate", {"label": "x" * 20_000})] * 400)
        client.cancel_all()
        before = client.configuration.table.stat().st_size
        assert len(client.prune()) == 400
        client.table.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        assert client.configuration.table.stat().st_size < before / 4


def test_a_unit_file_names_no_path_with_a_line_end(leap, tmp_path):
    leap.variables["LEAP_HOME"] = str(tmp_path / "a\nExecStart=evil")
    done = leap("jobs", "worker", "--print-unit")
    assert done.code == 1 and "control character" in done.stderr and done.stdout == ""
