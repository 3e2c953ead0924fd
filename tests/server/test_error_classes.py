"""Wrong requests are the errors that the official clients know, in each protocol."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from leap_core import LeapConstraintError, LeapGenerationError
from leap_core.testing import Script, Stall

from .conftest import PROMPTLY

USER = [{"role": "user", "content": "Hi"}]
LONG = [{"role": "user", "content": "word " * 500}]


class OpenAIChat:
    """Chat completions."""

    package: Any = openai

    def __init__(self, server: Any) -> None:
        self._server = server

    def client(self, **given: Any) -> Any:
        return self._server.client(**given)

    def ask(self, client: Any, **given: Any) -> Any:
        return client.chat.completions.create(**({"model": "builtin", "messages": USER} | given))

    def status(self, error: Any) -> int:
        assert error.body["message"] and error.body["type"]
        return int(error.status_code)


class OpenAIResponses(OpenAIChat):
    """Responses."""

    def ask(self, client: Any, **given: Any) -> Any:
        given["input"] = given.pop("messages", USER)
        return client.responses.create(**({"model": "builtin"} | given))


class Messages(OpenAIChat):
    """Anthropic's messages."""

    package = anthropic

    def client(self, **given: Any) -> Any:
        settings = {"base_url": f"http://127.0.0.1:{self._server.port}", "api_key": "secret", "max_retries": 0} | given
        return self._server.open.enter_context(anthropic.Anthropic(**settings))

    def ask(self, client: Any, **given: Any) -> Any:
        sampling = {"extra_body": {"temperature": given.pop("temperature")}} if "temperature" in given else {}
        return client.messages.create(**({"model": "builtin", "max_tokens": 50, "messages": USER} | given | sampling))

    def status(self, error: Any) -> int:
        assert error.body["type"] == "error" and error.body["error"]["message"]
        return int(error.status_code)


PROTOCOLS = (OpenAIChat, OpenAIResponses, Messages)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.__name__)
def test_wrong_requests_have_the_classes_that_the_clients_know(serve, protocol):
    server = serve(Script(["One", LeapGenerationError("on fire")]), [misfit()], context_size=40)
    speaks = protocol(server)
    package, client = speaks.package, speaks.client()
    table = [
        ("BadRequestError", 400, lambda: speaks.ask(client, temperature=-1)),
        ("BadRequestError", 400, lambda: speaks.ask(client, messages=[{"role": "poet", "content": "x"}])),
        ("BadRequestError", 400, lambda: speaks.ask(client, messages=[])),
        ("AuthenticationError", 401, lambda: speaks.ask(speaks.client(api_key="wrong"))),
        ("PermissionDeniedError", 403, lambda: speaks.ask(speaks.client(default_headers={"Host": "evil.example"}))),
        ("PermissionDeniedError", 403, lambda: speaks.ask(speaks.client(default_headers={"Origin": "http://evil"}))),
        ("NotFoundError", 404, lambda: speaks.ask(client, model="gpt-9")),
        ("BadRequestError", 400, lambda: speaks.ask(client, messages=LONG)),
        ("InternalServerError", 500, lambda: speaks.ask(client)),
        ("UnprocessableEntityError", 422, lambda: speaks.ask(client)),
    ]
    for name, status, wrong in table:
        with pytest.raises(getattr(package, name)) as caught:
            wrong()
        assert speaks.status(caught.value) == status, name
        assert caught.value.response.headers["x-request-id"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.__name__)
def test_a_full_queue_and_a_model_on_its_way_can_be_tried_again(serve, protocol):
    stall = Stall()
    server = serve(Script(["One", stall]), slots=1, queue=0)
    speaks = protocol(server)
    (model,) = server.models
    with speaks.ask(speaks.client(), stream=True) as stream:
        next(iter(stream))
        with pytest.raises(speaks.package.RateLimitError) as caught:
            speaks.ask(speaks.client())
        assert caught.value.response.headers["retry-after"] == "1" and speaks.status(caught.value) == 429
        stall.release()
    server.models._arriving += 1
    model.runner, runner = None, model.runner
    model.loading = unfinished = type("Loading", (), {"done": lambda _self: False})()
    try:
        with pytest.raises(speaks.package.InternalServerError) as loading:
            speaks.ask(speaks.client(timeout=PROMPTLY))
        assert speaks.status(loading.value) == 503 and "still being loaded" in str(loading.value)
    finally:
        assert model.loading is unfinished
        model.loading, model.runner = None, runner
        server.models._arriving -= 1


def misfit() -> LeapConstraintError:
    return LeapConstraintError("no fit", text="{", problems=["wrong"])
