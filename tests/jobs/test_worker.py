"""Jobs through a real worker, real processes and real signals, with the built-in model."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.client import JobsClient, Policy
from jobs.table.job import NewJob, State
from jobs.table.table import Table
from jobs.worker import outcomes
from jobs.worker.model_pool import ModelProcess
from jobs.worker_process import is_running
from leap_core.batch.settings import BatchSettings
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapSerializationError, LeapUnavailableError
from leap_core.inference.gguf.quantize_request import QuantizeRequest
from leap_core.models.builtin import model_path
from leap_core.models.conversion.quantizing import QuantizeWork
from tests.support.lengths import usually

from . import processes
from .torture import ROOT
from .waiting import until

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

ENDLESS = GenerationOptions(temperature=0.0, logit_bias={2: -1e9, 7: -1e9}, repetition_detection=False)
"""No end of the answer before the context is full."""


def running_with_output(jobs: JobsClient, id: str):
    """Wait until the job's present attempt has given output; that of an attempt before does not count."""

    def has_output() -> bool:
        job = jobs.get(id)
        if job.state is not State.RUNNING:
            return job.state.is_final
        return any(event.attempt == job.attempt for event in jobs.events(id))

    until(has_output)


def test_an_answer_is_followed_while_it_is_generated(jobs):
    id = jobs.generate("What is the capital of France?", options=GenerationOptions(temperature=0.0))
    events = [event.value for event in jobs.follow(id)]
    job = jobs.wait(id)
    text = "".join(event["text"] for event in events if event["type"] == "chunk")
    assert job.state is State.SUCCEEDED and events[-1]["type"] == "complete"
    assert job.result["message"]["content"] == text == events[-1]["message"]["content"] != ""
    assert job.percent is None and job.progress["unit"] == "tokens"
    assert job.progress["done"] == job.result["stats"]["completion_tokens"]


def test_models_are_found_where_the_submitter_found_them(jobs, tmp_path):
    snapshot = tmp_path / "hf" / "hub" / "models--who--what" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    shutil.copy(model_path(), snapshot / "what-Q4_0.gguf")
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hello", "max_tokens": 2}\n')
    jobs.start_worker()
    with JobsClient({**os.environ, "HF_HOME": str(tmp_path / "hf")}) as submitter:
        batch = submitter.batch(BatchSettings.of("in.jsonl", "out.jsonl", model="who/what"), cwd=tmp_path)
        answer = submitter.generate("Hi", model="who/what", options=GenerationOptions(max_tokens=2))
    assert [jobs.wait(id, 60).state for id in (batch, answer)] == [State.SUCCEEDED] * 2


def test_a_relative_home_is_the_same_for_the_worker(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with JobsClient({**os.environ, "LEAP_HOME": "./home"}) as jobs:
        try:
            assert jobs.wait(jobs.generate("Hi", options=GenerationOptions(max_tokens=2)), 60).state is State.SUCCEEDED
        finally:
            jobs.stop_worker()
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("jobs.db")] == ["home/jobs.db"]


def test_paths_of_a_batch_are_relative_to_the_submitter(jobs, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hello"}\n')
    (tmp_path / "builtin").mkdir()  # no model
    settings = BatchSettings.of("in.jsonl", "out.jsonl", model="builtin", options={"max_tokens": 3})
    assert jobs.wait(jobs.batch(settings, cwd=tmp_path), 60).state is State.SUCCEEDED
    assert (tmp_path / "out.jsonl").read_text().count("\n") == 1
    with pytest.raises(LeapSerializationError, match="a job needs a file"):
        jobs.batch(replace(settings, output=replace(settings.output, path="-")), cwd=tmp_path)


def test_piped_lines_are_kept_for_the_job(jobs, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=('{"prompt": "Hello"}\n',))
    writer.start()
    settings = BatchSettings.of(str(pipe), str(tmp_path / "out.jsonl"), model="builtin", options={"max_tokens": 3})
    assert jobs.wait(jobs.batch(settings), 60).state is State.SUCCEEDED
    writer.join()


def test_an_unreachable_queue_loses_no_job(jobs, monkeypatch):
    def broken(*_):
        raise LeapUnavailableError("the queue cannot be written to")

    with monkeypatch.context() as patch:
        patch.setattr("jobs.queue.WakeUpQueue.send", broken)
        id = jobs.generate("Hi", options=GenerationOptions(max_tokens=2))
    assert jobs.wait(id, 60).state is State.SUCCEEDED


def test_a_model_is_quantized_in_the_background(jobs, tmp_path):
    requests = tuple(QuantizeRequest(to, requantize=True) for to in ("Q4_0", "Q5_0"))
    work = QuantizeWork("builtin", requests, tmp_path, name="Small")
    id = jobs.function("quantize", work.to_json(), label="Small")
    job = jobs.wait(id, 120)
    assert job.state is State.SUCCEEDED, job.error
    made = [json.loads(line) for line in jobs.output(id)]
    assert [(each["name"], Path(each["path"]).is_file()) for each in made] == [
        ("Small-Q4_0", True),
        ("Small-Q5_0", True),
    ]
    again = jobs.wait(jobs.function("quantize", work.to_json(), label="Small"), 120)
    assert again.error is not None and "there is a model Small-Q4_0 already" in again.error["message"]
    unknown = jobs.wait(jobs.function("paint", {}, label="paint"), 60)
    assert unknown.error is not None and "no installed package has the function 'paint'" in unknown.error["message"]


def test_a_download_that_waits_for_an_answer_is_cancelled_at_once(jobs):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        id = jobs.download(f"http://127.0.0.1:{silent.getsockname()[1]}/x.gguf", options={"stall_seconds": 300.0})
        with silent.accept()[0]:
            jobs.cancel(id, wait=False)
            assert jobs.wait(id, 60).state is State.CANCELLED, "it waited for the answer"


def test_cancelling_queued_running_and_ended_jobs(jobs):
    jobs.start_worker()
    running = jobs.generate("Count.", options=ENDLESS)
    later = jobs.generate("Count.", policy=Policy(delay=3600))
    assert jobs.cancel(later).state is State.CANCELLED
    running_with_output(jobs, running)
    job = jobs.cancel(running)
    kept = jobs.events(running)
    assert job.state is State.CANCELLED and len(kept) > 1
    time.sleep(0.2)
    assert jobs.events(running) == kept, "it went on after it was said to have stopped"
    assert job.result["message"]["content"].startswith(kept[0].value["text"])
    assert jobs.cancel(running).finished == job.finished
    assert jobs.retry(running).attempt == 2
    running_with_output(jobs, running)
    assert jobs.cancel(running).state is State.CANCELLED


@pytest.mark.parametrize("number", usually([6], [6, 11]), ids=["abort", "segfault"])
def test_a_crash_of_llama_cpp_uses_one_attempt_and_not_the_worker(jobs, leap_home, monkeypatch, number):
    id = jobs.generate("Count.", options=ENDLESS, policy=Policy(retries=1))
    running_with_output(jobs, id)
    worker = jobs.worker()["pid"]
    os.kill(processes.named(leap_home, "jobs.worker.model_process")[0], number)
    until(lambda: jobs.get(id).attempt == 2)
    assert jobs.get(id).failures == 1 and signal.Signals(number).name in jobs.get(id).error["message"]
    until(lambda: jobs.get(id).state is State.RUNNING and any(e.attempt == 2 for e in jobs.events(id)))
    os.kill(processes.named(leap_home, "jobs.worker.model_process")[0], number)
    job = jobs.wait(id)
    assert job.state is State.FAILED and signal.Signals(number).name in job.error["message"]
    assert jobs.worker()["pid"] == worker


def test_a_killed_model_process_uses_no_attempt_within_the_tolerated_number(jobs, leap_home):
    id = jobs.generate("Count.", options=ENDLESS, policy=Policy(retries=0))
    for attempt in (2, 3):
        running_with_output(jobs, id)
        os.kill(processes.named(leap_home, "jobs.worker.model_process")[0], signal.SIGKILL)
        until(lambda attempt=attempt: jobs.get(id).attempt == attempt)
    assert jobs.get(id).failures == 0
    jobs.cancel(id)


def test_a_killed_worker_ends_its_processes_and_the_next_one_resumes(jobs, leap_home):
    id = jobs.generate("Count.", options=ENDLESS)
    running_with_output(jobs, id)
    os.kill(jobs.worker()["pid"], signal.SIGKILL)
    until(lambda: not processes.of_home(leap_home))
    until(lambda: not jobs.worker()["running"])  # a process that ends has no memory some time before it has no locks
    assert jobs.get(id).state is State.RUNNING, "nobody is there to say otherwise"
    jobs.start_worker()
    until(lambda: any(event.attempt == 2 for event in jobs.events(id)))
    assert jobs.get(id).attempt == 2 and jobs.get(id).failures == 0
    assert jobs.cancel(id).state is State.CANCELLED


def test_a_process_whose_worker_is_gone_ends_while_it_still_starts(leap_home, monkeypatch):
    """It waits for a server that never answers: its first thread sees the end of its input all the same."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("LEAP_JOBS_URL", f"postgresql://127.0.0.1:{silent.getsockname()[1]}/jobs")
        leap_home.mkdir(parents=True, exist_ok=True)
        with Table(leap_home / "jobs.db") as table:
            job = table.get(*table.add([NewJob("generate", {"label": "x"})]))
        process = ModelProcess("me", leap_home)
        threading.Thread(target=process.run, args=(job, lambda: False), daemon=True).start()
        with silent.accept()[0]:
            process.let_go()
            process._reader.join(60)
    assert (process.is_alive, process.code) == (False, 0)


def test_a_stopped_worker_queues_again_what_it_was_doing(jobs):
    id = jobs.generate("Count.", options=ENDLESS)
    running_with_output(jobs, id)
    assert jobs.stop_worker() and not is_running(jobs.configuration)
    job = jobs.get(id)
    assert (job.state, job.attempt, job.failures) == (State.QUEUED, 2, 0)
    assert jobs.cancel(id).state is State.CANCELLED


def test_a_job_whose_message_was_lost_is_found(jobs):
    """As if the submitter had been killed between the row and the message."""
    jobs.start_worker()
    parameters = jobs.generation("Hi", options=GenerationOptions(max_tokens=2)).parameters
    (id,) = jobs.table.add([NewJob("generate", parameters)])
    assert jobs.wait(id, 60).state is State.SUCCEEDED


def test_a_message_while_all_slots_are_busy_is_not_lost(jobs, leap_home):
    leap_home.mkdir(parents=True, exist_ok=True)
    (leap_home / "config.toml").write_text("[jobs]\ngenerate = 1\n")
    first = jobs.generate("Count.", options=ENDLESS)
    running_with_output(jobs, first)
    processes.stop_between_writes(processes.named(leap_home, "jobs.worker.model_process")[0], jobs.configuration.table)
    second = jobs.generate("Hi", options=GenerationOptions(max_tokens=2))
    until(lambda: not messages(jobs))
    jobs.cancel(first)
    assert jobs.wait(second, 60).state is State.SUCCEEDED


def messages(jobs: JobsClient) -> int:
    """How many messages wait in the queue."""
    with closing(sqlite3.connect(jobs.configuration.queue)) as queue:
        return queue.execute("SELECT COUNT(*) FROM task").fetchone()[0]


def test_messages_that_come_twice_run_a_job_once(jobs):
    parameters = jobs.generation("Hi", options=GenerationOptions(max_tokens=2)).parameters
    (id,) = jobs.table.add([NewJob("generate", parameters)])
    for _ in range(20):
        jobs._wake([(id, 1, "generate", 0)])
    job = jobs.wait(id, 60)
    assert (job.state, job.attempt) == (State.SUCCEEDED, 1)
    assert [e.value["type"] for e in jobs.events(id)].count("complete") == 1


def test_models_are_run_without_modules_from_the_current_directory(leap_home, tmp_path, monkeypatch):
    leap_home.mkdir(parents=True, exist_ok=True)
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    process = ModelProcess("me", leap_home)
    process.close()
    assert process.code == 0


def test_permanent_failures_are_not_retried(jobs):
    long = jobs.generate("word " * 20_000, policy=Policy(retries=5))
    gone = jobs.submit([NewJob("generate", {"model": "/nowhere.gguf", "messages": []}, retries=5)])[0]
    assert jobs.wait(long).error["type"] == "LeapGenerationPromptExceedContextLengthError"
    assert jobs.wait(gone).error["type"] == "LeapModelNotFoundError"
    assert {jobs.get(id).attempt for id in (long, gone)} == {1}


def test_short_jobs_and_other_kinds_do_not_wait_for_long_ones(jobs, tmp_path):
    from leap_core.batch.settings import BatchSettings

    long = jobs.generate("Count.", options=ENDLESS)
    short = jobs.generate("Hi", options=GenerationOptions(max_tokens=2))
    (tmp_path / "in.jsonl").write_text('{"prompt": "a", "max_tokens": 2}\n')
    batch = jobs.batch(BatchSettings.of(str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), model="builtin"))
    download = jobs.submit([NewJob("download", {"model": "builtin", "cwd": str(tmp_path)})])[0]
    for id in (short, batch, download):
        assert jobs.wait(id).state is State.SUCCEEDED
    assert jobs.get(long).state is State.RUNNING
    jobs.cancel(long)


def test_a_lost_or_damaged_queue_loses_no_job(jobs):
    for damage in (b"", b"not a database, " * 100):
        parameters = jobs.generation("Hi", options=GenerationOptions(max_tokens=2)).parameters
        (id,) = jobs.table.add([NewJob("generate", parameters)])
        jobs.stop_worker()
        for path in jobs.configuration.queue.parent.glob("queue.db*"):
            path.unlink()
        jobs.configuration.queue.write_bytes(damage)
        jobs.start_worker()
        assert jobs.wait(id, 60).state is State.SUCCEEDED


def test_an_unwritable_log_does_not_stop_a_job(jobs, leap_home):
    with open("/dev/full", "w") as full:
        worker = subprocess.Popen([sys.executable, "-m", "jobs.worker"], cwd=ROOT, stdout=full, stderr=full)
    until(lambda: is_running(jobs.configuration))
    (id,) = jobs.submit([NewJob("generate", {"messages": [], "loading": 7})])
    assert jobs.wait(id, 60).error["message"].startswith("TypeError: ")
    jobs.stop_worker()
    worker.wait(60)


def test_a_process_that_hangs_is_killed_when_its_job_is_cancelled(jobs, leap_home):
    id = jobs.generate("Count.", options=ENDLESS)
    running_with_output(jobs, id)
    processes.stop_between_writes(processes.named(leap_home, "jobs.worker.model_process")[0], jobs.configuration.table)
    assert jobs.cancel(id).state is State.CANCELLED and jobs.events(id)


def test_a_killed_host_uses_one_attempt(jobs, leap_home):
    leap = [sys.executable, "-m", "leap_cli"]
    subprocess.run([*leap, "load", "builtin"], cwd=ROOT, check=True, capture_output=True)
    id = jobs.generate("Count.", options=ENDLESS, policy=Policy(retries=1))
    running_with_output(jobs, id)
    for pid in processes.named(leap_home, "leap_core.server"):
        os.kill(pid, signal.SIGKILL)
    until(lambda: any(event.attempt == 2 for event in jobs.events(id)))
    assert jobs.get(id).failures == 1 and "host" in jobs.get(id).error["message"]
    assert jobs.cancel(id).state is State.CANCELLED
    subprocess.run([*leap, "unload", "--all"], cwd=ROOT, check=True, capture_output=True)


def test_waits_between_attempts_grow_to_a_minute():
    assert [outcomes.back_off(n) for n in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
