"""What a server keeps of its last requests for ``leap why``, and who gets it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from leap_core import ChatMessage, Complete, ModelLoadingOptions
from leap_core.conversation.request_causes import RequestEnd, causes_of
from leap_core.conversation.request_facts import Departure, RequestFacts
from leap_core.conversation.responses import GenerationFinishReason
from leap_core.errors import GenerationStats, LeapConstraintError, LeapGenerationPromptExceedContextLengthError
from leap_core.models.resolving import LocalModel
from leap_core.protocols.host.served_models import STATUS_PATH, ServerState
from leap_core.server.foreground import ServerSettings, application
from leap_core.server.models.loaded_model import LoadRequest
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.testing import ScriptedModelRunner

FACTS = RequestFacts(
    prompt_tokens=2000,
    reading=3.0,
    departure=Departure(9, 1900, before="SECRET It is 01:4", had="0 SECRET", got="1 SECRET", role="system", message=1),
)
DONE = Complete(
    ChatMessage("assistant", "Hi."), GenerationFinishReason.STOP, GenerationStats(2000, 1, 2001, 0.0), facts=FACTS
)


def asking(use: Any, *scripts: Any) -> Any:
    """Run ``use`` with a client of a server that other programs share, and the token of its own user."""

    def load(_local: LocalModel, _options: ModelLoadingOptions) -> ScriptedModelRunner:
        return ScriptedModelRunner(*scripts, model_id="builtin")

    async def main() -> Any:
        models, state = LoadedModels(load), ServerState.here("127.0.0.1", 1)
        await models.load(LoadRequest("builtin"))
        app = application(models, ServerSettings(), state)
        try:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
                return await use(client, {"Authorization": f"Bearer {state.token}"})
        finally:
            await models.close()

    return asyncio.run(main())


BODY = {"model": "builtin", "messages": [{"role": "user", "content": "SECRET?"}]}


def test_a_request_is_kept_by_its_id_for_the_servers_own_user_alone(
    leap_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(client: httpx.AsyncClient, own: dict[str, str]) -> None:
        answer = await client.post("/v1/chat/completions", json=BODY, headers={"X-Request-Id": "mine-1"})
        assert "SECRET" not in answer.text and "facts" not in answer.text
        (kept,) = (await client.get(f"{STATUS_PATH}?requests", headers=own)).json()["requests"]
        assert (kept["id"], kept["model"], kept["finish"]) == ("mine-1", "builtin", "stop")
        assert RequestFacts.from_json(kept["facts"]).departure == FACTS.departure
        assert "requests" not in (await client.get(STATUS_PATH, headers=own)).json()
        assert (await client.get(f"{STATUS_PATH}?requests")).status_code == 403

    with caplog.at_level(logging.INFO, "leap.access"):
        asking(use, [DONE])
    (line,) = [each for each in caplog.messages if "chat/completions" in each]
    assert (
        "prompt 2000+0" in line and "departed at token 9 in the system prompt (clock)" in line and "SECRET" not in line
    )


def test_a_stream_shows_other_clients_nothing_of_an_earlier_prompt(leap_home: Path) -> None:
    async def use(client: httpx.AsyncClient, _own: dict[str, str]) -> str:
        asked = {**BODY, "stream": True, "leap": {"events": True}}
        return (await client.post("/v1/chat/completions", json=asked)).text

    text = asking(use, [DONE])
    assert "Hi." in text or "stop" in text
    assert "SECRET" not in text


def test_only_the_last_requests_are_kept(leap_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leap_core.server.metrics.MOST_RECENT", 3)

    async def use(client: httpx.AsyncClient, own: dict[str, str]) -> list[str]:
        for n in range(5):
            await client.post("/v1/chat/completions", json=BODY, headers={"X-Request-Id": f"r{n}"})
        requests = (await client.get(f"{STATUS_PATH}?requests", headers=own)).json()["requests"]
        return [request["id"] for request in requests]

    assert asking(use, *[[DONE]] * 5) == ["r2", "r3", "r4"]


def test_the_host_gives_recent_requests_to_leaps_own_client(serve) -> None:
    *_, complete = serve([DONE], private=True).warm.start([ChatMessage("user", "Hi?")])
    assert complete.facts == FACTS


WRONG = LeapConstraintError(
    "the answer does not fit its constraint after 3 tries: SECRET is not a number",
    text="SECRET",
    facts=RequestFacts(prompt_tokens=20, repairs=2, repairing=2.0),
)
TOO_LONG = LeapGenerationPromptExceedContextLengthError(9000, 4096)


@pytest.mark.parametrize(("error", "cause"), [(WRONG, "constraint"), (TOO_LONG, "context-too-small")])
def test_a_request_that_failed_is_kept_and_explained_without_what_was_said(leap_home: Path, error, cause) -> None:
    async def use(client: httpx.AsyncClient, own: dict[str, str]) -> Any:
        await client.post("/v1/chat/completions", json=BODY)
        return (await client.get(f"{STATUS_PATH}?requests", headers=own)).json()["requests"]

    (kept,) = asking(use, [error])
    end = RequestEnd(kept["seconds"], kept["finish"], "in other words")
    assert causes_of(RequestFacts.from_json(kept["facts"]), end)[0].name == cause
    assert "SECRET" not in str(kept)
