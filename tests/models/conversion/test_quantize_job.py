"""``leap models quantize --background``: an attempt that ends early leaves nothing half."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from jobs.configuration import JobsConfiguration
from jobs.submission.new_jobs import Submitter, function_job
from jobs.table.job import State
from jobs.table.requests import FunctionRequest, request_of
from jobs.worker.functions import call
from leap_core.errors import LeapError
from leap_core.inference.gguf.quantize_request import QuantizeRequest
from leap_core.models.conversion.quantizing import QuantizeWork
from leap_core.models.store import Store


@dataclass
class FakeAttempt:
    """What a task sees of an attempt; ``stop_at``: the step after which it is asked to stop."""

    job: SimpleNamespace
    asked: FunctionRequest
    stop_at: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    notes: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def note(self, message):
        self.notes.append(message)

    def progress(self, progress):
        self.steps.append(progress["unit"])
        if self.stop_at is not None and self.stop_at in progress["unit"]:
            self.stop.set()


@pytest.fixture
def submitted(whole_model, leap_home, tmp_path):
    work = QuantizeWork(str(whole_model), (QuantizeRequest("Q8_0"), QuantizeRequest("Q4_0")), tmp_path, name="Bg")
    variables = {"LEAP_HOME": str(leap_home)}
    submitter = Submitter(JobsConfiguration.from_environment(variables), variables)
    return function_job("quantize", work.anywhere(variables).to_json(), "Bg", submitter)


def quantize(attempt):
    return call(attempt, None, JobsConfiguration.from_environment())


def attempt(submitted, number, stop_at=None):
    return FakeAttempt(SimpleNamespace(attempt=number), request_of(submitted), stop_at)


@pytest.mark.slow
def test_an_unfinished_file_is_recreated_and_a_complete_one_is_not(submitted, leap_home):
    store = Store(leap_home / "models")
    ended = quantize(attempt(submitted, 1, "Q4_0"))
    assert ended.state is State.CANCELLED
    assert [(each.name, each.state) for each in store.installed()] == [("Bg-Q8_0", "ready")]
    first = store.named("Bg-Q8_0").path.stat().st_mtime_ns
    half = store.root / "Bg-Q4_0" / ".unfinished"  # as an attempt leaves it whose process is killed
    half.mkdir(parents=True)
    (half / "Bg-Q4_0.gguf").write_bytes(b"GGUF")
    again = attempt(submitted, 2)
    ended = quantize(again)
    assert ended.state is State.SUCCEEDED and [each["name"] for each in ended.result["records"]] == [
        "Bg-Q8_0",
        "Bg-Q4_0",
    ]
    assert {step.split()[1] for step in again.steps} == {"(Q4_0)"} and len(again.notes) == 2
    assert store.named("Bg-Q8_0").path.stat().st_mtime_ns == first
    assert store.named("Bg-Q4_0").state == "ready" and not half.exists()


@pytest.mark.slow
def test_a_file_to_be_replaced_is_not_taken_for_an_earlier_attempts(submitted, leap_home):
    store = Store(leap_home / "models")
    quantize(attempt(submitted, 1, "Q4_0"))
    first = store.named("Bg-Q8_0").path.stat().st_mtime_ns
    submitted.parameters["arguments"]["replace"] = True
    assert quantize(attempt(submitted, 2)).state is State.SUCCEEDED
    assert store.named("Bg-Q8_0").path.stat().st_mtime_ns > first


def test_errors_that_can_be_checked_are_reported_at_submission(whole_model, leap_home, tmp_path):
    variables = {"LEAP_HOME": str(leap_home)}
    sound = QuantizeWork(str(whole_model), (QuantizeRequest("Q8_0"),), tmp_path)
    for work, message in (
        (QuantizeWork("builtin", sound.requests, tmp_path), "quantized already"),
        (QuantizeWork("nowhere.gguf", sound.requests, tmp_path), "nowhere.gguf"),
        (QuantizeWork(sound.model, sound.requests, tmp_path, text=tmp_path / "no.txt"), "cannot read"),
    ):
        with pytest.raises(LeapError, match=message):
            work.check(variables)
    shared = JobsConfiguration.from_environment({**variables, "LEAP_JOBS_URL": "postgresql://x/y"})
    with pytest.raises(LeapError, match="a job on a server cannot"):
        function_job("quantize", {}, "Bg", Submitter(shared, variables))
