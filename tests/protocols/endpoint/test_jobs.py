"""Jobs and MCP over an endpoint: the worker's own process asks it, and the key is in nothing that it leaves."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from jobs.client import JobsClient
from jobs.table.job import State
from leap_core.batch.settings import BatchSettings
from leap_core.errors import LeapJobError

from .conftest import KEY
from .fake_server import fails, says

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="starts a worker")
SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


@pytest.mark.slow
def test_a_worker_asks_the_endpoint_and_a_second_model(far, leap_home, tmp_path):
    def answer(handler):
        near = handler.body["model"] == "near" and "hard" in str(handler.body["messages"])
        says("no" if near else '{"n": 1}')(handler)

    far.always = answer
    (tmp_path / "in.txt").write_text("easy\nhard\n")
    batch = BatchSettings.of(
        str(tmp_path / "in.txt"),
        str(tmp_path / "out.jsonl"),
        model="far#near",
        escalate_to="far",
        format="plain",
        options={"json_schema_constraint": SCHEMA, "repairs": 0},
    )
    with JobsClient({**os.environ, "LEAP_HOME": str(leap_home)}) as jobs:
        try:
            ids = [jobs.generate("Where?", model="far"), jobs.batch(batch)]
            assert [jobs.wait(id, 60).state for id in ids] == [State.SUCCEEDED] * 2
            assert jobs.get(ids[0]).result["message"]["content"] == '{"n": 1}'
            notes = [str(event.value) for event in jobs.events(ids[1])]
            assert any("1 of 2 answers (50 %) came from far" in note for note in notes), notes
            far.always = fails(401, f"bad key {KEY}")
            failed = jobs.wait(jobs.generate("Where?", model="far"), 60)
            assert failed.state is State.FAILED and "does not accept the key" in str(failed.error)
        finally:
            jobs.stop_worker()
    easy, hard = (json.loads(row) for row in (tmp_path / "out.jsonl").read_text().splitlines())
    assert "answered_by" not in easy and (hard["answered_by"], hard["escalated"]) == ("m", "invalid")
    assert all(headers["authorization"] == f"Bearer {KEY}" for _, headers, _ in far.requests)
    for file in (each for root in (leap_home, tmp_path) for each in root.rglob("*") if each.is_file()):
        assert file == tmp_path / "key" or KEY.encode() not in file.read_bytes(), file


def test_jobs_of_several_machines_know_no_second_model(leap_home, tmp_path):
    from jobs.submission.shared_jobs import shared_batch
    from jobs.table.requests import BatchRequest

    request = BatchRequest(settings=BatchSettings.of(str(tmp_path / "in.txt"), "out", escalate_to="far"))
    with pytest.raises(LeapJobError, match="no second model"), shared_batch(request, None, ()):
        pass


@pytest.mark.slow
def test_mcp_answers_over_an_endpoint(far, leap):
    pytest.importorskip("mcp")
    from leap_cli.commands.models.mcp import Abilities
    from leap_cli.options.loading import ModelChoice

    far.always = says("Paris.")
    env = leap.environment("", terminal=False, stdin_terminal=False)
    with Abilities(env, ModelChoice("far", command="mcp")) as abilities:
        assert asyncio.run(abilities.generate("Where?")) == "Paris."
    assert far.requests[0][1]["authorization"] == f"Bearer {KEY}"
