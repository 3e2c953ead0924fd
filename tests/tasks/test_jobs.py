"""Tasks in the background: queued as a batch, whose results are kept with the job or written to a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.client import JobsClient
from jobs.configuration import JobsConfiguration


@pytest.fixture
def client(leap_home):
    variables = {"LEAP_HOME": str(leap_home)}
    with JobsClient(variables, autostart=False) as client:
        yield client


def test_a_job_has_one_line_per_input_and_its_results_are_removed_with_it(leap, client, leap_home, monkeypatch):
    monkeypatch.setattr("jobs.worker_process.WorkerKeeper.ensure_running", lambda _self: None)
    recipe = leap_home / "recipes" / "classify.toml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text('[[wording]]\nmodels = ["*"]\nsystem = "{labels}"\n')
    done = leap("classify", "--labels", "a,b", "--lines", "--format", "csv", "--background", stdin="one\n\ntwo\n")
    assert done.code == 0, done.stderr
    job = client.get(done.stdout.strip())
    settings = job.parameters["batch"]
    lines = [json.loads(line) for line in Path(job.parameters["kept"]).read_text().splitlines()]
    assert [(line["custom_id"], line["text"]) for line in lines] == [("-:1", "one"), ("-:3", "two")]
    assert settings["header"] == "source,answer,a,b" and settings["format"] == "text"
    assert settings["recipes"] == {"classify": recipe.read_text()} and job.label == "classify -:1 and 1 more"
    inputs = JobsConfiguration.from_environment({"LEAP_HOME": str(leap_home)}).inputs
    assert len(list(inputs.iterdir())) == 2
    client.cancel(job.id)
    client.remove(job.id)
    assert list(inputs.iterdir()) == []


def test_what_cannot_be_a_job_leaves_nothing_behind(leap, leap_home):
    done = leap("extract", "--json-schema", "name", "--background", "-m", "nosuch", stdin="x")
    assert done.code in (2, 3)
    inputs = JobsConfiguration.from_environment({"LEAP_HOME": str(leap_home)}).inputs
    assert not inputs.exists() or list(inputs.iterdir()) == []
