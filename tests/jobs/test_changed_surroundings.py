"""What jobs depend on changes or is away: their input and output, their model, the server of their queues."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from jobs.client import JobsClient, Policy
from jobs.table.job import NewJob, State
from leap_core.batch.settings import BatchSettings
from leap_core.models.builtin import model_path
from leap_core.system.locks import locked

from .test_faults import SHORT
from .waiting import until

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


def test_a_batch_whose_output_is_in_use_waits_and_uses_up_no_retry(jobs, tmp_path, monkeypatch):
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hello"}\n')
    settings = BatchSettings.of("in.jsonl", "out.jsonl", model="builtin", options={"max_tokens": 2})
    with locked(tmp_path / "out.jsonl.journal"):
        id = jobs.batch(settings, policy=Policy(retries=0), cwd=tmp_path)
        until(lambda: any("waiting for another batch" in event.value["message"] for event in jobs.events(id)))
        assert jobs.get(id).state is State.RUNNING
    ended = jobs.wait(id, 60)
    assert (ended.state, ended.attempt, ended.failures) == (State.SUCCEEDED, 1, 0)


def test_a_job_is_answered_by_the_current_model_file(jobs, tmp_path):
    model = tmp_path / "m.gguf"
    shutil.copy(model_path(), model)
    assert jobs.wait(jobs.generate("Hi", model=str(model), options=SHORT), 60).state is State.SUCCEEDED
    replaced = tmp_path / "new.gguf"
    replaced.write_bytes(b"GGUF is not what follows")
    os.replace(replaced, model)
    ended = jobs.wait(jobs.submit([NewJob("generate", jobs.list(limit=1)[0].parameters)])[0], 60)
    assert ended.state is State.FAILED, "the old model answered"


def test_a_batch_whose_input_changed_after_its_submission_is_refused(jobs, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"prompt": "Say {n}", "max_tokens": 2}}\n' for n in range(3)))
    settings = BatchSettings.of("in.jsonl", "out.jsonl", model="builtin")
    id = jobs.batch(settings, policy=Policy(delay=1.0), cwd=tmp_path)
    source.write_text('{"prompt": "something else"}\n')
    ended = jobs.wait(id, 60)
    assert ended.state is State.FAILED and "changed since the batch was submitted" in ended.error["message"]


def test_piped_lines_are_kept_until_the_job_is_removed(leap_home, tmp_path):
    with JobsClient(autostart=False) as client:
        settings = BatchSettings.of("-", str(tmp_path / "out.jsonl"), model="builtin")
        id = client.batch(settings, rows=[b'{"prompt": "Hello"}\n'])
        kept = Path(client.get(id).parameters["kept"])
        assert kept.read_bytes() == b'{"prompt": "Hello"}\n'
        client.cancel(id)
        client.remove(id)
        assert not kept.exists()


def test_lines_of_a_failed_submission_are_removed(leap_home, tmp_path, monkeypatch):
    with JobsClient(autostart=False) as client:
        monkeypatch.setattr(client.table, "add", lambda _jobs: 1 / 0)
        settings = BatchSettings.of("-", str(tmp_path / "out.jsonl"), model="builtin")
        with pytest.raises(ZeroDivisionError):
            client.batch(settings, rows=[b'{"prompt": "Hello"}\n'])
        assert list(client.configuration.inputs.iterdir()) == []
