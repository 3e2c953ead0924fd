"""The priority of a job is that of its requests, also where a warm host or a command of leap answers them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.client import Policy
from jobs.client.server_jobs import ServedJobs
from jobs.worker.model_work import Models
from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
from leap_core.conversation.priority import BACKGROUND, BATCH, of_job
from leap_core.conversation.request import Request
from leap_core.server.job_queue import QueuedAnswer
from leap_core.testing import ScriptedModelRunner


def test_requests_of_jobs_that_share_a_model_have_the_priorities_of_their_jobs() -> None:
    runner = ScriptedModelRunner("Hi.", "Hi.", "Hi.")
    models = Models()
    for job, options in ((0, None), (4, None), (0, GenerationOptions(priority=1))):
        lent = models.lend("m", ModelLoadingOptions(), open_model=lambda *_: runner, priority=of_job(job))
        with lent as model:
            list(model.create_conversation().generate_response("Hello?", options))
    assert [request.options.priority for request in runner.requests] == [BATCH, BATCH + 4, 1]


@pytest.mark.usefixtures("leap_home")
def test_what_a_server_does_after_its_reply_has_the_level_background(monkeypatch: pytest.MonkeyPatch) -> None:
    policies: list[Policy] = []
    for name in ("batch", "generate"):
        monkeypatch.setattr(f"jobs.client.client.JobsClient.{name}", lambda *_, policy, **__: policies.append(policy))
    served = ServedJobs({})
    served.submit(None, Path())  # type: ignore[arg-type]

    served.ask(QueuedAnswer(Request(), "m", {}, Path()))
    assert [of_job(policy.priority) for policy in policies] == [BACKGROUND] * 2
