"""A row of a table that others write to can name nothing on a worker but what a job of its kind may name."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from jobs.configuration import JobsConfiguration
from jobs.submission.new_jobs import discard_input
from jobs.submission.shared_jobs import confined
from jobs.table.job import Job, State
from jobs.table.requests import JobRequest
from leap_core.conversation.media.fetching import UrlAccess
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapJobError

from .waiting import until


@pytest.fixture
def configuration(tmp_path) -> JobsConfiguration:
    variables = {**os.environ, "LEAP_HOME": str(tmp_path / "home"), "LEAP_JOBS_URL": "postgresql://nowhere"}
    return JobsConfiguration.from_environment(variables)


PROMPT = {"messages": [{"role": "user", "content": "Hi"}]}
SOUND = {"prompt": "", "longest": 30.0, "max_tokens": 8, "format": "text"}
FILES = {"source": "-", "output": "-"}
STRETCH = {"first": 1, "last": 2, "count": 2, "shard": 0}


def job(kind: str, *, model: str | None = "digest", **parameters: object) -> Job:
    row = dict.fromkeys(Job.__dataclass_fields__)
    values = {**row, "id": "abcdefgh", "kind": kind, "parameters": json.dumps({"model": "m", **parameters})}
    return Job.of_row({**values, "state": "running", "attempt": 1, "cancel_requested": 0, "model": model})


def test_files_of_a_row_are_refused(configuration, tmp_path):
    inputs = configuration.inputs
    inputs.mkdir(parents=True)
    (inputs / "link.wav").symlink_to(tmp_path / "notes.txt")
    forbidden = [
        job("transcribe", **SOUND, output=str(tmp_path / "notes.txt")),
        job("generate", **PROMPT, speech=str(tmp_path / "notes.wav")),
        job("transcribe", **SOUND, kept=str(tmp_path / "notes.txt")),
        job("transcribe", **SOUND, kept=str(inputs / ".." / "config.toml")),
        job("transcribe", **SOUND, kept=str(inputs / "link.wav")),
        job("generate", **PROMPT, loading={"adapters": [{"path": "/x"}]}),
        job("generate", **PROMPT, loading={"mm_proj_path": "/x"}),
        job("shard", **STRETCH, batch={**FILES, "loading": {"mm_proj_path": "/x"}}),
        replace(job("generate", model=None), parameters={**PROMPT, "model": "/etc/passwd"}),
        replace(job("generate", model=None), parameters={**PROMPT, "model": "http://127.0.0.1:9/v1"}),
        replace(job("download"), parameters={"model": str(tmp_path / "notes.gguf"), "cwd": "/"}),
    ]
    (tmp_path / "notes.gguf").write_bytes(b"GGUF")
    for each in forbidden:
        with pytest.raises(LeapJobError):
            confined(each, configuration)


def test_a_shard_reads_and_writes_no_file(configuration):
    named = {name: "/etc/x" for name in ("source", "output", "journal", "errors", "speech", "directory")}
    row = job("shard", **STRETCH, batch={**named, "urls": 2, "own_clients": True})
    settings = confined(row, configuration).settings
    assert "/etc/x" not in json.dumps(settings.to_json())
    assert settings.input.urls == UrlAccess.DATA and settings.input.own_clients is False


def test_allowed_fields_of_a_row_are_kept(configuration):
    kept = configuration.inputs / "sound.wav"
    parameters = {**SOUND, "kept": str(kept), "loading": {"slots": 2}}
    assert confined(job("transcribe", **parameters), configuration).to_json().items() >= parameters.items()


def test_a_row_cannot_set_other_variables(configuration, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "https://mine")
    foreign = {"LD_PRELOAD": "/x.so", "LEAP_HOME": "/x", "HF_TOKEN": "x", "HF_ENDPOINT": "https://theirs"}
    taken = JobRequest(variables=foreign).environment()
    assert taken.get("LD_PRELOAD") != "/x.so" and taken.get("LEAP_HOME") != "/x" and taken.get("HF_TOKEN") != "x"
    assert taken["HF_ENDPOINT"] == "https://theirs", "a job in this user's own file takes it along"
    shared = confined(job("download", variables=foreign), configuration)
    assert not shared.variables and shared.cwd == configuration.directories.data


def test_removing_a_job_removes_nothing_but_its_own_files(configuration, tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    discard_input({"kept": str(precious), "kept_output": str(precious)}, configuration)
    assert precious.exists()
    kept = configuration.inputs / "x.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("")
    discard_input({"kept": str(kept)}, configuration)
    assert not kept.exists()


def test_a_row_edited_in_the_table_ends_as_failed_and_writes_nothing(machines, tmp_path):
    machine = machines("worker")
    precious = tmp_path / "precious.wav"
    precious.write_text("mine")
    with machine.client() as jobs:
        id = jobs.generate("Hi", options=GenerationOptions(max_tokens=2))
        parameters = {**jobs.table.get(id).parameters, "speech": str(precious)}
        jobs.table.database.change(
            "UPDATE jobs SET parameters=:parameters WHERE id=:id", {"id": id, "parameters": json.dumps(parameters)}
        )
        machine.start()
        failed = until(lambda: (row := jobs.get(id)).state.is_final and row)
    assert failed.state is State.FAILED and "cannot write a file" in failed.error["message"]
    assert precious.read_text() == "mine"


def test_a_transcript_on_a_server_is_in_the_result_and_not_in_a_file(machines, tmp_path):
    machine = machines("laptop")
    request = {"name": "x.wav", "prompt": "", "longest": 30.0, "max_tokens": 8, "format": "text"}
    with machine.client() as jobs, pytest.raises(LeapJobError, match="cannot write a file"):
        jobs.transcribe(_wav(), output=str(tmp_path / "out.txt"), **request)
    assert not list(machine.configuration.inputs.glob("*")), "the sound is not left behind"


def _wav() -> bytes:
    import io
    import wave

    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(3200))
    return data.getvalue()
