"""Which priority a request has, by where it comes from and what it says."""

from __future__ import annotations

import asyncio

import httpx
import openai
import pytest

from leap_core.conversation.options import GenerationOptions
from leap_core.server.http import Refused
from leap_core.server.models.loaded_model import LoadRequest
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.testing import ScriptedModelRunner

CHAT = {"model": "builtin", "messages": [{"role": "user", "content": "Hello?"}]}
RESPONSE = {"model": "builtin", "input": "Hello?"}
MESSAGE = {**CHAT, "max_tokens": 5}
TEXT = {"model": "builtin", "prompt": "Hello"}


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages", "completions"])
@pytest.mark.parametrize(
    ("fields", "priority"),
    [({}, None), ({"priority": 7}, -7), ({"priority": -2.0}, 2), ({"priority": None}, None)],
)
def test_the_priority_field_sets_the_level(serve, path, fields, priority):
    server = serve("Hi.")
    body = {"chat/completions": CHAT, "responses": RESPONSE, "messages": MESSAGE, "completions": TEXT}[path]
    headers = {"Authorization": "Bearer secret"}
    answer = httpx.post(f"{server.url}/{path}", json=body | fields, headers=headers, timeout=100)
    assert answer.status_code == 200, answer.text
    assert server.runner.requests[0].options.priority == priority


@pytest.mark.parametrize(
    ("fields", "priority"),
    [
        ({"service_tier": "flex"}, -10),
        ({"service_tier": "flex", "priority": 3}, -3),
        ({"service_tier": "auto"}, None),
        ({"service_tier": "priority"}, None),
    ],
)
def test_the_service_tier_sets_the_level(serve, fields, priority):
    server = serve("Hi.", "Hi.")
    extra = {"extra_body": {"priority": fields["priority"]}} if "priority" in fields else {}
    server.ask(service_tier=fields["service_tier"], **extra)
    server.client().responses.create(model="builtin", input="Hello?", service_tier=fields["service_tier"], **extra)
    assert [request.options.priority for request in server.runner.requests] == [priority] * 2


@pytest.mark.parametrize("value", ["high", 1.5, True, [1], 2**70, -(2**70)])
def test_a_priority_that_is_no_integer_is_refused(serve, value):
    with pytest.raises(openai.BadRequestError, match="priority"):
        serve("Hi.").ask(extra_body={"priority": value})


def test_leap_s_own_client_passes_it_on(serve):
    server = serve("Hi.", "Hi.", "Hi.")
    runner = server.warm
    for options in (None, GenerationOptions(priority=-20), GenerationOptions(priority=0)):
        list(runner.create_conversation().generate_response("Hello?", options))
    assert [request.options.priority for request in server.runner.requests] == [None, -20, 0]


def test_lower_levels_leave_half_of_the_queue_to_others():
    async def main():
        models = LoadedModels(lambda *_: ScriptedModelRunner("Hi."))
        model = await models.load(LoadRequest("builtin", slots=1, queue=4))
        using = [model.in_use(priority=-20) for _ in range(3)]
        for each in using:
            each.__enter__()
        for priority in (-10, -20, -100):
            with pytest.raises(Refused, match="queue"), model.in_use(priority=priority):
                pass
        for priority in (None, 0, 5, -9):
            with model.in_use(priority=priority):
                pass
        for each in using:
            each.__exit__(None, None, None)

    asyncio.run(main())
