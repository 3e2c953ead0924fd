"""Which machine has which model, who fetches one, and lines that name files of the machine that submits them."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace

import pytest
from PIL import Image

from jobs.table.claims import WorkerReport, WorkerRows
from jobs.table.job import State
from jobs.worker.model_pool import ModelFetching
from leap_core.batch.settings import BatchSettings
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapJobError
from leap_core.models.builtin import model_path
from leap_core.models.download.downloading import download_model
from tests.support.hub import FakeHub

from .waiting import until

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]
SHORT = GenerationOptions(temperature=0.0, max_tokens=2)
REPO, FILE = "LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_0.gguf"
MODEL = "LFM2-350M-Q4_0"
ADVICE = "leap jobs worker starts a worker here"


@pytest.fixture
def hub():
    with FakeHub() as hub:
        data = bytearray(model_path().read_bytes())
        data[-1] ^= 1  # another digest, the same model
        hub.add_file(REPO, FILE, bytes(data))
        yield hub


def test_a_model_that_no_worker_has_is_reported_and_downloaded_where_allowed(machines, hub, leap):
    laptop = machines("laptop", variables=hub.environment)
    download_model("LFM2-350M:Q4_0", variables=laptop.variables)
    modest = machines("modest")
    modest.start()
    warnings: list[str] = []
    with laptop.client(on_warning=warnings.append) as jobs:
        until(lambda: len(jobs.workers()) == 1)
        id = jobs.generate("Hi", model=MODEL, options=SHORT)
        here = f"no worker that is alive has the model {MODEL}; this machine has it: {ADVICE}"
        assert warnings == [here] and jobs.waiting_reason(jobs.get(id)) == here
        leap.variables.update(laptop.variables)
        assert here in " ".join(leap("jobs", "status", id).stdout.split())
        assert json.loads(leap("jobs", "status", id, "--format", "json").stdout)["waits_for"] == here
        doctor = json.loads(leap("doctor", "--format", "json").stdout)
        (workers,) = (check for check in doctor if check["check"] == "workers")
        assert workers["state"] == "warning" and f"{id} waits: {here}" in workers["detail"]
        waited = leap("jobs", "wait", id, "--timeout", "1s")
        assert waited.code == 9 and "this machine has it" in " ".join(waited.stderr.split())
        eager = machines("eager", settings="fetch_models = true\n", variables=hub.environment)
        eager.start()
        job = jobs.wait(id, 60)
        assert job.state is State.SUCCEEDED and job.worker == eager.configuration.worker_id
        assert hashlib.sha256((eager.home / "models" / MODEL / FILE).read_bytes()).hexdigest() == job.model
        assert not (modest.home / "models").exists()
        eager.keeper.stop()
        rows = WorkerRows(jobs.table.database)
        away = {"machine": "far-away", "name": "night", "pid": 1, "version": "1", "capacity": {}}
        rows.enter("away", WorkerReport(models={job.model: "m"}, **away))
        jobs.table.database.change("UPDATE workers SET seen=seen-99 WHERE id='away'")
        later = jobs.get(jobs.generate("Hi", model=MODEL, options=SHORT))
        assert "far-away has it, where the worker night is not alive" in jobs.waiting_reason(later)
        assert jobs.cancel(later.id).state is State.CANCELLED


def test_a_hub_model_with_another_digest_is_not_downloaded(leap_home, hub, capfd, monkeypatch):
    for name, value in hub.environment.items():
        monkeypatch.setenv(name, value)
    looks: list[None] = []
    fetching = ModelFetching(lambda: looks.append(None))
    origin = json.dumps({"model": REPO, "quantization": "Q4_0", "revision": None})
    for wrong in (("0" * 64, origin), ("1" * 64, "[]"), ("2" * 64, origin.replace("350M", "none"))):
        fetching.begin([wrong])
        until(lambda: not fetching.is_busy)
        fetching.begin([wrong])
        assert not fetching.is_busy, "it was tried again at once"
    said = capfd.readouterr().err
    assert len(looks) == 3 and "has the SHA-256" in said and "not an origin" in said
    assert hub.bytes_served() == 0 and not (leap_home / "models" / MODEL / FILE).exists()


def test_pictures_that_lines_name_go_with_them(machines, tmp_path, monkeypatch):
    Image.new("RGB", (32, 24), "red").save(tmp_path / "red.png")
    Image.new("RGB", (24, 32), "blue").save(tmp_path / "blue.jpg")
    lines = [{"image": "red.png", "prompt": "Which colour?"}, {"image": ["red.png", "blue.jpg"], "prompt": "And now?"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = BatchSettings.of("in.jsonl", str(tmp_path / "out.jsonl"), model="builtin-vl", options={"max_tokens": 3})
    laptop, worker = machines("laptop"), machines("worker")
    with laptop.client() as jobs:
        id = jobs.batch(settings, cwd=tmp_path)
        with monkeypatch.context() as small:
            small.setattr("jobs.submission.shared_jobs.MOST_BYTES", 400)
            with pytest.raises(LeapJobError, match="line 1 and its files take"):
                jobs.batch(
                    replace(settings, output=replace(settings.output, path=str(tmp_path / "other.jsonl"))), cwd=tmp_path
                )
        for name in ("red.png", "blue.jpg", "in.jsonl"):
            (tmp_path / name).unlink()
        worker.start()
        job = jobs.wait(id, 60)
        assert (job.state, job.result["succeeded"]) == (State.SUCCEEDED, 2), job.error
        assert len(list(jobs.output(id))) == 2
